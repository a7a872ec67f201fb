from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agents.target.measured import WORKLOAD
from agents.target.target import Target, speed_change
from agents.target.window import TargetWindow, Usage
from tests.builders import START, Time
from tests.errors import raised
from tests.fakes import BATCH, CLOCK, FakeActuator, FakeMeter, Rig, Shows, refused, side_of, steady
from tuner.core import (
    ActuationError,
    ConfigError,
    DeviceLost,
    Estimate,
    Knob,
    Metric,
    OutOfRange,
    Part,
    Setting,
    Space,
    UnknownKnob,
    Value,
)

SLOW: Setting = {"gpu.clock_mhz": 400, "batch_size": 4}
FAST: Setting = {"gpu.clock_mhz": 1000, "batch_size": 2}


def test_towards_a_slower_device_the_workload_goes_first(rig: Rig) -> None:
    rig.target.apply(SLOW)
    assert [side for side, _ in rig.log] == ["workload", "device"]
    assert rig.setting == SLOW


def test_towards_a_faster_device_the_device_goes_first(rig: Rig) -> None:
    rig.device.now["gpu.clock_mhz"] = 400
    rig.target.apply(FAST)
    assert [side for side, _ in rig.log] == ["device", "workload"]
    assert rig.setting == FAST


def test_mixed_moves_are_weighed_by_their_share_of_the_list() -> None:
    limit = Knob("gpu.power_limit_w", (100, 200), 200)
    clock = Knob("gpu.clock_mhz", tuple(range(100)), 99)
    mode = Knob("gpu.mode", ("eco", "sport"), "sport")
    space = Space((clock, limit, mode, Knob("batch_size", (1, 32), 1, Part.WORKLOAD)))
    before: Setting = {
        "gpu.clock_mhz": 50,
        "gpu.power_limit_w": 200,
        "gpu.mode": "sport",
        "batch_size": 1,
    }
    after: Setting = {
        "gpu.clock_mhz": 60,
        "gpu.power_limit_w": 100,
        "gpu.mode": "eco",
        "batch_size": 32,
    }
    assert speed_change(space, before, after) == pytest.approx(10 / 99 - 1.0)


def test_a_value_found_outside_the_list_counts_as_the_default() -> None:
    space = Space((Knob("gpu.clock_mhz", (400, 600, 1000), 1000),))
    assert speed_change(space, {"gpu.clock_mhz": 735}, {"gpu.clock_mhz": 600}) < 0.0


@pytest.mark.parametrize("half_done", [False, True])
def test_a_failure_restores_the_former_setting(rig: Rig, half_done: bool) -> None:
    before = rig.setting
    rig.device.half_done = half_done
    rig.device.refuse = lambda s: refused() if s["gpu.clock_mhz"] == 400 else None
    with raised(ActuationError, "driver"):
        rig.target.apply(SLOW)
    assert rig.setting == before


def test_an_irreversible_step_is_reported(rig: Rig) -> None:
    rig.device.refuse = lambda s: refused("stuck")
    rig.work.refuse = lambda s: refused("wedged") if s["batch_size"] == 1 else None
    with raised(ActuationError, "stuck", "wedged"):
        rig.target.apply(SLOW)


def test_a_device_that_was_lost_stays_lost(rig: Rig) -> None:
    rig.device.refuse = lambda s: DeviceLost("fell off the bus")
    with raised(DeviceLost, "bus"):
        rig.target.apply(SLOW)


def test_reading_back_something_else_is_a_failure(rig: Rig) -> None:
    rig.device.lies = {"gpu.clock_mhz": 800}
    with raised(ActuationError, "is 800", "not 400"):
        rig.target.apply(SLOW)


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        ({"gpu.clock_mhz": 400, "batch_size": 3}, OutOfRange),
        ({"gpu.clock_mhz": 400}, UnknownKnob),
        ({"gpu.clock_mhz": 400, "batch_size": 1, "fan": 1}, UnknownKnob),
    ],
)
def test_a_setting_outside_the_space_changes_nothing(
    rig: Rig, setting: Setting, error: type[Exception]
) -> None:
    with pytest.raises(error):
        rig.target.apply(setting)
    assert rig.log == []


def test_restoring_goes_on_after_a_failure(rig: Rig) -> None:
    rig.device.refuse = lambda s: refused("stuck")
    failures = rig.target.restore({"fake": {"gpu.clock_mhz": 400}, WORKLOAD: {"batch_size": 4}})
    assert len(failures) == 1 and "stuck" in failures[0]
    assert rig.work.now == {"batch_size": 4}


