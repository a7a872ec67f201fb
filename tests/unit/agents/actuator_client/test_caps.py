"""The caps of a device as its agent sees them: watts, values within a cap, and steps over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from agents.actuator_client.caps import DeviceCaps
from agents.actuator_client.line import ActuatorClient
from tests.builders import Time
from tuner.core import CapKnob, CapSchedule, CapStep, Knob, Role, Space

LIMIT, CLOCK = "gpu.power_limit_w", "gpu.clock_mhz"
SPACE = Space(
    (
        Knob(CLOCK, (600, 900, 1200, 1410), 1410, role=Role.CORE_CLOCK),
        Knob(LIMIT, (150, 200, 250, 300, 333.5), 333.5, role=Role.POWER_LIMIT),
    )
)


@dataclass
class Line:
    """An actuator that keeps the requested steps."""

    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def ask(self, verb: str, **fields: object) -> dict[str, Any]:
        self.asked.append((verb, fields))
        if verb == "leave_budget":
            return {"budget": {"group": ""}}
        return {"budget": {k: fields[k] for k in ("group", "revision", "steps")}}


def about(**more: Any) -> dict[str, Any]:  # noqa: ANN401
    granted: Mapping[str, Any] = {CLOCK: (600, 900, 1200), LIMIT: (150, 200, 250, 300)}
    return {
        "uuid": "GPU-1",
        "granted": granted,
        "ranges": {CLOCK: (300, 600, 900, 1200, 1410), LIMIT: (100, 150, 200, 250, 300, 400)},
        "found": {CLOCK: None, LIMIT: 333.5},
        "floor": {CLOCK: 600, LIMIT: 150},
        **more,
    }


def device(time: Time, **more: Any) -> DeviceCaps:  # noqa: ANN401
    return DeviceCaps(cast("ActuatorClient", Line()), about(**more), SPACE, time)


def schedule(*steps: tuple[float, float, float]) -> CapSchedule:
    return CapSchedule(1, tuple(CapStep(s, w, {LIMIT: w, CLOCK: mhz}) for s, w, mhz in steps))


def test_a_power_limit_is_reported_in_watts_and_a_clock_ceiling_is_not() -> None:
    clock, limit = CapKnob(CLOCK, 600, default=1410.0), CapKnob(LIMIT, 150, 150.0, 400.0, 400.0)
    assert device(Time()).knobs == (clock, limit)
    told = device(Time(), defaults={LIMIT: 300}).knobs[1]
    assert told.default_w == 333.5  # the original is above the driver's default


def test_a_limit_that_is_of_several_packages_counts_for_each() -> None:
    two = device(Time())
    two.multiply(LIMIT, 2)
    assert (two.knobs[1].floor_w, two.knobs[1].default_w) == (300.0, 800.0)
    two.bound(500.0)
    assert [knob.default_w for knob in two.knobs] == [500.0, 800.0]


@pytest.mark.parametrize("floor", [{}, {"fan": 3}])
def test_without_a_floor_a_device_cannot_be_a_member(floor: Mapping[str, float]) -> None:
    caps = device(Time(), floor=floor)
    assert (caps.knobs, caps.at_most(), caps.clipped({LIMIT: 300})) == ((), {}, {LIMIT: 300})


def test_a_setting_is_clipped_to_the_offered_values_within_the_cap() -> None:
    time = Time()
    caps = device(time)
    assert caps.clipped({LIMIT: 333.5, CLOCK: 1410}) == {LIMIT: 333.5, CLOCK: 1410}
    caps.cap("rack", schedule((0.0, 260.0, 1000.0), (10.0, 400.0, 5000.0)))
    assert caps.clipped({LIMIT: 333.5, CLOCK: 1410}) == {LIMIT: 250, CLOCK: 900}
    assert caps.clipped({LIMIT: 200}) == {LIMIT: 200}
    time.sleep(10.0)
    assert caps.resting == {LIMIT: 300, CLOCK: 1200}
    caps.leave()
    assert caps.at_most() == {}


def test_a_cap_below_the_floor_is_the_floor() -> None:
    caps = device(Time())
    caps.cap("rack", schedule((0.0, 20.0, 20.0)))
    assert caps.at_most() == {LIMIT: 150, CLOCK: 600}


def test_a_member_at_its_floor_keeps_the_counted_watts_of_its_steps() -> None:
    time = Time()
    caps = device(time)
    caps.cap("rack", schedule((0.0, 300.0, 1200.0), (10.0, 260.0, 900.0), (20.0, 200.0, 900.0)))
    time.sleep(12.0)
    caps.fall()
    assert caps.at_most() == {LIMIT: 150, CLOCK: 600}
    assert [step.cap_w for step in caps.kept.schedule.steps] == [260.0, 200.0]
    time.sleep(8.0)
    assert (step := caps.step()) is not None
    assert step.cap_w == 200.0
    assert caps.at_most() == {LIMIT: 150, CLOCK: 600}
