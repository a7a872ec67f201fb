from __future__ import annotations

import errno
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from agents.holding.hold import Hold
from agents.holding.holder import Holder
from agents.holding.plan_runner import (
    AWAITED_TICK_S,
    POLLED_TICK_S,
    QUEUE_FACTOR,
    TICK_S,
    PlanRunner,
)
from agents.load.generator import REQUESTS
from agents.target.side import Accepted, SignalSample, WorkloadChanged
from tests.builders import Time
from tests.errors import raised
from tests.fakes import FakeActuator, Rig, failing, refused
from tests.unit.agents.holding.orders import BUSY, DEVICE, HELD, holder, order
from tuner.core import (
    ActuationError,
    Cost,
    DeviceLost,
    Knob,
    Part,
    Plan,
    Row,
    Setting,
    Signal,
    Space,
)

PLAN = Plan((Row(8.0, HELD), Row(math.inf, BUSY)), REQUESTS.name, 0.1)


class Requests:
    """A workload's requests; the workload may have ended."""

    signal = REQUESTS

    def __init__(self) -> None:
        self.depth = 0.0
        self.incarnation = "first"
        self.gone: ActuationError | None = None
        self.in_flight_s = 0.0
        self.awaited: list[float] = []

    def read(self) -> SignalSample:
        return SignalSample(None, self.in_flight_s, self.started())

    def started(self) -> str:
        if self.gone is not None:
            raise self.gone
        return self.incarnation

    def pass_s(self, seconds: float) -> None:
        self.in_flight_s += self.depth * seconds


class AwaitedRequests(Requests):
    """Requests with a wait: for some time, or until their number reaches a threshold."""

    def __init__(self, time: Time) -> None:
        super().__init__()
        self.time = time

    def wait_above(self, value: float, seconds: float) -> SignalSample:
        self.awaited.append(value)
        if self.depth < value:
            self.time.sleep(seconds)
            self.pass_s(seconds)
        return replace(self.read(), present=float(int(self.depth)))


class Scene:
    """A held workload on the rig's time; `work.depth` is the number of its requests."""

    def __init__(self, folder: Path, cost_s: float = 5.0, *, waits: bool = False) -> None:
        self.rig = Rig(folder)
        self.work = AwaitedRequests(self.rig.time) if waits else Requests()
        self.rig.signals = (self.work,)
        self.rig.incarnation = self.work.started
        slow = Knob("batch_size", (1, 2, 4), 1, Part.WORKLOAD, Cost(seconds=cost_s))
        self.rig.workload_space = Space((slow,))
        self.holder: Holder = holder(self.rig)
        self.runner = PlanRunner(DEVICE, self.rig.target, self.holder, self.rig.time)

    def pass_s(self, seconds: float, step_s: float = 1.0) -> None:
        for _ in range(round(seconds / step_s)):
            self.rig.time.sleep(step_s)
            self.work.pass_s(step_s)
            self.runner.tick()

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
    scene.work.depth = 2.0
    scene.until_held(HELD)
    scene.work.depth = 32.0
    scene.until_held(BUSY)
    again = holder(scene.rig)
    assert again.current is not None and again.current.row == 1
    scene.pass_s(20)
    assert scene.runner.context == {REQUESTS.name: pytest.approx(32.0, rel=0.01)}


@pytest.mark.parametrize(("gain", "cost_s"), [(1.0, 5.0), (0.25, 5.0), (1.0, 20.0)])
def test_a_change_waits_until_it_pays(tmp_path: Path, gain: float, cost_s: float) -> None:
    scene = Scene(tmp_path, cost_s)
    plan = Plan((Row(8.0, HELD, gain), Row(math.inf, BUSY, gain)), REQUESTS.name, 0.1)
    scene.holder.take(order(plan=plan))
    scene.work.depth = 2.0
    # The load is known after two looks; the cost of staying counts from the first of them.
    assert scene.until_held(HELD) == 2 + cost_s / gain


def test_a_row_without_a_gain_is_not_worth_a_change(scene: Scene) -> None:
    plan = Plan((Row(8.0, HELD, 0.0), Row(math.inf, BUSY)), REQUESTS.name, 0.1)
    scene.holder.take(order(plan=plan))
    scene.work.depth = 2.0
    scene.pass_s(100)
    assert scene.rig.setting == BUSY


def slow(scene: Scene, seconds: float) -> None:
    """Set the duration of each change of the workload."""

    def applied(setting: object) -> None:
        scene.rig.time.sleep(seconds)

    scene.rig.work.refuse = applied


