from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agents.target import Target, speed_change
from tests.builders import START, Time
from tests.fakes import Rig, refused
from tuner.core import (
    ActuationError,
    ConfigError,
    DeviceLost,
    Knob,
    Metric,
    OutOfRange,
    Part,
    Setting,
    Space,
    UnknownKnob,
)

SLOW: Setting = {"gpu.clock_mhz": 400, "batch_size": 4}
FAST: Setting = {"gpu.clock_mhz": 1000, "batch_size": 2}


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


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
    wanted: Setting = {
        "gpu.clock_mhz": 60,
        "gpu.power_limit_w": 100,
        "gpu.mode": "eco",
        "batch_size": 32,
    }
    assert speed_change(space, before, wanted) == pytest.approx(10 / 99 - 1.0)


def test_a_value_found_outside_the_list_counts_as_the_default() -> None:
    space = Space((Knob("gpu.clock_mhz", (400, 600, 1000), 1000),))
    assert speed_change(space, {"gpu.clock_mhz": 735}, {"gpu.clock_mhz": 600}) < 0.0


@pytest.mark.parametrize("half_done", [False, True])
def test_a_failure_undoes_what_was_applied(rig: Rig, half_done: bool) -> None:
    before = rig.setting
    rig.device.half_done = half_done
    rig.device.refuse = lambda s: refused() if s["gpu.clock_mhz"] == 400 else None
    with pytest.raises(ActuationError, match="the driver says no"):
        rig.target.apply(SLOW)
    assert rig.setting == before


def test_what_cannot_be_undone_is_told(rig: Rig) -> None:
    rig.device.refuse = lambda s: refused("stuck")
    rig.work.refuse = lambda s: refused("wedged") if s["batch_size"] == 1 else None
    with pytest.raises(ActuationError, match=r"stuck.*the workload is not back.*wedged"):
        rig.target.apply(SLOW)


def test_a_lost_device_stays_one(rig: Rig) -> None:
    rig.device.refuse = lambda s: DeviceLost("fell off the bus")
    with pytest.raises(DeviceLost, match="fell off the bus"):
        rig.target.apply(SLOW)


def test_reading_back_something_else_is_a_failure(rig: Rig) -> None:
    rig.device.lies = {"gpu.clock_mhz": 800}
    with pytest.raises(ActuationError, match="is 800, not 400"):
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
    failures = rig.target.restore(
        {Part.DEVICE: {"gpu.clock_mhz": 400}, Part.WORKLOAD: {"batch_size": 4}}
    )
    assert len(failures) == 1 and "stuck" in failures[0]
    assert rig.work.now == {"batch_size": 4}


def test_restoring_a_side_that_is_gone_is_told(tmp_path: Path) -> None:
    rig = Rig(tmp_path, workload=False)
    failures = rig.target.restore(
        {Part.WORKLOAD: {"batch_size": 4}, Part.DEVICE: {"gpu.clock_mhz": 400}}
    )
    assert len(failures) == 1 and "not attached" in failures[0]
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
        replace(target.device, space=Space(rig.device_space.knobs, only)), target.workload
    )
    assert narrow.space.size == 2 * 3
    with pytest.raises(OutOfRange):
        narrow.space.check({"gpu.clock_mhz": 600, "batch_size": 1})


def test_two_clocks_do_not_go_together(rig: Rig) -> None:
    target = rig.target
    with pytest.raises(ConfigError, match="simulated time"):
        Target(replace(target.device, clock=Time()), target.workload)


def test_a_metric_of_both_sides_is_the_workloads(rig: Rig) -> None:
    target = rig.target
    assert target.workload is not None
    both = Target(target.device, replace(target.workload, metrics=(Metric("latency_p99_ms"),)))
    assert both.source("latency_p99_ms") == "our load generator"
    assert both.source("energy_j") == "the meter of fake"
    assert both.source("arrival_rate_per_s") == "our load generator"