def test_restoring_a_missing_side_is_reported(tmp_path: Path) -> None:
    rig = Rig(tmp_path, workload=False)
    failures = rig.target.restore({WORKLOAD: {"batch_size": 4}, "fake": {"gpu.clock_mhz": 400}})
    assert len(failures) == 1 and "no longer attached" in failures[0]
    assert rig.device.now["gpu.clock_mhz"] == 400


def test_the_pair_is_described_as_one_device(rig: Rig) -> None:
    device = rig.target.describe("fake@host", "agent@host", {"jouletune": "1"}, START)
    assert [k.name for k in device.space.knobs] == ["gpu.clock_mhz", "batch_size"]
    assert (device.driver, device.workload, device.workload_version) == (
        "driver 1",
        "served",
        "model 1",
    )
    assert {m.name for m in device.metrics} >= {"energy_j", "cpu_time_ms"}
    assert device.cannot == {"fan_rpm": "it has no fan"}


def test_combinations_are_those_allowed_on_both_sides(rig: Rig) -> None:
    only = ({"gpu.clock_mhz": 400}, {"gpu.clock_mhz": 1000})
    target = rig.target
    narrow = Target(
        (replace(target.devices[0], space=Space(rig.device_space.knobs, only)),), target.workload
    )
    assert narrow.space.size == 2 * 3
    with pytest.raises(OutOfRange):
        narrow.space.check({"gpu.clock_mhz": 600, "batch_size": 1})


def test_a_target_with_two_clocks_is_refused(rig: Rig) -> None:
    target = rig.target
    with pytest.raises(ConfigError, match="simulated time"):
        Target((replace(target.devices[0], clock=Time()),), target.workload)


def test_a_metric_of_both_sides_is_the_workloads(rig: Rig) -> None:
    target = rig.target
    assert target.workload is not None
    both = Target(target.devices, replace(target.workload, metrics=(Metric("latency_p99_ms"),)))
    assert both.source("latency_p99_ms") == "our load generator"
    assert both.source("energy_j") == "the meter of fake"
    assert both.source("arrival_rate_per_s") == "our load generator"