@pytest.mark.parametrize("took_s", [1.0, 12.0])
def test_the_cost_of_a_change_is_its_last_duration(scene: Scene, took_s: float) -> None:
    scene.holder.take(order(plan=PLAN))
    slow(scene, took_s)
    scene.work.depth = 2.0
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
    scene.work.depth = 2.0
    scene.until_held(HELD)
    scene.pass_s(20, 0.2)
    scene.work.depth = 8.0 * (
        QUEUE_FACTOR - 0.5
    )  # So far a burst: the runner moves towards the smoothed demand.
    scene.pass_s(0.6, 0.2)
    assert scene.rig.setting == HELD
    scene.work.depth = 8.0 * 10.0
    # At ten times the row's load ten times as many requests lose time: 5 s pay after 0.5 s.
    assert scene.until_held(BUSY, 0.1) == pytest.approx(5.0 / 10.0, abs=0.1)
    scene.work.depth = 0.0
    scene.pass_s(5, 0.2)
    assert scene.rig.setting == BUSY, "what was gone up to is not left before a majority says so"
    scene.until_held(HELD, 0.2)


@pytest.mark.parametrize(("waits", "tick_s"), [(False, POLLED_TICK_S), (True, AWAITED_TICK_S)])
def test_the_load_is_read_often_only_if_a_plan_follows_it(
    tmp_path: Path, waits: bool, tick_s: float
) -> None:
    scene = Scene(tmp_path, waits=waits)
    assert scene.runner.tick_s == TICK_S
    scene.holder.take(order(plan=Plan.single(HELD)))
    assert scene.runner.tick_s == TICK_S
    scene.holder.take(order(revision=2, plan=PLAN))
    assert scene.runner.tick_s == TICK_S, "nothing is more than the last row"
    scene.work.depth = 2.0
    scene.until_held(HELD)
    assert scene.runner.tick_s == tick_s
    with scene.holder.set_aside():
        assert scene.runner.tick_s == TICK_S, "a measurement is disturbed"
    scene.work.gone = DeviceLost("it does not answer")
    scene.runner.tick()
    assert scene.runner.tick_s == TICK_S, "one that is gone is asked at once again"
    scene.work.gone = None
    scene.runner.tick()
    assert scene.runner.tick_s == tick_s


def test_a_capable_workload_reports_its_crowd_itself(tmp_path: Path) -> None:
    scene = Scene(tmp_path, waits=True)
    scene.holder.take(order(plan=PLAN))
    scene.work.depth = 2.0
    scene.until_held(HELD)
    awaited = scene.work.awaited
    assert awaited == []
    before = scene.rig.time.monotonic()
    for _ in range(10):
        scene.runner.tick()
    assert scene.rig.time.monotonic() == before + 10 * TICK_S
    assert set(awaited) == {8 * QUEUE_FACTOR}
    scene.work.depth = 8.0 * 100.0
    # At a hundred times the row's load a change of 5 s pays after a twentieth of a second.
    assert scene.until_held(BUSY, AWAITED_TICK_S) == AWAITED_TICK_S
    assert scene.runner.context == {REQUESTS.name: 800.0}


def test_a_change_that_fails_holds_the_former_row_and_is_tried_again(scene: Scene) -> None:
    scene.holder.take(order(plan=PLAN))
    scene.work.depth = 2.0
    scene.rig.work.refuse = lambda s: refused("the new set was killed")
    scene.pass_s(20)
    assert scene.rig.setting == BUSY
    hold = scene.holder.current
    assert hold is not None and hold.row == 1 and hold == holder(scene.rig).current
    scene.rig.work.refuse = lambda s: None
    scene.until_held(HELD)


@pytest.mark.promise(
    "the workload dies, or starts later than its agent",
    "the held setting is applied once it answers; a running trial is FAILED",
)
def test_a_workload_that_was_started_again_gets_the_plan_in_force(scene: Scene) -> None:
    scene.holder.take(order(plan=PLAN))
    scene.work.depth = 2.0
    scene.until_held(HELD)
    scene.work.gone = DeviceLost("it does not answer")
    scene.pass_s(30)
    scene.work.gone, scene.work.incarnation = None, "second"
    scene.rig.work.now["batch_size"] = 1
    scene.rig.work.refuse = lambda s: refused("not yet")
    scene.pass_s(1)
    assert scene.holder.lapsed() == ""
    scene.rig.work.refuse = lambda s: None
    scene.pass_s(1)
    assert scene.rig.setting == HELD


