"""Root's writes to an NVIDIA GPU, over the fake NVML: values, refusals, restarts."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pynvml
import pytest

from agents.actuator.driver import SLEPT, DriverProcess, Value
from agents.devices.catalogue import known_truth
from agents.devices.nvidia.knobs import CLOCK, LIMIT, MEMORY, PROFILE, NvidiaKnobs, discover
from agents.devices.nvidia.limits import limits_w
from agents.devices.nvidia.nvml import Gpu, listed
from tests.contracts.drivers import DriverContract
from tests.contracts.members import MemberContract
from tests.nvml.fake import A40, A100, FakeNvml
from tuner.core import ActuationError, DeviceLost, Setting


@pytest.fixture
def knobs(nvml: FakeNvml) -> NvidiaKnobs:
    gpu: NvidiaKnobs = discover()[0]
    return gpu


class TestContract(DriverContract, MemberContract):
    cap_knobs = (CLOCK, LIMIT)

    @pytest.fixture(params=["A100", "A40", "with profiles"])
    def driver(self, nvml: FakeNvml, request: pytest.FixtureRequest) -> NvidiaKnobs:
        nvml.set("profiles", 7.0 * (request.param == "with profiles"))
        gpu: NvidiaKnobs = discover()[request.param == "A40"]
        return gpu


def under_load(nvml: FakeNvml, seconds: float = 3.0) -> float:
    nvml.sleep(seconds)
    return nvml.get("ran_mhz")


class TestTheFakeItself:
    @pytest.mark.parametrize(
        "setting",
        [
            {CLOCK: 1410, LIMIT: 400, "batch_size": 16},
            {CLOCK: 1005, LIMIT: 400, "batch_size": 32},
            {CLOCK: 810, LIMIT: 150, "batch_size": 1},
            {CLOCK: 1410, LIMIT: 150, "batch_size": 16},
        ],
    )
    def test_the_fakes_physics_is_the_simulated_devices(
        self, nvml: FakeNvml, setting: Setting
    ) -> None:
        nvml.set("noise", 0.0)
        knobs = discover()[0]
        knobs.write(CLOCK, setting[CLOCK])
        knobs.write(LIMIT, setting[LIMIT])
        nvml.set("batch", float(setting["batch_size"]))
        nvml.sleep(400.0)
        before = (nvml.get("energy_j"), nvml.get("items"))
        nvml.sleep(100.0)
        energy_j, items = nvml.get("energy_j") - before[0], nvml.get("items") - before[1]
        truth = known_truth("simulated:a100")
        assert truth is not None
        true = truth(setting)
        assert energy_j / items == pytest.approx(true["energy_j"], rel=1e-3)
        assert items / 100.0 == pytest.approx(true["throughput_per_s"], rel=1e-3)

    def test_the_fakes_state_outlives_a_killed_client(self, nvml: FakeNvml) -> None:
        script = (
            "import os, signal\n"
            "from agents.devices.nvidia.knobs import discover\n"
            "discover()[0].write('gpu.power_limit_w', 250)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        env = {**nvml.environment(), "PYTHONPATH": ":".join(sys.path)}
        ended = subprocess.run([sys.executable, "-c", script], env=env, check=False)
        assert ended.returncode == -9
        assert discover()[0].read()[LIMIT] == 250


class TestDiscovery:
    def test_every_gpu_is_found_with_its_abilities(self, nvml: FakeNvml) -> None:
        a100, a40 = discover()
        assert (a100.uuid, a40.uuid) == (A100, A40)
        assert "A100" in a100.board
        assert Gpu(A100).driver() == "580.95.05"
        assert a100.ranges()[CLOCK] == tuple(range(210, 1411, 15))
        assert a100.ranges()[LIMIT] == tuple(range(100, 401))
        assert "one memory clock" in discover()[0].without[MEMORY]
        assert a40.ranges()[MEMORY] == (405, 7251)
        assert discover()[1].without.keys() == {PROFILE}
        assert "not support" in discover()[1].without[PROFILE]

    def test_without_the_library_there_is_no_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing() -> None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

        monkeypatch.setattr(pynvml, "nvmlInit", missing)
        assert not listed().uuids
        with pytest.raises(ActuationError, match="no NVIDIA driver"):
            discover()

    def test_a_missing_driver_is_reported(self, nvml: FakeNvml) -> None:
        nvml.set("unloaded", 1.0)
        for ask in (listed, discover):
            with pytest.raises(ActuationError, match="Driver Not Loaded"):
                ask()

    def test_a_guest_of_a_vgpu_sets_nothing(self, nvml: FakeNvml) -> None:
        nvml.set("vgpu", 1.0)
        knobs = discover()[0]
        assert not knobs.ranges()
        assert "vGPU" in discover()[0].without[LIMIT]

    def test_a_limit_that_the_board_does_not_offer_is_absent(self, nvml: FakeNvml) -> None:
        nvml.set("refuse_limit", 1.0)
        knobs = discover()[0]
        assert list(knobs.ranges()) == [CLOCK]
        assert "not support" in discover()[0].without[LIMIT].lower()

    def test_a_board_without_a_list_of_clocks_is_locked_between_its_ends(
        self, nvml: FakeNvml
    ) -> None:
        """GB10 lists no memory clocks and takes clock locks (open-gpu-kernel-modules 1358)."""
        nvml.set("uma", 1.0)
        nvml.set("nvmlDeviceGetPowerManagementLimit", float(pynvml.NVML_ERROR_NOT_SUPPORTED))
        knobs = discover()[0]
        assert knobs.ranges() == {CLOCK: tuple(range(210, 1411, 15))}
        assert discover()[0].without.keys() == {MEMORY, LIMIT, PROFILE}
        knobs.write(CLOCK, 1005)
        under_load(nvml)
        assert nvml.get("ran_mhz") == 1005
        nvml.set("nvmlDeviceGetMinMaxClockOfPState", float(pynvml.NVML_ERROR_NOT_SUPPORTED))
        assert not discover()[0].ranges()
        assert "not support" in discover()[0].without[CLOCK].lower()

    @pytest.mark.parametrize(
        ("bounds", "limits"),
        [
            ((60, 70, 70), list(range(60, 71))),
            ((200, 700, 700), list(range(200, 701, 50))),
            ((101, 366, 350), [150, 200, 250, 300, 350, 366]),
            ((100, 400, 287.5), [100, 150, 200, 250, 287.5, 300, 350, 400]),
            ((150, 150, 400), [150, 400]),
        ],
    )
    def test_few_limits_are_tried_the_greatest_and_the_original_among_them(
        self, bounds: tuple[int, int, float], limits: list[float]
    ) -> None:
        least, most, original = bounds
        assert limits_w(range(least, most + 1), original) == limits


class TestWriting:
    def test_a_lock_shows_under_load_after_a_while(
        self, nvml: FakeNvml, knobs: NvidiaKnobs
    ) -> None:
        nvml.set("delay_s", 2.0)
        assert under_load(nvml) == 1410
        knobs.write(CLOCK, 1005)
        assert nvml.get("ran_mhz") == 1410
        assert under_load(nvml) == 1005
        assert (nvml.get("lock_min"), nvml.get("lock_max")) == (210, 1005)
        knobs.write(CLOCK, None)
        assert under_load(nvml) == 1410

    def test_a_lock_cannot_be_read_and_a_limit_can(self, knobs: NvidiaKnobs) -> None:
        knobs.write(CLOCK, 1005)
        knobs.write(LIMIT, 250)
        assert knobs.read() == {CLOCK: None, MEMORY: None, LIMIT: 250}
        knobs.write(LIMIT, None)
        assert knobs.read()[LIMIT] == 400

    def test_a_foreign_original_value_can_be_written_back(
        self, nvml: FakeNvml, knobs: NvidiaKnobs
    ) -> None:
        nvml.set("limit_w", 287.5)
        original = knobs.read()[LIMIT]
        assert original == 287.5
        knobs.write(LIMIT, 100)
        knobs.write(LIMIT, original)
        assert nvml.get("limit_w") == 287.5

    def test_memory_is_locked_to_a_listed_clock(self, nvml: FakeNvml) -> None:
        knobs = discover()[1]
        knobs.write(MEMORY, 405)
        assert nvml.get("mem_lock", gpu=1) == 405
        knobs.write(MEMORY, None)
        assert nvml.get("mem_lock", gpu=1) == 0

    @pytest.mark.parametrize("watts", [99, 401, -1])
    def test_a_limit_that_the_board_has_not_is_refused_by_the_driver(
        self, nvml: FakeNvml, knobs: NvidiaKnobs, watts: int
    ) -> None:
        with pytest.raises(ActuationError, match="Invalid Argument"):
            knobs.write(LIMIT, watts)
        assert nvml.get("limit_w") == 400

    def test_whole_floats_are_integers(self, nvml: FakeNvml, knobs: NvidiaKnobs) -> None:
        knobs.write(CLOCK, 1005.0)
        assert nvml.get("lock_max") == 1005


class TestRefusals:
    def test_without_the_right_nothing_changes_and_the_cure_is_named(
        self, nvml: FakeNvml, knobs: NvidiaKnobs
    ) -> None:
        nvml.set("no_permission", 1.0)
        acts: list[Callable[[], None]] = [
            lambda: knobs.write(CLOCK, 1005),
            lambda: knobs.write(LIMIT, 200),
            lambda: knobs.write(CLOCK, None),
        ]
        for act in acts:
            with pytest.raises(ActuationError, match="Insufficient Permissions") as caught:
                act()
            assert not isinstance(caught.value, DeviceLost)
        assert CLOCK in knobs.ranges()
        assert (nvml.get("lock_max"), nvml.get("limit_w")) == (0, 400)

    @pytest.mark.parametrize("again", [False, True])
    def test_a_knob_refused_once_is_restored_too(self, nvml: FakeNvml, again: bool) -> None:
        knobs = discover()[0]
        knobs.write(LIMIT, 250)
        nvml.set("refuse_limit", 1.0)
        with pytest.raises(ActuationError, match="Not Supported"):
            knobs.write(LIMIT, 400)
        if again:  # a fresh process; the GPU offers it no limit
            knobs = discover()[0]
            assert LIMIT not in knobs.ranges()
        nvml.set("refuse_limit", 0.0)
        knobs.write(LIMIT, 400)
        assert nvml.get("limit_w") == 400
        assert knobs.read()[LIMIT] == 400

    def test_an_unreported_limit_is_left_out(
        self, knobs: NvidiaKnobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(_handle: object) -> int:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

        monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerManagementLimit", refused)
        assert knobs.read() == {CLOCK: None, MEMORY: None}

    def test_a_lost_gpu_is_lost_for_every_verb(self, nvml: FakeNvml, knobs: NvidiaKnobs) -> None:
        nvml.set("lost", 1.0)
        for act in (
            knobs.read,
            lambda: knobs.write(CLOCK, 1005),
            lambda: knobs.write(CLOCK, None),
        ):
            with pytest.raises(DeviceLost, match="lost"):
                act()
        assert discover_uuids() == [A40]
        nvml.set("lost", 0.0)
        assert knobs.read()[LIMIT] == 400


def discover_uuids() -> list[str]:
    return [knobs.uuid for knobs in discover() if isinstance(knobs, NvidiaKnobs)]


class Asked:
    """The GPU's knobs in a driver process; `read` returns the driver's epoch and the power limit."""

    def __init__(self, root: Path) -> None:
        self.hand = DriverProcess(lambda: discover(root), 5.0)

    def read(self) -> tuple[str, Value]:
        values, _, _, epoch = asyncio.run(self.hand.ask("read", A100))
        return epoch, values[LIMIT]

    def write(self, watts: int) -> None:
        asyncio.run(self.hand.ask("write", A100, LIMIT, watts))


@pytest.fixture
def asked(nvml: FakeNvml, tmp_path: Path) -> Iterator[Asked]:
    asked = Asked(tmp_path)
    yield asked
    asyncio.run(asked.hand.close())
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


class TestDriverRestart:
    def test_a_driver_restart_fails_one_call_and_is_a_new_epoch(
        self, nvml: FakeNvml, asked: Asked
    ) -> None:
        before, _ = asked.read()
        assert asked.read()[0] == before
        asked.write(250)
        nvml.set("generation", 1.0)
        with pytest.raises(DeviceLost, match=r"upgraded|restarted|load the"):
            asked.read()
        after, limit = asked.read()
        assert (limit, after != before) == (400, True)

    def test_a_module_loaded_again_is_another_epoch(
        self, nvml: FakeNvml, asked: Asked, tmp_path: Path
    ) -> None:
        module = tmp_path / "sys/module/nvidia"
        module.mkdir(parents=True)
        before = asked.read()
        assert asked.read() == before
        (tmp_path / "sys/module/nouveau").mkdir()
        module.rename(tmp_path / "gone")
        module.mkdir()
        assert asked.read()[0].partition(SLEPT)[0] != before[0].partition(SLEPT)[0]

    def test_a_gpu_that_was_taken_from_the_bus_is_another_epoch_and_the_other_is_not(
        self, nvml: FakeNvml, tmp_path: Path
    ) -> None:
        """Its link below the driver is a new one: drivers/base/bus.c, driver_sysfs_add."""
        links = tmp_path / "sys/bus/pci/drivers/nvidia"
        links.mkdir(parents=True)
        for bus in ("65", "66"):
            (links / f"0000:{bus}:00.0").symlink_to(tmp_path)
        gpus = [gpu for gpu in discover(tmp_path) if isinstance(gpu, NvidiaKnobs)]
        before = [gpu.epoch for gpu in gpus]
        (links / "0000:65:00.0").rename(tmp_path / "gone")
        (links / "0000:65:00.0").symlink_to(tmp_path)
        assert [gpu.epoch == was for gpu, was in zip(gpus, before, strict=True)] == [False, True]

    def test_a_gpu_that_does_not_answer_is_no_other_load(
        self, nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (gpu, *_) = (gpu for gpu in discover(tmp_path) if isinstance(gpu, NvidiaKnobs))
        before = gpu.epoch

        def fail(_: object) -> None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_OPERATING_SYSTEM)

        monkeypatch.setattr(pynvml, "nvmlDeviceGetPciInfo", fail)
        with pytest.raises(ActuationError):
            assert gpu.epoch != before

    @pytest.mark.parametrize("persistence", [0.0, 1.0])
    def test_without_persistence_mode_the_settings_may_be_lost_with_each_process(
        self, nvml: FakeNvml, asked: Asked, persistence: float
    ) -> None:
        """NVIDIA, Driver Persistence: the driver unloads a GPU that no client has open."""
        nvml.set("persistence", persistence)
        before, _ = asked.read()
        asyncio.run(asked.hand.renew())
        after, _ = asked.read()
        assert (after == before) is bool(persistence)
        assert after.partition(SLEPT)[0] == before.partition(SLEPT)[0]


def test_an_agents_gpu_is_found_anew_after_a_restart(nvml: FakeNvml) -> None:
    gpu = Gpu(A100)
    before = gpu.call("name", pynvml.nvmlDeviceGetName)
    nvml.set("generation", 1.0)
    with pytest.raises(ActuationError, match="restarted"):
        gpu.call("name", pynvml.nvmlDeviceGetName)
    assert gpu.call("name", pynvml.nvmlDeviceGetName) == before
