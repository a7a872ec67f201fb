from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from agents.hold import Hold
from agents.holds import Holder
from agents.plan_runner import ASKED_TICK_S, CROWDED_TICK_S, QUANTITY, SURGE, TICK_S, Follower
from agents.side import Pulse, WorkloadChanged
from tests.fakes import Rig, refused
from tests.unit.agents.test_holds import BUSY, DEVICE, HELD, holder, order
from tuner.core import ActuationError, Cost, DeviceLost, Knob, Part, Plan, Row, Space

PLAN = Plan((Row(8.0, HELD), Row(math.inf, BUSY)), QUANTITY, 0.1)


class Scene:
    """A held workload on the rig's time, in which `depth` requests are at any moment."""

    def __init__(self, folder: Path, cost_s: float = 5.0, *, tells: bool = False) -> None:
        self.rig = Rig(folder)
        self.depth = 0.0
        self.incarnation = "first"
        self.gone: ActuationError | None = None
        self.told: list[int] = []
        self._in_flight_s = 0.0
        self.rig.pulse = self.pulse
        self.rig.crowded = self.crowded if tells else None
        slow = Knob("batch_size", (1, 2, 4), 1, Part.WORKLOAD, Cost(seconds=cost_s))
        self.rig.workload_space = Space((slow,))
        self.holder: Holder = holder(self.rig)
        self.follower = Follower(DEVICE, self.rig.target, self.holder, self.rig.time)

    def pulse(self) -> Pulse:
        if self.gone is not None:
            raise self.gone
        return Pulse(self.incarnation, 0, self._in_flight_s)

    def crowded(self, inside: int, within_s: float) -> Pulse:
        """Wait, as a workload does that can: for a second, or until the depth is that large."""
        self.told.append(inside)
        if self.depth < inside:
            self.rig.time.sleep(within_s)
            self._in_flight_s += self.depth * within_s
        return replace(self.pulse(), inside=int(self.depth))

    def pass_s(self, seconds: float, step_s: float = 1.0) -> None:
        for _ in range(round(seconds / step_s)):
            self.rig.time.sleep(step_s)
            self._in_flight_s += self.depth * step_s
            self.follower.tick()

    def until_held(self, setting: object, step_s: float = 1.0) -> float:
        for steps in range(round(60 / step_s)):
            if self.rig.setting == setting:
                return steps * step_s
            self.pass_s(step_s, step_s)
        raise AssertionError(f"it is still at {self.rig.setting}")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_plan_follows_the_demand_without_the_tuner(scene: Scene) -> None:
    scene.holder.take(order(plan=PLAN))
    assert scene.rig.setting == BUSY
    scene.depth = 2.0
    scene.until_held(HELD)
    scene.depth = 32.0
    scene.until_held(BUSY)
    again = holder(scene.rig)
    assert again.current is not None and again.current.row == 1
    scene.pass_s(20)
    assert scene.follower.context == {QUANTITY: 32.0}


@pytest.mark.parametrize(("gain", "cost_s"), [(1.0, 5.0), (0.25, 5.0), (1.0, 20.0)])
def test_a_change_waits_until_it_pays(tmp_path: Path, gain: float, cost_s: float) -> None:
    scene = Scene(tmp_path, cost_s)
    plan = Plan((Row(8.0, HELD, gain), Row(math.inf, BUSY, gain)), QUANTITY, 0.1)
    scene.holder.take(order(plan=plan))
    scene.depth = 2.0
    # The load is known after two looks; from the first on that wants the row, staying costs.
    assert scene.until_held(HELD) == 2 + cost_s / gain


def test_a_row_that_gains_nothing_is_not_worth_a_change(scene: Scene) -> None:
    plan = Plan((Row(8.0, HELD, 0.0), Row(math.inf, BUSY)), QUANTITY, 0.1)
    scene.holder.take(order(plan=plan))
    scene.depth = 2.0
    scene.pass_s(100)
    assert scene.rig.setting == BUSY


def slow(scene: Scene, seconds: float) -> None:
    """Let each change of the workload take so long."""

    def applied(setting: object) -> None:
        scene.rig.time.sleep(seconds)

    scene.rig.work.refuse = applied


@pytest.mark.parametrize("took_s", [1.0, 12.0])
def test_a_change_costs_what_it_took_the_last_time(scene: Scene, took_s: float) -> None:
    scene.holder.take(order(plan=PLAN))
    slow(scene, took_s)
    scene.depth = 2.0
    scene.until_held(HELD)
    scene.holder.follow(current(scene), 1)
    scene.pass_s(2)
    assert scene.until_held(HELD) + 1 == pytest.approx(took_s, abs=1.0)


def current(scene: Scene) -> Hold:
    hold = scene.holder.current
    assert hold is not None
    return hold


def test_a_queue_that_builds_up_is_acted_on_as_soon_as_it_is_long(scene: Scene) -> None:
    scene.holder.take(order(plan=PLAN))
    slow(scene, 5.0)
    scene.depth = 2.0
    scene.until_held(HELD)
    scene.pass_s(20, 0.2)
    scene.depth = 8.0 * (SURGE - 0.5)  # A burst, so far: it goes the way of the smoothed demand.
    scene.pass_s(0.6, 0.2)
    assert scene.rig.setting == HELD
    scene.depth = 8.0 * 10.0
    # Each of ten times as many requests loses its time: a cost of 5 s is that of half a second.
    assert scene.until_held(BUSY, 0.1) == pytest.approx(5.0 / 10.0, abs=0.1)
    scene.depth = 0.0
    scene.pass_s(5, 0.2)
    assert scene.rig.setting == BUSY, "what was gone up to is not left before a majority says so"
    scene.until_held(HELD, 0.2)