def test_an_unexpected_exception_of_a_signal_costs_no_hold_and_one_line(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.holder.take(order(plan=PLAN))

    def broken() -> str:
        raise ZeroDivisionError("no price today")

    scene.work.started, usual = broken, scene.work.started  # type: ignore[method-assign]
    scene.pass_s(10)
    assert scene.rig.setting == BUSY
    messages = [r.message for r in caplog.records if "event=not_followed" in r.message]
    assert len(messages) == 1 and "ZeroDivisionError: no price today" in messages[0]
    scene.work.started = usual  # type: ignore[method-assign]
    scene.work.depth = 2.0
    scene.until_held(HELD)


@pytest.mark.parametrize("below", [-5.0, 0.0])
def test_a_signal_at_or_below_zero_has_no_queue(tmp_path: Path, below: float) -> None:
    scene = Scene(tmp_path, waits=True)
    plan = Plan((Row(below, HELD), Row(math.inf, BUSY)), REQUESTS.name, 0.1)
    scene.holder.take(order(plan=plan))
    hold = scene.holder.current
    assert hold is not None and scene.holder.follow(hold, 0)
    scene.runner.tick()
    assert scene.work.awaited == []
    assert scene.runner.tick_s == TICK_S


def test_a_restart_as_another_version_ends_the_hold(scene: Scene) -> None:
    scene.holder.take(order(plan=PLAN))
    scene.pass_s(2)
    scene.work.gone = WorkloadChanged("the workload changed from 1 to 2")
    scene.pass_s(1)
    assert scene.holder.lapsed() == "the workload changed from 1 to 2"
    scene.holder.end(scene.holder.lapsed())
    scene.work.gone = None  # attached again
    scene.holder.take(order(revision=2, plan=PLAN))
    assert scene.holder.lapsed() == ""


def test_the_runner_leaves_a_trial_alone(scene: Scene) -> None:
    scene.holder.take(order(plan=PLAN))
    scene.work.depth = 2.0
    tried = {"gpu.clock_mhz": 400, "batch_size": 1}
    with scene.holder.set_aside(lend=True):
        scene.rig.target.apply(tried)
        scene.work.incarnation = "second"
        scene.work.depth = 500.0
        scene.pass_s(30)
        assert scene.rig.setting == tried
    scene.work.depth = 2.0
    scene.pass_s(2)
    assert scene.runner.context == {REQUESTS.name: pytest.approx(2.0)}
    scene.until_held(HELD)


def test_a_workload_started_again_in_a_window_gets_the_hold_at_once(scene: Scene) -> None:
    """A window may wait long for a quiet machine; the held setting must not wait for it."""
    scene.holder.take(order(plan=PLAN))
    scene.pass_s(2)
    with scene.holder.set_aside():
        scene.work.incarnation = "second"
        scene.rig.work.now["batch_size"] = 1
        scene.pass_s(1)
        assert scene.rig.setting == BUSY


def test_without_a_hold_the_load_is_looked_at_and_nothing_is_set(scene: Scene) -> None:
    scene.work.depth = 2.0
    scene.pass_s(20)
    assert scene.runner.context == {REQUESTS.name: pytest.approx(2.0)}


def test_signals_that_no_plan_follows_are_read_twice_a_second_at_most(tmp_path: Path) -> None:
    scene = Scene(tmp_path, waits=True)
    scene.holder.take(order(plan=RATES))
    reads: list[float] = []
    plain = scene.work.read

    def read() -> SignalSample:
        reads.append(scene.rig.time.monotonic())
        return plain()

    scene.work.read = read  # type: ignore[method-assign]
    scene.pass_s(10.0, AWAITED_TICK_S)
    assert 15 <= len(reads) <= 20


RATES = Plan((Row(100.0, HELD), Row(math.inf, BUSY)), "arrival_rate_per_s", 0.1)
"""A plan by a load that no signal of the scene reports, only its windows."""


def test_a_plan_by_a_measured_quantity_is_followed_with_hysteresis(scene: Scene) -> None:
    scene.holder.take(order(plan=RATES))
    scene.work.depth = 2.0
    scene.pass_s(20)
    assert scene.rig.setting == BUSY, "the requests under way are not its business"
    path = [(95.0, BUSY), (85.0, HELD), (105.0, HELD), (115.0, BUSY), (95.0, BUSY), (80.0, HELD)]
    for rate, expected in path:
        scene.runner.observed({"arrival_rate_per_s": rate})
        assert scene.rig.setting == expected, rate
    again = holder(scene.rig)
    again.enforce()
    assert scene.rig.setting == HELD


def test_a_row_that_cannot_be_applied_after_a_window_is_an_error(scene: Scene) -> None:
    scene.holder.take(order(plan=RATES))
    scene.rig.device.refuse = lambda s: refused("stuck")
    with raised(ActuationError, "stuck"):
        scene.runner.observed({"arrival_rate_per_s": 20.0})
    assert current(scene).row == 1


def test_a_full_disk_does_not_stop_a_plan(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.holder.take(order(plan=RATES))
    monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
    scene.runner.observed({"arrival_rate_per_s": 85.0})
    assert scene.rig.setting == HELD


class GoesByPlans(FakeActuator):
    """A workload that follows a plan of its knobs by itself; it has `depth` requests."""

    plan: Plan | None = None
    depth = 0.0

    def apply(self, setting: Setting) -> None:
        self.plan = None
        super().apply(setting)

    def follow(self, plan: Plan) -> bool:
        if plan.by == REQUESTS.name:
            self.plan = plan
        return self.plan is not None

    def followed(self) -> Plan | None:
        return self.plan

    def look(self, reference: Accepted) -> Accepted:
        return {3: (1500.0, 1000.0), **reference}

    def read(self) -> Setting:
        if self.plan is not None:
            self.now.update(self.plan.rows[self.plan.row({REQUESTS.name: self.depth})].setting)
        return super().read()


class Handed(Scene):
    """A scene whose workload follows plans by itself."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.own = GoesByPlans("workload", self.rig.workload_space, self.rig.log)
        self.rig.work, self.rig.incarnation = self.own, None
        self.holder = holder(self.rig)
        self.runner = PlanRunner(DEVICE, self.rig.target, self.holder, self.rig.time)


SAME_CLOCK = Plan((Row(8.0, {**HELD, "batch_size": 1}), Row(math.inf, HELD)), REQUESTS.name, 0.1)
"""Rows that differ only in the workload's knob."""


def test_a_workload_that_follows_plans_gets_the_plan_and_is_asked_for_its_setting(
    tmp_path: Path,
) -> None:
    scene = Handed(tmp_path)
    scene.holder.take(order(plan=SAME_CLOCK))
    assert scene.own.plan is not None
    assert [row.setting for row in scene.own.plan.rows] == [{"batch_size": 1}, {"batch_size": 2}]
    scene.pass_s(1)
    assert current(scene).row == 0
    scene.own.depth = 30.0
    applied = list(scene.rig.log)
    scene.pass_s(1)
    assert current(scene).row == 1 and scene.rig.setting == HELD
    assert scene.rig.log == applied, "the workload changed its row, not the agent"


def test_a_workload_that_is_handed_a_plan_is_not_set_to_a_row_of_it_before(tmp_path: Path) -> None:
    """A change may cost a restart of the workload, and the plan another."""
    scene = Handed(tmp_path)
    scene.holder.take(order(plan=SAME_CLOCK))
    scene.holder.enforce()
    assert not [what for what in scene.rig.log if "workload" in str(what)], scene.rig.log


def test_a_plan_that_the_workload_lost_is_handed_to_it_again(tmp_path: Path) -> None:
    scene = Handed(tmp_path)
    scene.holder.take(order(plan=SAME_CLOCK))
    scene.own.plan = None
    scene.pass_s(1)
    assert scene.own.plan is not None


def test_the_acceptance_that_is_compared_with_outlives_the_agent(tmp_path: Path) -> None:
    scene = Handed(tmp_path)
    scene.holder.take(order(plan=SAME_CLOCK))
    scene.pass_s(1)
    kept = {3: (1500.0, 1000.0)}
    assert current(scene).accepted == kept
    again = holder(scene.rig)
    assert again.current is not None and again.current.accepted == kept
    scene.rig.time.sleep(0.5 * order().valid_for_s)
    again.take(order(plan=SAME_CLOCK))
    assert again.current.accepted == kept, "a renewed hold has it still"


def test_restoring_ends_the_plan_that_the_workload_follows(tmp_path: Path) -> None:
    scene = Handed(tmp_path)
    before = scene.rig.setting
    scene.holder.take(order(plan=SAME_CLOCK))
    scene.holder.end("it is over")
    assert scene.own.plan is None and scene.rig.setting == before


def test_rows_that_differ_beside_the_workload_are_changed_by_the_agent(tmp_path: Path) -> None:
    scene = Handed(tmp_path)
    scene.holder.take(order(plan=PLAN))
    assert scene.own.plan is None
    scene.work.depth = 2.0
    scene.until_held(HELD)


def test_an_eager_plan_changes_upward_at_any_cost(tmp_path: Path) -> None:
    waited = []
    for eager in (False, True):
        scene = Scene(tmp_path / str(eager), cost_s=20.0)
        scene.holder.take(order(plan=replace(PLAN, eager=eager)))
        slow(scene, 12.0)
        scene.work.depth = 2.0
        scene.until_held(HELD)
        scene.work.depth = 12.0
        waited.append(scene.until_held(BUSY))
    assert waited[1] + 5.0 < waited[0]


def test_a_signal_that_cannot_be_read_ends_no_hold(scene: Scene) -> None:
    scene.holder.take(order(plan=Plan.single(HELD)))
    scene.work.gone = DeviceLost("it is away")
    scene.pass_s(3)
    assert scene.runner.context == {} and scene.holder.current is not None


class Waiting(Requests):
    """A second signal of the workload."""

    signal = Signal("waiting")


class TwoSignals(Scene):
    """A scene whose workload has a second signal."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.waiting = Waiting()
        self.rig.signals = (self.work, self.waiting)
        self.holder = holder(self.rig)
        self.runner = PlanRunner(DEVICE, self.rig.target, self.holder, self.rig.time)

    def pass_s(self, seconds: float, step_s: float = 1.0) -> None:
        for _ in range(round(seconds / step_s)):
            self.waiting.pass_s(step_s)
            super().pass_s(step_s, step_s)


def test_two_requests_within_a_tick_are_not_a_queue_of_a_plan_by_rate(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene.work, "signal", Signal("requests_in_system", "1/s"))
    rows = (Row(0.5, HELD, at=0.4), Row(math.inf, BUSY))
    scene.holder.take(order(plan=Plan(rows, "requests_in_system", eager=True)))
    scene.until_held(HELD)
    assert scene.runner.tick_s == TICK_S
    for _ in range(30):  # two together every ten seconds
        scene.pass_s(9.8, 0.2)
        scene.work.in_flight_s += 2.0
        scene.pass_s(0.2, 0.2)
        assert scene.rig.setting == HELD


def test_a_lower_row_waits_until_the_queue_of_a_spike_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = TwoSignals(tmp_path)
    monkeypatch.setattr(scene.work, "signal", Signal("arrival_rate_per_s", "1/s"))
    monkeypatch.setattr(scene.waiting, "signal", Signal("requests_in_system"))
    rows = (Row(4.0, HELD, at=3.9), Row(math.inf, BUSY))
    scene.holder.take(order(plan=Plan(rows, "arrival_rate_per_s", eager=True)))
    for rate, inside, seconds, setting in (
        (2.0, 4.0, 120, HELD), (12.0, 60.0, 30, BUSY), (2.0, 40.0, 60, BUSY), (2.0, 4.0, 30, HELD),
    ):  # fmt: skip
        scene.work.depth, scene.waiting.depth = rate, inside
        scene.pass_s(seconds)
        assert scene.rig.setting == setting, f"at {rate} requests/s and {inside} in the service"
    assert scene.runner.context["arrival_rate_per_s"] > 2.1, "the rate of a minute is reported"


def queued(folder: Path, monkeypatch: pytest.MonkeyPatch, *, eager: bool = True) -> TwoSignals:
    """Return a scene that holds the lower row of a plan by the rate, and reads the waiting requests."""
    scene = TwoSignals(folder)
    monkeypatch.setattr(scene.work, "signal", Signal("arrival_rate_per_s", "1/s"))
    monkeypatch.setattr(scene.waiting, "signal", Signal("waiting"))
    rows = (Row(4.0, HELD, at=3.9), Row(math.inf, BUSY))
    scene.holder.take(order(plan=Plan(rows, "arrival_rate_per_s", eager=eager)))
    scene.work.depth = 2.0
    scene.pass_s(60)
    assert scene.rig.setting == HELD
    return scene


def test_while_requests_wait_an_eager_plan_holds_its_highest_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = queued(tmp_path, monkeypatch)
    scene.waiting.depth = 30.0
    scene.pass_s(2)
    assert scene.rig.setting == BUSY
    scene.pass_s(20)
    assert scene.rig.setting == BUSY
    scene.waiting.depth = 0.0
    scene.pass_s(2)
    assert scene.rig.setting == HELD


def test_a_plan_that_waits_until_a_change_pays_ignores_a_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = queued(tmp_path, monkeypatch, eager=False)
    scene.waiting.depth = 30.0
    scene.pass_s(20)
    assert scene.rig.setting == HELD


def test_a_change_for_a_queue_that_the_device_refuses_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = queued(tmp_path, monkeypatch)
    scene.rig.work.refuse = lambda s: refused("not yet")
    scene.waiting.depth = 30.0
    scene.pass_s(3)
    assert scene.holder.current is not None and scene.holder.current.row == 0
    scene.rig.work.refuse = lambda s: None
    scene.pass_s(2)
    assert scene.rig.setting == BUSY