class TestSeveralDevices:
    """A GPU, the host's CPU and a batch size, set together."""

    KNOBS = (CLOCK, Knob("cpu.max_mhz", (1000, 2000, 3000), 3000), BATCH)

    def actuators(self, log: list[tuple[str, dict[str, Value]]]) -> list[FakeActuator]:
        labels = ("gpu", "cpu", "workload")
        return [
            FakeActuator(label, Space((knob,)), log)
            for label, knob in zip(labels, self.KNOBS, strict=True)
        ]

    def target(self, *actuators: FakeActuator, metrics: tuple[str, ...] = ("energy_j",)) -> Target:
        sides = [
            side_of(one.label, one, one.space, FakeMeter(Time(), steady()), *metrics)
            for one in actuators
        ]
        served = FakeMeter(Time(), lambda began, now: {"items": 50.0 * (now - began)})
        return Target(tuple(sides[:2]), replace(sides[2], metrics=(), meter=served))

    @pytest.mark.parametrize(
        ("before", "after", "order"),
        [
            ((1000, 3000, 4), (400, 1000, 1), ["workload", "gpu", "cpu"]),
            ((400, 1000, 1), (1000, 3000, 4), ["gpu", "cpu", "workload"]),
            ((1000, 1000, 1), (400, 3000, 4), ["cpu", "workload", "gpu"]),
        ],
        ids=["slower", "faster", "mixed"],
    )
    def test_rising_knobs_are_set_first_and_falling_ones_last(
        self, before: tuple[int, ...], after: tuple[int, ...], order: list[str]
    ) -> None:
        log: list[tuple[str, dict[str, Value]]] = []
        actuators = self.actuators(log)
        for actuator, knob, value in zip(actuators, self.KNOBS, before, strict=True):
            actuator.now = {knob.name: value}
        target = self.target(*actuators)
        changed = {knob.name: value for knob, value in zip(self.KNOBS, after, strict=True)}
        target.apply(changed)
        assert [label for label, _ in log] == order
        assert target.read() == changed

    @pytest.mark.promise(
        "one of several devices of a target is refused",
        "the others are undone; restoring never stops at one failure",
    )
    @pytest.mark.parametrize("stuck", [0, 1, 2])
    def test_a_side_that_is_refused_undoes_all_others(self, stuck: int) -> None:
        actuators = self.actuators([])
        target = self.target(*actuators)
        before = target.read()
        actuators[stuck].refuse = lambda s: refused("stuck") if s != part else None
        part = dict(actuators[stuck].now)
        with raised(ActuationError, "stuck"):
            target.apply({"gpu.clock_mhz": 400, "cpu.max_mhz": 1000, "batch_size": 4})
        assert target.read() == before

    @pytest.mark.promise("one of several devices of a target is refused")
    @pytest.mark.parametrize("stuck", [0, 1, 2])
    def test_putting_back_never_stops_at_a_side(self, stuck: int) -> None:
        actuators = self.actuators([])
        target = self.target(*actuators)
        settings = target.read_sides()
        target.apply({"gpu.clock_mhz": 400, "cpu.max_mhz": 1000, "batch_size": 4})
        actuators[stuck].refuse = lambda s: refused("stuck")
        failures = target.restore_originals(settings)
        assert len(failures) == 1 and actuators[stuck].label in failures[0]
        assert sum(a.now == settings[a.label] for a in actuators) == 2

    def test_a_target_is_one_device_for_the_tuner(self) -> None:
        device = self.target(*self.actuators([])).describe("id", "agent@host", {}, START)
        assert (device.kind, device.board, device.driver) == ("gpu+cpu", "GPU + CPU", "1 + 1")
        assert [knob.name for knob in device.space.knobs] == [knob.name for knob in self.KNOBS]

    def test_the_energy_of_all_devices_adds_up_and_its_source_names_them(self) -> None:
        target = self.target(*self.actuators([]))
        window = self.window(target)
        # Each of the two draws 100 W, at 50 items per second.
        assert window.estimates()["energy_j"].mean == pytest.approx(2 * 100.0 / 50.0)
        assert target.source("energy_j") == "the meter of gpu + the meter of cpu"

    def test_a_knob_of_two_sides_is_refused(self) -> None:
        first, _, work = self.actuators([])
        with raised(ConfigError, "gpu.clock_mhz"):
            self.target(first, first, work)

    def window(self, target: Target, *shows: Shows) -> TargetWindow:
        """Return a window of five seconds in which the devices report the given values."""
        time = Time()
        for side, shown in zip(target.sides.values(), shows, strict=False):
            assert isinstance(side.meter, FakeMeter)
            side.meter.shows = shown
        for side in target.sides.values():
            assert isinstance(side.meter, FakeMeter)
            side.meter.time = time
        window = TargetWindow(target, time, Usage(2, lambda: 0.0))
        for _ in range(5):
            time.sleep(1.0)
            window.read()
        return window

    @pytest.mark.parametrize("first", [True, False])
    def test_a_fault_of_one_device_is_not_hidden_by_another_device(self, first: bool) -> None:
        def calm(began: float, now: float) -> Mapping[str, float | Estimate]:
            return {"foreign_s": 0.0, "throttled_power_s": 0.0}

        def busy(began: float, now: float) -> Mapping[str, float | Estimate]:
            return {"foreign_s": now - began, "throttled_power_s": now - began}

        shows = (busy, calm) if first else (calm, busy)
        window = self.window(self.target(*self.actuators([])), *shows)
        assert window.throttled() == ("power",) and window.foreign() == 1.0

    @pytest.mark.parametrize("silent", [{}, {"energy_j": 0.0}], ids=["silent", "standing still"])
    def test_without_one_meters_reading_there_is_no_sum(self, silent: dict[str, float]) -> None:
        window = self.window(
            self.target(*self.actuators([])), steady(watts=50.0), lambda began, now: silent
        )
        assert "energy_j" not in window.estimates()

    def test_a_sum_is_reported_for_readings_that_all_meters_have(self) -> None:
        def falls_silent(began: float, now: float) -> Mapping[str, float | Estimate]:
            return steady(watts=50.0)(began, now) if now - began < 4.5 else {}

        window = self.window(self.target(*self.actuators([])), steady(watts=100.0), falls_silent)
        assert window.estimates()["energy_j"].mean == pytest.approx(150.0 / 50.0)

    def test_the_workloads_own_energy_counts_for_all(self) -> None:
        shows = (steady(watts=100.0), steady(watts=100.0), steady(watts=70.0))
        window = self.window(self.target(*self.actuators([])), *shows)
        assert window.estimates()["energy_j"].mean == pytest.approx(70.0 / 50.0)

    def test_devices_without_a_meter_are_named_beside_the_sum(self) -> None:
        target = self.target(*self.actuators([]))
        gpu, cpu = target.devices
        half = Target((gpu, replace(cpu, metrics=())), target.workload)
        assert half.source("energy_j") == "the meter of gpu, without cpu: no meter"
