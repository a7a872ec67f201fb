"""An NVIDIA GPU as an agent sees it, over the fake NVML: energy, clocks, other processes, every fault."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import pynvml
import pytest

from agents.actuator_client.caps import DeviceCaps
from agents.actuator_client.client import DETACHED, RemoteKnobs
from agents.actuator_client.line import ActuatorClient
from agents.devices.nvidia import device, energy
from agents.devices.nvidia import nvml as nvml_module
from agents.devices.nvidia.clocks import ClockLock, FollowedKnobs
from agents.devices.nvidia.energy import check_counter, powers_w
from agents.devices.nvidia.knobs import CLOCK, LIMIT, MEMORY, NvidiaKnobs, discover
from agents.devices.nvidia.meter import GpuMeter
from agents.devices.nvidia.nvml import Gpu, ListedGpus, listed
from agents.devices.nvidia.remembered import Memory
from agents.host.machine import HostClock
from agents.host.processes.ownership import WorkloadIdentity
from agents.target.side import HOST_CPU, Side, TellsForeignLoad
from tests.contracts.actuator import ActuatorContract
from tests.contracts.meter import MeterContract
from tests.nvml.fake import A40, A100, FakeNvml
from tuner.core import (
    FOREIGN_LOAD,
    POWER_PROFILES,
    ActuationError,
    CounterAndPower,
    DeviceLost,
    InvalidInput,
    Knob,
    MeasurementError,
    Reading,
    Scope,
    Setting,
    SettingContested,
    Space,
)

BOTH = ListedGpus({0: A100, 1: A40})
COUNTER, FROZEN, BACKWARDS, ABSENT, HALF = range(5)


class Bench:
    """A GPU of the fake NVML as it was last opened; background work runs as the fake's time advances."""

    side: Side

    def __init__(self, nvml: FakeNvml, folder: Path) -> None:
        self.nvml = nvml
        self._folder = folder
        self._jobs: list[Callable[[], None]] = []

    def every(self, period_s: float, job: Callable[[], None]) -> Callable[[], None]:
        self._jobs.append(job)
        return lambda: self._jobs.remove(job)

    def sleep(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            self.nvml.sleep(0.05)
            for job in self._jobs:
                job()

    def open(self, uuid: str = A100) -> Side:
        no_socket = self._folder / "no.sock"
        self.side = device.attach(
            uuid, socket=no_socket, state_dir=self._folder, clock=self.nvml, every=self.every
        )
        return self.side

    def window(self, seconds: float) -> Reading:
        started = self.side.meter.start()
        self.sleep(seconds)
        return started.stop()

    def checked(self) -> GpuMeter:
        """Check the counter under the present load, as the first window does."""
        with suppress(MeasurementError):
            self.window(1.0)
        assert isinstance(self.side.meter, GpuMeter)
        return self.side.meter


@pytest.fixture
def bench(nvml: FakeNvml, tmp_path: Path) -> Bench:
    nvml.sleep(30.0)
    return Bench(nvml, tmp_path)


@pytest.fixture
def gpu(bench: Bench) -> Bench:
    """Return the bench with its first GPU open."""
    bench.open()
    return bench


@pytest.fixture
def side(gpu: Bench) -> Side:
    return gpu.side


@pytest.fixture
def later(bench: Bench) -> Callable[[], None]:
    return lambda: bench.sleep(2.0)


class TestContracts(MeterContract, ActuatorContract):
    pass


class TestContractsOfIntegratedPower(MeterContract):
    @pytest.fixture
    def side(self, bench: Bench) -> Side:
        bench.nvml.set("counter", ABSENT)
        return bench.open()


class TestEnergy:
    def test_a_counter_that_agrees_with_power_is_used(self, gpu: Bench) -> None:
        meter = gpu.checked()
        before = gpu.nvml.get("energy_j")
        shown = gpu.window(10.0).totals["energy_j"]
        used = gpu.nvml.get("energy_j") - before
        assert "energy counter (scope GPU; its energy counter counts 1.0" in meter.source
        assert shown == pytest.approx(used, rel=0.02)

    @pytest.mark.parametrize("uuid", [A100, A40])
    @pytest.mark.parametrize(
        ("counter", "words"), [(HALF, "0.50 of"), (FROZEN, "hardly moves"), (ABSENT, "support")]
    )
    def test_a_counter_that_disagrees_is_replaced_by_integrated_power(
        self, bench: Bench, uuid: str, counter: int, words: str
    ) -> None:
        index = int(uuid == A40)
        bench.nvml.set("counter", counter, gpu=index)
        bench.open(uuid)
        meter = bench.checked()
        before = bench.nvml.get("energy_j", gpu=index)
        shown = bench.window(10.0).totals["energy_j"]
        used = bench.nvml.get("energy_j", gpu=index) - before
        assert "power, integrated (scope GPU" in meter.source and words in meter.source
        assert shown == pytest.approx(used, rel=0.03)

    def test_a_counter_is_not_judged_while_idle(self, gpu: Bench) -> None:
        # zeus issue 181: 0.57 of the power's integral on an idle board.
        gpu.nvml.set("idle_ratio", 0.57)
        gpu.nvml.set("busy", 0.0)
        meter = gpu.checked()
        assert "not been checked under load yet" in meter.source
        gpu.nvml.set("busy", 1.0)
        gpu.sleep(2.0)
        gpu.checked()
        assert "energy counter (" in meter.source and "1.00 of its power" in meter.source

    @pytest.mark.parametrize(("ratio", "share"), [(1.0, 0.0), (0.57, 0.43)])
    def test_the_tolerance_is_measured_at_rest_and_kept(
        self, gpu: Bench, ratio: float, share: float
    ) -> None:
        gpu.nvml.set("idle_ratio", ratio)
        gpu.nvml.set("busy", 0.0)
        assert isinstance(gpu.side.meter, GpuMeter)
        gpu.window(9.0)
        assert gpu.side.meter.energy.rest_share == 1.0, "too short to tell"
        gpu.window(30.0)
        assert share <= gpu.side.meter.energy.rest_share < share + 0.1
        (fact,) = [f for f in gpu.window(30.0).facts if isinstance(f, CounterAndPower)]
        assert fact.power_j is not None
        assert fact.rest_j == pytest.approx(fact.power_j, rel=0.1), "at rest all of it is doubtful"
        started = gpu.side.meter.start()
        gpu.sleep(20.0)
        gpu.nvml.set("busy", 1.0)
        gpu.sleep(20.0)
        (mixed,) = [f for f in started.stop().facts if isinstance(f, CounterAndPower)]
        assert mixed.rest_j < (share + 0.1) * fact.rest_j

    def test_a_counter_that_is_wrong_under_load_is_detected_under_load(self, gpu: Bench) -> None:
        gpu.nvml.set("load_ratio", 0.7)
        gpu.nvml.set("busy", 0.0)
        started = gpu.side.meter.start()
        gpu.sleep(1.0)
        gpu.nvml.set("busy", 1.0)
        gpu.sleep(2.0)
        with pytest.raises(MeasurementError, match="counter is wrong"):
            started.stop()
        assert "0.70 of its power" in gpu.checked().source

    def test_an_unsteady_load_does_not_judge_the_counter(
        self, gpu: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def sleep(seconds: float, plain: Callable[[float], None] = gpu.nvml.sleep) -> None:
            plain(seconds)
            gpu.nvml.set("busy", float(int(gpu.nvml.monotonic() / 2.5) % 2))

        monkeypatch.setattr(gpu.nvml, "sleep", sleep)
        assert check_counter(Gpu(A100), gpu.nvml) is None

    def test_a_sparsely_sampled_power_does_not_refute_a_counter(
        self, gpu: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # arXiv 2312.02741: A100 and H100 sample a quarter of the time; the other field has the mean.
        def partial_w(gpu: Gpu) -> dict[tuple[int, int], float]:
            watts = powers_w(gpu)[186, 0]
            return {(186, 0): 0.6 * watts, (185, 0): watts}

        monkeypatch.setattr(energy, "powers_w", partial_w)
        check = check_counter(Gpu(A100), gpu.nvml)
        assert check is not None and check.trusted

    def test_the_check_takes_ten_seconds_once_per_driver(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        def took_s() -> float:
            began = bench.nvml.monotonic()
            bench.open()
            bench.checked()
            return bench.nvml.monotonic() - began - 1.0

        assert took_s() > 9.0
        assert took_s() < 1.0
        bench.nvml.set("generation", 1.0)
        with pytest.raises(ActuationError, match="restarted"):
            bench.open()
        assert took_s() > 9.0
        (tmp_path / f"nvidia-{A100}.json").write_text('{"uuid": 3}')
        assert took_s() > 9.0


class TestScope:
    """zeus PR 172 (GH200), zeus PR 242 (GB10)."""

    def test_the_gpus_power_is_integrated_if_its_counter_is_the_modules(self, bench: Bench) -> None:
        bench.nvml.set("module_w", 150.0)
        side = bench.open()
        meter = bench.checked()
        before = bench.nvml.get("energy_j")
        shown = bench.window(10.0).totals["energy_j"]
        assert shown == pytest.approx(bench.nvml.get("energy_j") - before, rel=0.03)
        assert "scope GPU" in meter.source and "is the module's" in meter.source
        assert {m.scope for m in side.metrics if m.name in device.MEASURED} == {Scope.BOARD}
        assert side.energy_of == {A100}

    def test_if_only_the_module_reports_power_the_cpu_is_part_of_it(self, bench: Bench) -> None:
        bench.nvml.set("module_w", 150.0)
        bench.nvml.set("no_gpu_scope", 1.0)
        side = bench.open()
        meter = bench.checked()
        assert "module's energy counter (scope MODULE" in meter.source
        assert {m.scope for m in side.metrics if m.name in device.MEASURED} == {Scope.MODULE}
        assert side.energy_of == {A100, HOST_CPU}

    def test_a_board_without_memory_calls_is_measured(self, bench: Bench) -> None:
        bench.nvml.set("uma", 1.0)
        bench.open()
        assert "support" in discover()[0].without[MEMORY]
        assert bench.window(2.0).totals["energy_j"] > 0.0


class TestEnergyThatThereIsNot:
    def test_no_power_at_all_gives_no_energy_with_the_reason(self, bench: Bench) -> None:
        bench.nvml.set("vgpu", 1.0)
        side = bench.open()
        assert side.metrics == ()
        assert "not support" in side.cannot["energy_j"]
        assert "energy_j" not in bench.window(2.0).totals

    def test_a_reading_is_at_a_step_of_the_counter(self, gpu: Bench) -> None:
        gpu.nvml.set("noise", 0.0)
        gpu.nvml.sleep(400.0)
        started = gpu.side.meter.start()
        began = gpu.nvml.monotonic()
        for wait in (0.37, 0.52, 0.44):
            gpu.nvml.sleep(wait)
            joules = started.read().totals["energy_j"]
            watts = joules / (gpu.nvml.monotonic() - began)
            assert watts == pytest.approx(281.1, rel=0.02)


class TestFaults:
    @pytest.mark.parametrize(
        ("fault", "value", "words"),
        [
            ("counter", BACKWARDS, "jumped back"),
            ("counter_j", 5.0, "jumped back"),
            ("counter_j", 90_000.0, "moved by"),
            ("lost", 1.0, "lost"),
            ("generation", 1.0, "restarted"),
        ],
    )
    def test_a_faulty_counter_makes_the_window_an_error(
        self, gpu: Bench, fault: str, value: float, words: str
    ) -> None:
        started = gpu.side.meter.start()
        gpu.sleep(2.0)
        assert started.read().totals["energy_j"] > 100.0
        gpu.nvml.set(fault, value)
        gpu.sleep(1.0)
        with pytest.raises(MeasurementError, match=words):
            started.stop()

    def test_a_power_above_twice_the_greatest_limit_is_no_figure(self, gpu: Bench) -> None:
        gpu.nvml.refuse("nvmlDeviceGetTotalEnergyConsumption", pynvml.NVML_ERROR_NOT_SUPPORTED)
        started = gpu.open().meter.start()
        gpu.sleep(2.0)
        assert started.read().totals["energy_j"] > 100.0
        gpu.nvml.set("power_w", 900.0)
        with pytest.raises(MeasurementError, match="900 W was read, at most 800 W"):
            started.stop()

    def test_a_stopped_counter_is_not_zero(self, gpu: Bench) -> None:
        gpu.checked()
        gpu.nvml.set("counter", FROZEN)
        started = gpu.side.meter.start()
        gpu.sleep(2.0)
        assert "energy_j" not in started.read().totals
        with pytest.raises(MeasurementError, match="did not change"):
            started.stop()
        assert "hardly moves" in gpu.checked().source

    def test_a_lost_gpu_opens_no_window(self, gpu: Bench) -> None:
        gpu.nvml.set("lost", 1.0)
        with pytest.raises(MeasurementError, match="lost"):
            gpu.side.meter.start()

    def test_a_hanging_driver_fails_the_window_and_is_used_again_later(
        self, gpu: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(nvml_module, "DEADLINE_S", 0.3)
        started = gpu.side.meter.start()
        gpu.sleep(2.0)
        gpu.nvml.set("hang", 2.0)
        began = time.monotonic()
        for ask in (started.read, started.stop, gpu.side.meter.start, gpu.side.meter.start):
            with pytest.raises(MeasurementError, match=r"did not answer within 0\.3 s"):
                ask()
        assert time.monotonic() - began < 3.0
        gpu.nvml.set("hang", 0.0)
        monkeypatch.setattr(nvml_module, "DEADLINE_S", 5.0)
        while time.monotonic() - began < 20.0:
            with suppress(MeasurementError):
                assert gpu.window(2.0).totals["energy_j"] > 0.0
                return
        pytest.fail("a driver that is back is not asked again")

    def test_after_a_restart_windows_are_measured_again(self, gpu: Bench) -> None:
        gpu.nvml.set("generation", 1.0)
        with pytest.raises(MeasurementError):
            gpu.side.meter.start()
        assert gpu.window(2.0).totals["energy_j"] > 100.0


class TestThrottling:
    def test_each_throttle_reason_counts_the_seconds_it_was_in_force(self, gpu: Bench) -> None:
        free = gpu.window(4.0)
        assert all(v == 0.0 for k, v in free.totals.items() if "throttled" in k)
        discover()[0].write(LIMIT, 150)
        gpu.nvml.set("thermal_mhz", 1300.0)
        gpu.sleep(2.0)
        hot = gpu.window(4.0)
        assert hot.totals["throttled_power_s"] == pytest.approx(4.0, abs=0.5)
        assert hot.totals["throttled_thermal_s"] == pytest.approx(4.0, abs=0.5)
        assert hot.totals["throttled_power_brake_s"] == 0.0

    def test_a_board_without_throttle_counters_reports_no_reasons(self, bench: Bench) -> None:
        bench.nvml.set("no_fields", 1.0)
        bench.open()
        shown = bench.window(2.0)
        assert not [name for name in shown.totals if "throttled" in name]
        assert shown.totals["energy_j"] > 0.0


class TestEnforcedLimit:
    def test_each_window_has_the_limit_in_force(self, gpu: Bench) -> None:
        # nvml.h: nvmlDeviceGetEnforcedPowerLimit is the least of several limiters, a BMC's among them.
        assert gpu.window(1.0).estimates["enforced_limit_w"].mean == 400
        gpu.nvml.set("enforced_w", 220.0)
        assert gpu.window(1.0).estimates["enforced_limit_w"].mean == 220
        gpu.nvml.refuse("nvmlDeviceGetEnforcedPowerLimit", 3)
        assert "enforced_limit_w" not in gpu.window(1.0).estimates

    def test_an_observed_cap_ends_the_list_of_power_limits(
        self, nvml: FakeNvml, tmp_path: Path
    ) -> None:
        direct = Direct(discover()[0])
        memory = Memory(tmp_path, A100, "1")
        knobs = FollowedKnobs(
            cast("RemoteKnobs", direct), direct.space, Gpu(A100), ClockLock(), memory, nvml
        )
        nvml.set("limit_w", 200.0)
        nvml.set("enforced_w", 250.0)
        knobs.apply({LIMIT: 220})
        assert knobs.left()[0].knob(LIMIT).values[-2:] == (399, 400)
        knobs.apply({LIMIT: 300})
        assert knobs.left()[0].knob(LIMIT).values[-2:] == (250, 400)


class TestForeignLoad:
    """Situations: NVIDIA/nvidia-docker issue 1483, Syllo/nvtop issue 149."""

    @pytest.fixture
    def served(self, side: Side) -> list[int]:
        """Return the processes that the workload reports now."""
        numbers: list[int] = []
        assert isinstance(side.meter, TellsForeignLoad)
        side.meter.attribute_to(WorkloadIdentity(processes=lambda: numbers))
        return numbers

    def test_a_restarted_service_keeps_its_owner(self, gpu: Bench, served: list[int]) -> None:
        for _ in range(2):
            with sleeping() as server:
                served[:] = [server]
                gpu.nvml.set("own_pid", float(server))
                shown = gpu.window(2.0)
                assert shown.totals["foreign_s"] == 0.0
                assert FOREIGN_LOAD not in shown.notes

    def test_another_computing_process_is_foreign_while_it_runs(
        self, gpu: Bench, served: list[int]
    ) -> None:
        with sleeping() as server, sleeping() as other:
            served[:] = [server]
            gpu.nvml.set("own_pid", float(server))
            started = gpu.side.meter.start()
            gpu.sleep(1.0)
            assert started.read().totals["foreign_s"] == 0.0
            gpu.nvml.set("foreign_pid", float(other))
            gpu.sleep(1.0)
            assert started.stop().totals["foreign_s"] == pytest.approx(1.0, abs=0.3)
            assert gpu.window(2.0).totals["foreign_s"] == pytest.approx(2.0, abs=0.3)

    def test_our_own_children_are_never_foreign(self, gpu: Bench) -> None:
        with subprocess.Popen(["sleep", "60"]) as child, sleeping() as other:
            gpu.nvml.set("own_pid", float(child.pid))
            assert gpu.window(1.0).totals["foreign_s"] == 0.0
            gpu.nvml.set("foreign_pid", float(other))
            assert gpu.window(1.0).totals["foreign_s"] > 0.5
            child.kill()

    @pytest.mark.parametrize(
        ("listed", "words"),
        [
            ({}, "lists no process although the GPU is busy"),
            ({"own_pid": 4_000_000.0}, "does not show process 4000000"),
            ({"own_pid": 1.0}, "process 1 cannot be distinguished from the workload"),
        ],
    )
    def test_an_undeterminable_owner_is_unknown_and_logged_once(
        self, gpu: Bench, caplog: pytest.LogCaptureFixture, listed: dict[str, float], words: str
    ) -> None:
        for name, pid in listed.items():
            gpu.nvml.set(name, pid)
        for _ in range(3):
            shown = gpu.window(1.0)
            assert shown.totals["foreign_s"] == 0.0
            assert words in shown.notes[FOREIGN_LOAD]
        assert len([r for r in caplog.messages if "event=foreign_load_unknown" in r]) == 1
        gpu.nvml.set("busy", 0.0)
        gpu.nvml.set("own_pid", 0.0)
        gpu.sleep(1.0)
        assert gpu.window(1.0).notes == {}


@contextmanager
def sleeping() -> Iterator[int]:
    """Run a process that is not a child of this one, and yield its id."""
    command = ["sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & echo $!"]
    pid = int(subprocess.check_output(command, text=True))
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)


class TestPowerProfiles:
    """nvmlWorkloadPowerProfileCurrentProfiles_v1_t: enforced after arbitration among those requested."""

    def test_power_profiles_in_force_are_noted_in_every_window(self, gpu: Bench) -> None:
        assert POWER_PROFILES not in gpu.window(1.0).notes
        gpu.nvml.set("profiles", 7.0)
        assert gpu.window(1.0).notes[POWER_PROFILES] == "none enforced (mask 0x0)"
        gpu.nvml.set("requested_profiles", 6.0)
        noted = gpu.window(1.0).notes[POWER_PROFILES]
        assert noted == "max-q + compute enforced (mask 0x6)"

    def test_a_changed_power_profile_within_a_window_is_noted(self, gpu: Bench) -> None:
        gpu.nvml.set("profiles", 7.0)
        started = gpu.side.meter.start()
        gpu.nvml.set("requested_profiles", 2.0)
        gpu.sleep(1.0)
        noted = started.stop().notes[POWER_PROFILES]
        assert noted == "none enforced (mask 0x0), then max-q enforced (mask 0x2)"

    def test_our_own_power_profile_is_no_change_and_must_be_enforced(self, gpu: Bench) -> None:
        assert isinstance(gpu.side.meter, GpuMeter)
        for name, mask in (("profiles", 7.0), ("profile_conflicts", 5.0)):
            gpu.nvml.set(name, mask)
        before = gpu.window(1.0).notes[POWER_PROFILES]
        for profile, mask in (("max-q", 2.0), ("max-p", 1.0)):
            gpu.side.meter.lock.profile = profile
            gpu.nvml.set("requested_profiles", mask)
            assert gpu.window(1.0).notes[POWER_PROFILES] == before
        gpu.side.meter.lock.profile = "compute"
        gpu.nvml.set("requested_profiles", 5.0)
        with pytest.raises(SettingContested, match=r"is compute, and the driver enforces max-p"):
            gpu.window(1.0)
        gpu.side.meter.lock.profile = "max-p"
        assert "compute enforced" in gpu.window(1.0).notes[POWER_PROFILES]


class TestDetaching:
    """A GPU reset, a change of MIG mode and a driver upgrade need every handle closed."""

    def test_an_idle_agent_closes_the_driver_and_reopens_it_later(
        self, gpu: Bench, tmp_path: Path
    ) -> None:
        assert gpu.window(1.0).totals
        assert pynvml.nvmlDeviceGetCount() == 2
        (tmp_path / DETACHED).touch()
        gpu.sleep(2.0)
        with pytest.raises(pynvml.NVMLError, match="Uninitialized"):
            pynvml.nvmlDeviceGetCount()
        with pytest.raises(MeasurementError, match="detached") as caught:
            gpu.side.meter.start()
        assert "--lift" in caught.value.hint
        with pytest.raises(pynvml.NVMLError, match="Uninitialized"):
            pynvml.nvmlDeviceGetCount()
        (tmp_path / DETACHED).unlink()
        assert gpu.window(1.0).totals["energy_j"] > 0.0


class TestOpening:
    def test_without_an_actuator_it_is_only_measured(self, side: Side) -> None:
        assert side.space.knobs == ()
        assert side.guard is None
        assert all("actuator" in side.cannot[knob] for knob in (CLOCK, MEMORY, LIMIT))
        assert {m.name for m in side.metrics} == {"energy_j", "power_w", "enforced_limit_w"}

    @pytest.mark.parametrize("name", ["2", "-1", "GPU-0", "MIG-1", "", "0 "])
    def test_an_unknown_gpu_is_refused(self, name: str) -> None:
        with pytest.raises(InvalidInput, match="no NVIDIA GPU"):
            device.chosen(name, BOTH)

    def test_a_gpu_keeps_its_nvml_index_when_another_is_lost(self, nvml: FakeNvml) -> None:
        # The survivor keeps its index: with GPU 0 lost `nvidia:0` is not its neighbour.
        nvml.set("lost", 1.0)
        gpus = listed()
        assert gpus.uuids == {1: A40}
        assert device.chosen("1", gpus) == A40
        with pytest.raises(DeviceLost, match="nvidia:0 does not answer"):
            device.chosen("0", gpus)
        with pytest.raises(DeviceLost, match="nvidia:0"):
            device.chosen(A100, gpus)
        with pytest.raises(InvalidInput):
            device.chosen("2", gpus)

    @pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID"])
    @pytest.mark.parametrize("code", [2, 3, 4, 6, 15, 16, 17, 20, 28, 29, 999])
    def test_an_error_of_one_gpu_does_not_affect_the_others(
        self, nvml: FakeNvml, call: str, code: int
    ) -> None:
        nvml.refuse(call, code)
        assert listed().uuids == {1: A40}
        answering = [gpu.uuid for gpu in discover() if isinstance(gpu, NvidiaKnobs)]
        assert answering == [A40]

    def test_the_stored_spec_names_the_uuid(self, side: Side) -> None:
        assert side.spec == f"nvidia:{A100}"

    def test_a_gpu_is_named_by_index_or_uuid(self) -> None:
        assert device.chosen("1", BOTH) == A40
        assert device.chosen(A100, BOTH) == A100


class Direct:
    """Writes the knobs directly, as the actuator does, but without its safeguards."""

    def __init__(self, driver: NvidiaKnobs) -> None:
        self._driver = driver
        self._set = {CLOCK: 1410, LIMIT: 400}
        clocks, limits = (tuple(driver.ranges()[knob]) for knob in (CLOCK, LIMIT))
        self.space = Space((Knob(CLOCK, clocks, 1410), Knob(LIMIT, limits, 400)))
        self.left: list[str] = []
        self.job = ""
        about = {"uuid": driver.uuid, "found": {}, "granted": {}}
        self.caps = DeviceCaps(ActuatorClient(Path("nowhere")), about, self.space, HostClock())

    def rest(self) -> Setting | None:
        return None

    def read(self) -> Setting:
        return dict(self._set)

    def apply(self, setting: Setting) -> None:
        for knob, value in setting.items():
            self._driver.write(knob, value)
        self._set |= {k: int(v) for k, v in setting.items()}

    def hold(self, setting: Setting, study: str, revision: int, valid_for_s: float) -> None:
        self.apply(setting)

    def again(self) -> None:
        self.apply(self._set)

    def leave(self, knob: str, why: str) -> None:
        self.left.append(knob)

    def release(self) -> None:
        for knob in self._set:
            self._driver.write(knob, None)

    def conflict(self) -> str:
        return ""

    def close(self) -> None:
        self._set.clear()


class TestFollowing:
    @pytest.fixture
    def lock(self) -> ClockLock:
        return ClockLock()

    @pytest.fixture
    def memory(self, tmp_path: Path) -> Memory:
        return Memory(tmp_path, A100, "1")

    @pytest.fixture
    def direct(self, nvml: FakeNvml) -> Direct:
        return Direct(discover()[0])

    @pytest.fixture
    def knobs(
        self, nvml: FakeNvml, direct: Direct, lock: ClockLock, memory: Memory
    ) -> FollowedKnobs:
        nvml.sleep(5.0)
        return FollowedKnobs(
            cast("RemoteKnobs", direct), direct.space, Gpu(A100), lock, memory, nvml
        )

    def test_a_setting_counts_as_applied_once_the_clock_has_followed(
        self, nvml: FakeNvml, knobs: FollowedKnobs, memory: Memory, tmp_path: Path
    ) -> None:
        nvml.set("delay_s", 2.0)
        for mhz in (1005, 810, 1200, 600):
            knobs.apply({CLOCK: mhz})
            assert nvml.get("ran_mhz") == mhz
        settle_s = memory.findings.settle_s
        assert settle_s is not None and 0.1 < settle_s <= 2.1
        assert Memory(tmp_path, A100, "1").findings.settle_s == settle_s
        assert Memory(tmp_path, A100, "2").findings.settle_s is None

    def test_a_clock_that_does_not_follow_is_an_error(
        self, nvml: FakeNvml, knobs: FollowedKnobs
    ) -> None:
        nvml.set("deaf", 1.0)
        with pytest.raises(ActuationError, match="1410 MHz under load, above its lock of 1005"):
            knobs.apply({CLOCK: 1005})

    @pytest.mark.parametrize("fault", [{"reach_mhz": 1260.0}, {"load": 0.5}, {"reach_mhz": 900.0}])
    def test_a_board_that_does_not_reach_a_lock_keeps_the_lock(
        self, nvml: FakeNvml, knobs: FollowedKnobs, lock: ClockLock, fault: dict[str, float]
    ) -> None:
        # RTX A6000: 2,100 MHz listed, 1,935 at best; below the lock without a reason bit: LACT 1128.
        for name, value in fault.items():
            nvml.set(name, value)
        for mhz in (1305, 1395, 1005, 1350):
            began = nvml.monotonic()
            knobs.apply({CLOCK: mhz})
            assert nvml.monotonic() - began < 4.0
            assert nvml.get("clock_mhz") == mhz

    def test_the_ladder_ends_at_the_clock_reached_at_the_baseline(
        self, bench: Bench, nvml: FakeNvml, knobs: FollowedKnobs, lock: ClockLock, memory: Memory
    ) -> None:
        nvml.set("reach_mhz", 1260.0)
        bench.sleep(2.0)
        assert max(v for v in knobs.left()[0].knob(CLOCK).values if v != 1410) == 1395
        meter = bench.open().meter
        assert isinstance(meter, GpuMeter)
        meter.lock = lock
        for load, most in ((0.5, 1395), (1.0, 1260)):
            nvml.set("load", load)
            bench.sleep(2.0)
            started = meter.start()
            for _ in range(6):
                bench.sleep(0.5)
                started.read()
            started.stop()
            ladder = knobs.left()[0].knob(CLOCK).values
            assert (ladder[-1], ladder[-2]) == (1410, most)

    def test_a_lost_lock_is_written_again_once_and_then_left_to_the_other_program(
        self, bench: Bench, nvml: FakeNvml, knobs: FollowedKnobs, direct: Direct, lock: ClockLock
    ) -> None:
        # `nvidia-smi -rgc`, and an administrator's own lock.
        meter = bench.open().meter
        assert isinstance(meter, GpuMeter)
        meter.lock = lock

        def measured() -> None:
            started = meter.start()
            bench.sleep(2.0)
            started.stop()

        knobs.apply({CLOCK: 1005})
        nvml.set("lose_locks", 1.0)
        with pytest.raises(MeasurementError, match="above its lock") as lost:
            measured()
        assert not isinstance(lost.value, SettingContested)
        nvml.sleep(3.0)
        assert nvml.get("ran_mhz") == 1005
        measured()
        nvml.set("lock_max", 1305.0)
        with pytest.raises(SettingContested, match="another program"):
            measured()
        assert direct.left == [CLOCK]
        assert nvml.get("lock_max") == 1305

    def test_a_lock_lost_long_after_another_loss_is_written_again(
        self, nvml: FakeNvml, knobs: FollowedKnobs, direct: Direct, lock: ClockLock
    ) -> None:
        knobs.apply({CLOCK: 1005})
        for _ in range(3):
            assert not isinstance(lock.contradicted("above"), SettingContested)
            nvml.sleep(700.0)
        assert direct.left == []

    def test_a_power_cap_explains_a_lower_clock(self, nvml: FakeNvml, knobs: FollowedKnobs) -> None:
        knobs.apply({CLOCK: 1350, LIMIT: 150})
        nvml.sleep(3.0)
        assert nvml.get("ran_mhz") < 1300

    def test_without_load_the_longest_observed_time_is_awaited(
        self, nvml: FakeNvml, knobs: FollowedKnobs, memory: Memory
    ) -> None:
        nvml.set("busy", 0.0)
        nvml.sleep(0.2)
        for usual in (None, 0.7):
            if usual is not None:
                memory.saw_settling(usual)
            began = nvml.monotonic()
            knobs.apply({CLOCK: 1005 if usual is None else 810})
            assert nvml.monotonic() - began == pytest.approx(usual or 2.0, abs=0.1)

    def test_a_call_to_a_lost_gpu_raises_device_lost(
        self, nvml: FakeNvml, knobs: FollowedKnobs
    ) -> None:
        nvml.set("lost", 1.0)
        with pytest.raises(DeviceLost):
            knobs.apply({CLOCK: 1005})

    def test_a_window_above_the_locked_clock_is_void(self, bench: Bench) -> None:
        side = bench.open()
        meter = side.meter
        assert isinstance(meter, GpuMeter)
        meter.lock.mhz = 1005
        started = meter.start()
        bench.sleep(1.0)
        with pytest.raises(MeasurementError, match="1410 MHz under load, above its lock of 1005"):
            started.stop()
        discover()[0].write(CLOCK, 1005)
        bench.sleep(3.0)
        assert bench.window(1.0).totals

    def test_a_released_gpu_has_the_drivers_clocks(
        self, nvml: FakeNvml, knobs: FollowedKnobs, lock: ClockLock
    ) -> None:
        knobs.apply({CLOCK: 1005})
        assert lock.mhz == 1005
        knobs.release()
        assert lock.mhz is None
        knobs.hold({CLOCK: 1410, LIMIT: 250}, "s", 1, 60.0)
        assert lock.mhz is None
        assert knobs.read() == {CLOCK: 1410, LIMIT: 250}
