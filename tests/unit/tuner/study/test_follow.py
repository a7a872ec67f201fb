"""A study that follows a load: how far its setting is held, and when it is confirmed higher."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from db.sql.store import Store
from policies.polythrottle.policy import Polythrottle
from tests.builders import START, Time, applied, device, setting, study, trial
from tests.stores import memory_store
from tests.unit.tuner.bo.served import BY, LIMIT_MS, PEAK, SPACE, asked, at_baseline, shown
from tuner.core import (
    Exploration,
    Level,
    Past,
    Phase,
    Plan,
    Row,
    Safety,
    Setting,
    Signal,
    Terms,
)
from tuner.study.confirm import CONFIRM_MOST, LOAD_WINDOWS, confirming
from tuner.study.follow import AGAIN, LASTS_S, REACH, Growth, unsupported, up_to_confirmed
from tuner.study.loop import Loop
from tuner.study.moves import Assign, Move
from tuner.wire import HoldOrder, Poll

SLOW: Setting = {"gpu.clock_mhz": 1000}


def plan(below: float = 10.0, slow: Setting | None = None) -> Plan:
    return Plan((Row(below, slow or setting(600)), Row(math.inf, setting())), BY, eager=True)


HELD = study(Phase.HOLDING, plan=plan(), terms=Terms(plan_by=BY))


def confirmed(*loads: float, slow: Setting = SLOW, held: Plan | None = None) -> Assign | Move:
    """Return the last step of confirming a setting while the load goes so."""
    at = replace(asked(), phase=Phase.CONFIRMING, phase_since=4, plan=held or Plan.single(slow))
    before = Phase.CONFIRMING if held else Phase.TUNING
    trials = [*at_baseline(), trial(3, slow, shown(slow, 20.0 if held else 30.0), phase=before)]
    step: Assign | Move = Move(Phase.PAUSED, "nothing was measured")
    for load in loads:
        past = Past(study=at, trials=tuple(trials))
        step = up_to_confirmed(past, confirming(past, past.trials))
        if not isinstance(step, Assign):
            break
        seen = shown(step.setting, load)
        trials.append(trial(len(trials) + 1, step.setting, seen, phase=Phase.CONFIRMING))
    return step


def test_a_setting_is_held_up_to_the_highest_load_of_its_windows() -> None:
    step = confirmed(*[20.0, 30.0, 40.0] * 5)
    assert isinstance(step, Move) and step.plan is not None, step
    held, above = step.plan.rows
    assert held.setting == SLOW and above.setting == SPACE.default and step.plan.eager
    assert held.below == pytest.approx(REACH * PEAK * 40.0)
    assert "better than the baseline, up to arrival_rate_per_s" in step.why


def test_the_load_is_taken_out_of_the_gain() -> None:
    """The baseline meets twice the load of the setting: by joules an item alone it would win."""
    step = confirmed(*[60.0, 30.0] * 8)
    assert isinstance(step, Move) and step.plan is not None, step
    assert step.plan.rows[0].setting == SLOW, step.why


def test_one_window_above_a_limit_loses() -> None:
    slow: Setting = {"gpu.clock_mhz": 500}
    step = confirmed(*[20.0, 20.0, 20.0, 20.0, 39.0, 39.0] * 4, slow=slow)
    assert isinstance(step, Move) and "of its windows were above a limit" in step.why


@pytest.mark.parametrize(("clock", "kept"), [(800, True), (500, False)])
def test_a_setting_that_is_not_confirmed_higher_is_held_as_before(clock: int, kept: bool) -> None:
    """500 MHz breaks a limit within the range, too."""
    slow: Setting = {"gpu.clock_mhz": clock}
    held = plan(33.0, slow)
    held = replace(held, rows=(held.rows[0], Row(math.inf, SPACE.default)))
    step = confirmed(*[39.0] * 30, slow=slow, held=held)
    assert isinstance(step, Move) and (step.plan == held) is kept
    assert ("held as before" in step.why) is kept


def test_the_requested_number_of_windows_of_both_is_measured() -> None:
    past = Past(study=asked(), trials=tuple(at_baseline()))
    assert past.study.terms.plan_by and LOAD_WINDOWS > 2
    assert isinstance(confirmed(*[30.0] * (2 * LOAD_WINDOWS - 1)), Assign)


def test_each_contender_has_all_its_windows() -> None:
    """Two that do not prove the limits take 13 windows each; the third is not cut off by their number."""
    clocks = (900, 1000, 1100)
    tuned = [
        trial(n, {"gpu.clock_mhz": c}, shown({"gpu.clock_mhz": c}, 20.0))
        for n, c in enumerate(clocks, 3)
    ]
    trials = [*at_baseline(20.0), *tuned]
    at = replace(
        asked(),
        phase=Phase.CONFIRMING,
        phase_since=len(trials) + 1,
        plan=Plan.single(tuned[0].setting),
    )
    while isinstance(
        step := confirming(past := Past(study=at, trials=tuple(trials)), past.trials), Assign
    ):
        seen = shown(step.setting, 20.0)
        if step.setting["gpu.clock_mhz"] in clocks[:2]:
            wait = replace(seen.estimates["latency_p99_ms"], high=1.1 * LIMIT_MS)
            seen = replace(seen, estimates={**seen.estimates, "latency_p99_ms": wait})
        trials.append(trial(len(trials) + 1, step.setting, seen, phase=Phase.CONFIRMING))
    assert step.plan == Plan.single(tuned[2].setting), step.why
    assert len(trials) - at.phase_since >= CONFIRM_MOST


def growth(
    load: float, lasted_s: float, held: timedelta = AGAIN, safety: Safety = Safety.BALANCED
) -> str:
    grows, at = Growth(), replace(HELD, terms=Terms(plan_by=BY, safety=safety))
    assert not grows.why(at, {BY: load}, 0.0, held)
    return grows.why(at, {BY: load}, lasted_s, held)


def test_a_higher_load_that_lasts_is_confirmed_and_no_other() -> None:
    assert "at a higher load: arrival_rate_per_s = 12" in growth(12.0, LASTS_S)
    assert not growth(12.0, LASTS_S - 1.0) and not growth(9.0, LASTS_S)
    assert not growth(12.0, LASTS_S, AGAIN / 2), "also not after one that ended without a window"


def test_an_approved_plan_is_not_withdrawn_by_a_higher_load() -> None:
    assert not growth(12.0, LASTS_S, safety=Safety.ADVISE)


def test_an_unconfirmed_plan_is_not_held_as_before() -> None:
    slow: Setting = {"gpu.clock_mhz": 500}
    held = replace(plan(33.0, slow), rows=(plan(33.0, slow).rows[0], Row(math.inf, SPACE.default)))
    at = replace(asked(), phase=Phase.CONFIRMING, phase_since=3, plan=held)
    past = Past(study=at, trials=tuple(at_baseline()))
    lost = Move(Phase.HOLDING, "lost", Plan.single(SPACE.default))
    assert up_to_confirmed(past, lost) == lost


def test_without_a_load_in_its_windows_the_baseline_is_held() -> None:
    at = replace(asked(), phase=Phase.CONFIRMING, phase_since=3, plan=Plan.single(SLOW))
    past = Past(study=at, trials=tuple(at_baseline()))
    step = up_to_confirmed(past, Move(Phase.HOLDING, "won", Plan.single(SLOW)))
    assert isinstance(step, Move) and step.plan == Plan.single(at.baseline)
    assert f"no window reported {BY}" in step.why


def test_a_load_that_fell_in_between_is_counted_from_the_start_again() -> None:
    grows = Growth()
    for load, seconds in ((12.0, 0.0), (8.0, LASTS_S / 2), (12.0, LASTS_S)):
        assert not grows.why(HELD, {BY: load}, seconds, AGAIN)
    assert grows.why(HELD, {BY: 12.0}, 2 * LASTS_S, AGAIN)


@pytest.mark.parametrize("by", ["hour", "rate,waiting", BY])
def test_a_study_of_an_earlier_release_gives_the_next_step(by: str) -> None:
    rows = (Row(5.0, setting(600)), Row(9.0, setting(700)), Row(math.inf, setting()))
    old = replace(HELD, terms=Terms(plan_by=by), plan=Plan(rows, by))
    why = unsupported(old)
    assert "is not supported any more; stop it with `jouletune study stop" in why
    assert not unsupported(HELD)


def holding(
    frozen: str = "", hours: Callable[[datetime], bool] = lambda _: True
) -> tuple[Time, Store, Loop, Poll]:
    """Return a tuner with a hold in force, and a poll above the load that it is held up to."""
    time, store = Time(), memory_store()
    loop = Loop(store, lambda _: Polythrottle(), time.now, hours=hours, monotonic=time.monotonic)
    loop.register(device(signals=(Signal(BY, "1/s"),)))
    held = replace(HELD, exploration=Exploration(frozen=frozen), created_at=START)
    store.studies.add(held, "test", "created")
    poll = Poll(
        agent="host/1",
        applied=replace(applied("sim", Level.HOLD, setting()), study=held.id),
        holding=held.id,
        revision=held.revision,
        context={BY: 12.0},
    )
    return time, store, loop, poll


@pytest.mark.parametrize(
    ("frozen", "spent", "stays"),
    [("", "", False), ("release day", "", True), ("", "10 % of the time", True)],
)
def test_no_plan_is_confirmed_while_no_trial_may_run(
    frozen: str, spent: str, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would leave its hold, and then only wait."""
    monkeypatch.setattr("tuner.study.loop.over_budget", lambda *_: spent)
    time, store, loop, poll = holding(frozen)
    assert isinstance(loop.order("sim", poll), HoldOrder)
    time.sleep(AGAIN.total_seconds())
    order = loop.order("sim", poll)
    assert isinstance(order, HoldOrder) is stays
    assert (store.studies.get(HELD.id).phase is Phase.HOLDING) is stays


def test_a_load_that_fell_outside_the_hours_has_not_lasted() -> None:
    opened = [True]
    time, _, loop, high = holding(hours=lambda _: opened[0])
    low = high.model_copy(update={"context": {BY: 3.0}})
    assert isinstance(loop.order("sim", high), HoldOrder)
    opened[0] = False
    time.sleep(AGAIN.total_seconds())
    loop.order("sim", low)
    opened[0] = True
    assert isinstance(loop.order("sim", high), HoldOrder)