@pytest.mark.parametrize(("tells", "tick_s"), [(False, ASKED_TICK_S), (True, CROWDED_TICK_S)])
def test_the_load_is_looked_at_often_only_where_a_plan_goes_by_it(
    tmp_path: Path, tells: bool, tick_s: float
) -> None:
    scene = Scene(tmp_path, tells=tells)
    assert scene.follower.tick_s == TICK_S
    scene.holder.take(order(plan=Plan.single(HELD)))
    assert scene.follower.tick_s == TICK_S
    scene.holder.take(order(revision=2, plan=PLAN))
    assert scene.follower.tick_s == TICK_S, "nothing is more than the last row"
    scene.depth = 2.0
    scene.until_held(HELD)
    assert scene.follower.tick_s == tick_s
    with scene.holder.set_aside():
        assert scene.follower.tick_s == TICK_S, "a measurement is disturbed"
    scene.gone = DeviceLost("it does not answer")
    scene.follower.tick()
    assert scene.follower.tick_s == TICK_S, "one that is gone is asked at once again"
    scene.gone = None
    scene.follower.tick()
    assert scene.follower.tick_s == tick_s


def test_a_workload_that_can_tells_of_the_crowd_itself(tmp_path: Path) -> None:
    scene = Scene(tmp_path, tells=True)
    scene.holder.take(order(plan=PLAN))
    scene.depth = 2.0
    scene.until_held(HELD)
    assert scene.told == []
    before = scene.rig.time.monotonic()
    for _ in range(10):
        scene.follower.tick()
    assert scene.rig.time.monotonic() == before + 10 * TICK_S
    assert set(scene.told) == {8 * SURGE}
    scene.depth = 8.0 * 100.0
    # A hundred times what the row is for: 5 s are lost in the first twentieth of a second.
    assert scene.until_held(BUSY, CROWDED_TICK_S) == CROWDED_TICK_S
    assert scene.follower.context == {QUANTITY: 1024.0}


def test_a_change_that_fails_holds_the_former_row_and_is_tried_again(scene: Scene) -> None:
    scene.holder.take(order(plan=PLAN))
    scene.depth = 2.0
    scene.rig.work.refuse = lambda s: refused("the new set was killed")
    scene.pass_s(20)
    assert scene.rig.setting == BUSY
    hold = scene.holder.current
    assert hold is not None and hold.row == 1 and hold == holder(scene.rig).current
    scene.rig.work.refuse = lambda s: None
    scene.until_held(HELD)


def test_a_workload_that_was_started_again_gets_the_plan_in_force(scene: Scene) -> None:
    scene.holder.take(order(plan=PLAN))
    scene.depth = 2.0
    scene.until_held(HELD)
    scene.gone = DeviceLost("it does not answer")
    scene.pass_s(30)
    scene.gone, scene.incarnation = None, "second"
    scene.rig.work.now["batch_size"] = 1
    scene.rig.work.refuse = lambda s: refused("not yet")
    scene.pass_s(1)
    assert scene.holder.lapsed() == ""
    scene.rig.work.refuse = lambda s: None
    scene.pass_s(1)
    assert scene.rig.setting == HELD


def test_one_that_was_started_again_as_another_version_ends_the_hold(scene: Scene) -> None:
    scene.holder.take(order(plan=PLAN))
    scene.pass_s(2)
    scene.gone = WorkloadChanged("the workload changed from 1 to 2")
    scene.pass_s(1)
    assert scene.holder.lapsed() == "the workload changed from 1 to 2"
    scene.holder.end(scene.holder.lapsed())
    scene.gone = None  # attached anew
    scene.holder.take(order(revision=2, plan=PLAN))
    assert scene.holder.lapsed() == ""


def test_a_trial_is_left_alone(scene: Scene) -> None:
    scene.holder.take(order(plan=PLAN))
    scene.depth = 2.0
    tried = {"gpu.clock_mhz": 400, "batch_size": 1}
    with scene.holder.set_aside(lend=True):
        scene.rig.target.apply(tried)
        scene.incarnation = "second"
        scene.depth = 500.0
        scene.pass_s(30)
        assert scene.rig.setting == tried
    scene.depth = 2.0
    scene.pass_s(2)
    assert scene.follower.context == {QUANTITY: 2.0}
    scene.until_held(HELD)


def test_a_workload_started_again_in_a_window_gets_the_hold_at_once(scene: Scene) -> None:
    """A window may wait long for a quiet machine; what is held must not wait for it."""
    scene.holder.take(order(plan=PLAN))
    scene.pass_s(2)
    with scene.holder.set_aside():
        scene.incarnation = "second"
        scene.rig.work.now["batch_size"] = 1
        scene.pass_s(1)
        assert scene.rig.setting == BUSY


def test_a_plan_by_something_else_or_no_hold_is_not_its_business(scene: Scene) -> None:
    scene.depth = 2.0
    scene.pass_s(20)
    assert scene.follower.context == {}
    scene.holder.take(order(plan=Plan((Row(8.0, HELD), Row(math.inf, BUSY)), "arrival_rate_per_s")))
    scene.pass_s(20)
    assert scene.rig.setting == BUSY
