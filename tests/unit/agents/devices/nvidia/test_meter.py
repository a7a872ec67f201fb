"""An NVIDIA GPU as the agent meets it, over the fake NVML: energy, clocks, other processes, every fault."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from agents.devices.nvidia import device
from agents.devices.nvidia import nvml as nvml_module
from agents.devices.nvidia.clocks import ClockLock, FollowedKnobs
from agents.devices.nvidia.knobs import CLOCK, LIMIT, MEMORY, NvidiaKnobs, discover
from agents.devices.nvidia.meter import GpuMeter
from agents.devices.nvidia.nvml import Gpu
from agents.devices.nvidia.remembered import Memory
from agents.target.side import Side
from tests.contracts.actuator import ActuatorContract
from tests.contracts.meter import MeterContract
from tests.nvml.fake import A40, A100, FakeNvml
from tuner.core import (
    ActuationError,
    DeviceLost,
    InvalidInput,
    MeasurementError,
    Origin,
    Reading,
    Setting,
)

COUNTER, FROZEN, BACKWARDS, ABSENT, HALF = range(5)


class Sampled:
    """Does what is to be done in the background whenever the fake's time passes."""

    def __init__(self, nvml: FakeNvml) -> None:
        self._nvml = nvml
        self._jobs: list[Callable[[], None]] = []

    def every(self, period_s: float, job: Callable[[], None]) -> Callable[[], None]:
        self._jobs.append(job)
        return lambda: self._jobs.remove(job)

    def sleep(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            self._nvml.sleep(0.05)
            for job in self._jobs:
                job()


@pytest.fixture
def sampled(nvml: FakeNvml) -> Sampled:
    nvml.sleep(30.0)
    return Sampled(nvml)


Opener = Callable[..., Side]


@pytest.fixture
def opened(nvml: FakeNvml, sampled: Sampled, tmp_path: Path) -> Opener:
    def attach(uuid: str = A100) -> Side:
        return device.attach(
            uuid,
            socket=tmp_path / "no.sock",
            state_dir=tmp_path,
            clock=nvml,
            every=sampled.every,
        )

    return attach


@pytest.fixture
def side(opened: Opener) -> Side:
    return opened()


@pytest.fixture
def later(sampled: Sampled) -> Callable[[], None]:
    return lambda: sampled.sleep(2.0)


@pytest.fixture
def origin() -> Origin:
    return Origin.MEASURED


class TestContracts(MeterContract, ActuatorContract):
    pass


class TestContractsOfIntegratedPower(MeterContract):
    @pytest.fixture
    def side(self, nvml: FakeNvml, opened: Opener) -> Side:
        nvml.set("counter", ABSENT)
        return opened()


def window(side: Side, sampled: Sampled, seconds: float) -> Reading:
    started = side.meter.start()
    sampled.sleep(seconds)
    return started.stop()


class TestEnergy:
    def test_a_counter_that_agrees_with_power_is_used(
        self, nvml: FakeNvml, side: Side, sampled: Sampled
    ) -> None:
        before = nvml.get("energy_j")
        shown = window(side, sampled, 10.0).totals["energy_j"]
        used = nvml.get("energy_j") - before
        assert "energy counter" in side.source
        assert shown == pytest.approx(used, rel=0.02)

    @pytest.mark.parametrize("uuid", [A100, A40])
    @pytest.mark.parametrize(
        ("counter", "words"), [(HALF, "0.50 of"), (FROZEN, "hardly moves"), (ABSENT, "support")]
    )
    def test_any_other_is_not_and_power_is_integrated(
        self,
        nvml: FakeNvml,
        opened: Opener,
        sampled: Sampled,
        uuid: str,
        counter: int,
        words: str,
    ) -> None:
        index = int(uuid == A40)
        nvml.set("counter", counter, gpu=index)
        side = opened(uuid)
        before = nvml.get("energy_j", gpu=index)
        shown = window(side, sampled, 10.0).totals["energy_j"]
        used = nvml.get("energy_j", gpu=index) - before
        assert "integrated" in side.source and words in side.source
        assert shown == pytest.approx(used, rel=0.03)

    def test_the_check_is_made_once_per_driver(
        self, nvml: FakeNvml, opened: Opener, tmp_path: Path
    ) -> None:
        opened()
        began = nvml.monotonic()
        assert "energy counter" in opened().source
        assert nvml.monotonic() == began
        nvml.set("generation", 1.0)
        with pytest.raises(ActuationError, match="restarted"):
            opened()
        opened()
        assert nvml.monotonic() > began + 2.0
        (tmp_path / f"nvidia-{A100}.json").write_text('{"uuid": 3}')
        began = nvml.monotonic()
        opened()
        assert nvml.monotonic() > began + 2.0

    def test_no_power_at_all_is_no_energy_and_says_so(
        self, nvml: FakeNvml, opened: Opener, sampled: Sampled
    ) -> None:
        nvml.set("vgpu", 1.0)
        side = opened()
        assert side.metrics == ()
        assert "not support" in side.cannot["energy_j"]
        assert "energy_j" not in window(side, sampled, 2.0).totals

    def test_a_reading_is_at_a_step_of_the_counter(
        self, nvml: FakeNvml, side: Side, sampled: Sampled
    ) -> None:
        nvml.set("noise", 0.0)
        nvml.sleep(400.0)
        started = side.meter.start()
        began = nvml.monotonic()
        for wait in (0.37, 0.52, 0.44):
            nvml.sleep(wait)
            joules = started.read().totals["energy_j"]
            watts = joules / (nvml.monotonic() - began)
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
    def test_a_window_it_spoils_is_an_error_not_a_number(
        self,
        nvml: FakeNvml,
        side: Side,
        sampled: Sampled,
        fault: str,
        value: float,
        words: str,
    ) -> None:
        started = side.meter.start()
        sampled.sleep(2.0)
        assert started.read().totals["energy_j"] > 100.0
        nvml.set(fault, value)
        sampled.sleep(1.0)
        with pytest.raises(MeasurementError, match=words):
            started.stop()

    def test_a_counter_that_stands_still_is_no_zero(
        self, nvml: FakeNvml, side: Side, sampled: Sampled
    ) -> None:
        nvml.set("counter", FROZEN)
        started = side.meter.start()
        sampled.sleep(2.0)
        assert "energy_j" not in started.read().totals
        with pytest.raises(MeasurementError, match="stood still"):
            started.stop()

    def test_a_lost_gpu_opens_no_window(self, nvml: FakeNvml, side: Side) -> None:
        nvml.set("lost", 1.0)
        with pytest.raises(MeasurementError, match="lost"):
            side.meter.start()

    def test_a_driver_that_hangs_fails_the_window_and_is_asked_again_once_it_is_back(
        self,
        nvml: FakeNvml,
        side: Side,
        sampled: Sampled,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(nvml_module, "DEADLINE_S", 0.3)
        started = side.meter.start()
        sampled.sleep(2.0)
        nvml.set("hang", 2.0)
        began = time.monotonic()
        for ask in (started.read, started.stop, side.meter.start, side.meter.start):
            with pytest.raises(MeasurementError, match=r"did not answer within 0\.3 s"):
                ask()
        assert time.monotonic() - began < 3.0
        nvml.set("hang", 0.0)
        monkeypatch.setattr(nvml_module, "DEADLINE_S", 5.0)
        while time.monotonic() - began < 20.0:
            with suppress(MeasurementError):
                assert window(side, sampled, 2.0).totals["energy_j"] > 0.0
                return
        pytest.fail("a driver that is back is not asked again")

    def test_after_a_restart_windows_are_measured_again(
        self, nvml: FakeNvml, side: Side, sampled: Sampled
    ) -> None:
        nvml.set("generation", 1.0)
        with pytest.raises(MeasurementError):
            side.meter.start()
        assert window(side, sampled, 2.0).totals["energy_j"] > 100.0


class TestThrottling:
    def test_each_reason_is_counted_for_as_long_as_it_was_in_force(
        self, nvml: FakeNvml, side: Side, sampled: Sampled
    ) -> None:
        free = window(side, sampled, 4.0)
        assert all(v == 0.0 for k, v in free.totals.items() if "throttled" in k)
        discover()[0].write(LIMIT, 150)
        nvml.set("thermal_mhz", 1300.0)
        sampled.sleep(2.0)
        hot = window(side, sampled, 4.0)
        assert hot.totals["throttled_power_s"] == pytest.approx(4.0, abs=0.5)
        assert hot.totals["throttled_thermal_s"] == pytest.approx(4.0, abs=0.5)
        assert hot.totals["throttled_power_brake_s"] == 0.0

    def test_a_board_that_does_not_count_reasons_shows_none(
        self, nvml: FakeNvml, opened: Opener, sampled: Sampled
    ) -> None:
        nvml.set("no_fields", 1.0)
        shown = window(opened(), sampled, 2.0)
        assert not [name for name in shown.totals if "throttled" in name]
        assert shown.totals["energy_j"] > 0.0


class TestCompany:
    def test_who_came_after_the_first_window_is_foreign(
        self, nvml: FakeNvml, side: Side, sampled: Sampled
    ) -> None:
        nvml.set("own_pid", 4_000_000.0)
        assert window(side, sampled, 2.0).totals["foreign_s"] == 0.0
        assert window(side, sampled, 2.0).totals["foreign_s"] == 0.0
        started = side.meter.start()
        sampled.sleep(1.0)
        assert started.read().totals["foreign_s"] == 0.0
        nvml.set("foreign_pid", 4_000_001.0)
        sampled.sleep(1.0)
        assert started.stop().totals["foreign_s"] == pytest.approx(1.0, abs=0.3)

    def test_our_own_children_never_are(self, nvml: FakeNvml, side: Side, sampled: Sampled) -> None:
        window(side, sampled, 1.0)
        nvml.set("foreign_pid", float(min(device.own_processes())))
        assert window(side, sampled, 1.0).totals["foreign_s"] == 0.0


class TestOpening:
    def test_without_an_actuator_it_is_only_measured(self, side: Side) -> None:
        assert side.space.knobs == ()
        assert side.guard is None
        assert all("actuator" in side.cannot[knob] for knob in (CLOCK, MEMORY, LIMIT))
        assert {m.name for m in side.metrics} == {"energy_j", "power_w"}

    @pytest.mark.parametrize("name", ["2", "-1", "GPU-0", "MIG-1", "", "0 "])
    def test_a_gpu_that_is_not_there_is_refused(self, name: str) -> None:
        with pytest.raises(InvalidInput, match="no NVIDIA GPU"):
            device.chosen(name, [A100, A40])

    def test_a_gpu_is_named_by_index_or_uuid(self) -> None:
        assert device.chosen("1", [A100, A40]) == A40
        assert device.chosen(A100, [A100, A40]) == A100


class Direct:
    """Knobs without an actuator between: what the actuator does, less its care."""

    def __init__(self, driver: NvidiaKnobs) -> None:
        self._driver = driver
        self._set = {CLOCK: 1410, LIMIT: 400}

    def read(self) -> Setting:
        return dict(self._set)

    def apply(self, setting: Setting) -> None:
        for knob, value in setting.items():
            self._driver.write(knob, value)
        self._set |= {k: int(v) for k, v in setting.items()}

    def hold(self, setting: Setting, study: str, revision: int, valid_for_s: float) -> None:
        self.apply(setting)

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
    def knobs(self, nvml: FakeNvml, lock: ClockLock, memory: Memory) -> FollowedKnobs:
        direct = Direct(discover()[0])
        nvml.sleep(5.0)
        return FollowedKnobs(direct, direct.read(), Gpu(A100), lock, memory, nvml)

    def test_applied_is_said_once_the_clock_has_followed(
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
        with pytest.raises(ActuationError, match="runs at 1410 MHz under load, not at 1005"):
            knobs.apply({CLOCK: 1005})

    def test_a_power_cap_explains_a_lower_clock(self, nvml: FakeNvml, knobs: FollowedKnobs) -> None:
        knobs.apply({CLOCK: 1350, LIMIT: 150})
        nvml.sleep(3.0)
        assert nvml.get("ran_mhz") < 1300

    def test_without_load_the_usual_time_is_waited(
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

    def test_a_lost_gpu_is_lost(self, nvml: FakeNvml, knobs: FollowedKnobs) -> None:
        nvml.set("lost", 1.0)
        with pytest.raises(DeviceLost):
            knobs.apply({CLOCK: 1005})

    def test_a_window_at_another_clock_than_the_locked_is_void(
        self,
        nvml: FakeNvml,
        opened: Opener,
        sampled: Sampled,
    ) -> None:
        side = opened()
        meter = side.meter
        assert isinstance(meter, GpuMeter)
        meter.lock.mhz = 1005
        started = meter.start()
        sampled.sleep(1.0)
        with pytest.raises(MeasurementError, match="1410 MHz under load, not at 1005"):
            started.stop()
        discover()[0].write(CLOCK, 1005)
        sampled.sleep(3.0)
        assert window(side, sampled, 1.0).totals

    def test_released_it_is_the_drivers_again(
        self, nvml: FakeNvml, knobs: FollowedKnobs, lock: ClockLock
    ) -> None:
        knobs.apply({CLOCK: 1005})
        assert lock.mhz == 1005
        knobs.release()
        assert lock.mhz is None
        knobs.hold({CLOCK: 1410, LIMIT: 250}, "s", 1, 60.0)
        assert lock.mhz is None
        assert knobs.read() == {CLOCK: 1410, LIMIT: 250}
