"""The load up to which rows are confirmed if every window has another load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from policies import load_policy
from tests.builders import trial
from tests.unit.tuner.bo.test_load import BY, LIMIT_MS, SPACE, shown, truth
from tests.unit.tuner.bo.test_load import asked as planning
from tuner.core import (
    LOAD_REACH,
    Estimate,
    Limit,
    Measurement,
    Past,
    Phase,
    Plan,
    Row,
    Setting,
    Trial,
    TrialState,
    Try,
    burst_names,
)
from tuner.study.follow import confirming_rows, row_duel, why_grow
from tuner.study.moves import Assign, Move
from tuner.study.reach import Reach, reach_of

SLOW, FAST = {"gpu.clock_mhz": 900}, {"gpu.clock_mhz": 1200}
HOME = SPACE.default
PLAN = Plan(
    (Row(33.0, SLOW, at=31.0), Row(52.0, FAST, at=50.0), Row(math.inf, HOME)), BY, eager=True
)


def windows(*seen: tuple[Setting, float], phase: Phase = Phase.CONFIRMING) -> list[Trial]:
    return [trial(n, at, shown(at, load), phase=phase) for n, (at, load) in enumerate(seen, 1)]


def baselines(*loads: float) -> list[Trial]:
    """Return baseline windows, numbered after all others."""
    made = windows(*((HOME, load) for load in loads), phase=Phase.BASELINE)
    return [replace(t, number=t.number + 900) for t in made]


def confirming(trials: Sequence[Trial], now: float, limit: str = f"<= {LIMIT_MS}") -> Past:
    at = replace(planning(limit=limit), phase=Phase.CONFIRMING, plan=PLAN)
    return Past(study=at, trials=tuple(trials), context={BY: now})


def reach(trials: Sequence[Trial], setting: Setting = SLOW, low: float = 0.0) -> Reach:
    return reach_of(confirming(trials, 30.0), setting, low)


def test_a_setting_reaches_the_highest_load_that_two_windows_keep_the_limits_at() -> None:
    seen = windows((SLOW, 33.0), (SLOW, 28.0), (SLOW, 27.0), (SLOW, 22.0))
    assert reach([*seen, *baselines(25.0, 33.0)]).load == 28.0


def test_a_row_is_held_through_the_bursts_that_two_of_its_windows_had() -> None:
    seen = [*windows((SLOW, 28.0), (SLOW, 27.0), (SLOW, 28.5)), *baselines(28.0, 29.0)]
    bursts = ((9.0, 5.0, 4.0, 0.0), (8.0, 6.0, 4.0, 1.0), (2.0, 2.0, 2.0, 2.0))
    for n, levels in enumerate(bursts):
        measured = seen[n].measurement
        assert measured is not None
        load = {**measured.context, **dict(zip(burst_names(BY), levels, strict=True))}
        seen[n] = replace(seen[n], measurement=replace(measured, context=load))
    step = confirming_rows(confirming(seen, 500.0), seen)
    assert isinstance(step, Move) and step.plan is not None
    assert step.plan.rows[0].bursts == (8.0, 5.0, 4.0, 1.0)
    assert reach(windows((SLOW, 28.0), (SLOW, 27.0))).bursts == ()


@pytest.mark.parametrize(("mhz", "grows"), [(900, True), (905, False)])
def test_a_hold_is_not_left_for_a_setting_that_the_guard_refuses(mhz: int, grows: bool) -> None:
    class Again:
        def suggest(self, past: Past) -> object:
            return Try({"gpu.clock_mhz": mhz}, "made up")

    past = confirming(baselines(30.0, 31.0), 31.0)
    held = replace(past.study, phase=Phase.HOLDING, plan=Plan.single(HOME))
    assert bool(why_grow(replace(past, study=held), Again())) is grows  # type: ignore[arg-type]


def test_above_the_rows_of_a_plan_another_confirmed_setting_is_held() -> None:
    higher = [replace(t, number=t.number + 9) for t in windows((FAST, 50.0), (FAST, 51.0))]
    seen = [*windows((SLOW, 30.0), (SLOW, 31.0)), *higher, *baselines(28.0, 29.0, 42.0, 45.0)]
    plan = Plan((PLAN.rows[0], Row(math.inf, HOME)), BY, eager=True)
    past = confirming(seen, 500.0)
    step = confirming_rows(replace(past, study=replace(past.study, plan=plan)), seen)
    assert isinstance(step, Move) and step.plan is not None
    assert [row.setting for row in step.plan.rows] == [SLOW, FAST, HOME]
    assert step.plan.rows[1].below == pytest.approx(51.0 * LOAD_REACH)
    assert "gpu.clock_mhz=1200: confirmed up to arrival_rate_per_s = 51" in step.why


def test_a_setting_that_reaches_further_and_saves_more_serves_a_row() -> None:
    costly = [replace(t, setting=FAST) for t in windows((HOME, 27.0), (HOME, 27.5))]
    costly = [replace(t, measurement=cheaper(t, 0.95)) for t in costly]
    higher = [replace(t, number=t.number + 9) for t in windows((SLOW, 30.0), (SLOW, 31.0))]
    seen = [*costly, *higher, *baselines(28.0, 29.0, 30.0)]
    plan = Plan((Row(29.0, FAST, at=28.0), Row(33.0, SLOW, at=31.0), Row(math.inf, HOME)), BY)
    past = confirming(seen, 500.0)
    step = confirming_rows(replace(past, study=replace(past.study, plan=plan)), seen)
    assert isinstance(step, Move) and step.plan is not None
    assert [row.setting for row in step.plan.rows] == [SLOW, HOME]


def cheaper(window: Trial, share: float) -> Measurement:
    measured = window.measurement
    assert measured is not None
    energy = measured.estimates["energy_j"]
    less = Estimate.of_mean(share * energy.mean, energy.stderr, energy.n)
    return replace(measured, estimates={**measured.estimates, "energy_j": less})


def test_where_the_baseline_could_not_be_measured_a_higher_load_is_another_chance() -> None:
    few = [replace(t, state=TrialState.INCONCLUSIVE) for t in baselines(10.0, 10.5)]
    held = Plan.single(HOME)

    def grows(now: float) -> str:
        past = confirming(few, now)
        study = replace(past.study, phase=Phase.HOLDING, plan=held)
        return why_grow(replace(past, study=study), load_policy("polythrottle"))

    assert not grows(11.0)
    assert "is not measured yet" in grows(14.0)


def test_one_window_at_each_load_confirms_nothing() -> None:
    assert reach([*windows((SLOW, 20.0), (SLOW, 31.0)), *baselines(25.0, 33.0)]).load == 0.0


def test_a_setting_infeasible_at_a_high_load_may_be_confirmed_at_a_lower_one() -> None:
    assert truth(SLOW, 50.0)[1] > LIMIT_MS > truth(SLOW, 31.0)[1]
    seen = windows((SLOW, 50.0), (SLOW, 51.0), (SLOW, 31.0), (SLOW, 30.0))
    assert reach([*seen, *baselines(28.0, 33.0)]).load == 31.0


def test_a_window_that_was_cut_short_bars_its_load_and_all_above() -> None:
    seen = windows((SLOW, 31.0), (SLOW, 30.5), (SLOW, 25.0), (SLOW, 24.0), (SLOW, 27.0))
    broke = Limit("latency_p99_ms", "<=", LIMIT_MS)
    cut = [*seen[:4], replace(seen[4], broke=broke)]
    assert reach([*seen, *baselines(24.0, 29.0)]).load == 31.0
    assert reach([*cut, *baselines(24.0, 29.0)]).load == 25.0


def test_the_gain_is_that_beside_the_baseline_at_the_same_load() -> None:
    """At every clock an item takes less energy at a higher load; that is not a gain of the setting."""
    seen = [*windows((SLOW, 30.0), (SLOW, 31.0)), *baselines(22.0, 24.0)]
    found = reach_of(confirming(seen, 30.0), SLOW)
    saving = 1.0 - truth(SLOW, 30.5)[0] / truth(HOME, 30.5)[0]
    assert found.result.won and found.saving(planning()) == pytest.approx(saving, abs=0.03)
    assert 1.0 - truth(SLOW, 30.5)[0] / truth(HOME, 23.0)[0] > saving + 0.04


def test_a_gain_that_the_load_alone_explains_confirms_nothing() -> None:
    late = [replace(t, setting=FAST) for t in windows((HOME, 30.0), (HOME, 31.0))]
    found = reach([*late, *baselines(22.0, 24.0)], FAST)
    assert found.load == 0.0 and "not proven" in found.result.why


def noisy(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials with an error of 30 % of their energy: a gain of 34 % needs several windows."""
    made = []
    for one in trials:
        assert one.measurement is not None
        mean = one.measurement.estimates["energy_j"].mean
        rough = {"energy_j": Estimate.of_mean(mean, 0.3 * mean, 10)}
        estimates = {**one.measurement.estimates, **rough}
        made.append(replace(one, measurement=replace(one.measurement, estimates=estimates)))
    return made


def test_a_gain_that_is_not_proven_yet_gets_further_windows_of_both() -> None:
    slow, home = windows(*[(SLOW, 30.0)] * 5), baselines(*[30.0] * 5)
    found = reach(noisy([*slow[:2], *home[:2]]))
    assert not found.result.won and not found.result.lost

    def next_setting(count: int, others: int) -> Setting:
        seen = noisy([*slow[:count], *home[:others]])
        step = confirming_rows(confirming(seen, 30.0), seen)
        assert isinstance(step, Assign)
        return step.setting

    assert next_setting(2, 2) == SLOW
    assert next_setting(3, 2) == HOME
    assert reach(noisy([*slow, *home])).result.won


def test_windows_of_much_lower_loads_say_nothing_of_a_row() -> None:
    seen = [*windows((FAST, 20.0), (FAST, 21.0)), *baselines(20.0, 22.0)]
    assert reach(seen, FAST).load == 21.0
    assert reach(seen, FAST, low=50.0).load == 0.0


def test_the_lowest_row_made_for_the_load_now_is_measured_next() -> None:
    some = baselines(30.0, 31.0)
    step = confirming_rows(confirming(some, 26.0), some)
    assert isinstance(step, Assign) and step.setting == SLOW and not step.context
    step = confirming_rows(confirming(some, 51.0), some)
    assert isinstance(step, Assign) and step.setting == HOME, "no baseline near that load yet"


def test_where_no_row_can_be_measured_now_what_is_confirmed_is_held_up_to_its_load() -> None:
    seen = [*windows((SLOW, 28.0), (SLOW, 27.0)), *baselines(28.0, 29.0)]
    step = confirming_rows(confirming(seen, 500.0), seen)
    assert isinstance(step, Move) and step.plan is not None
    held, home = step.plan.rows
    assert (held.setting, held.at, home.setting) == (SLOW, 28.0, HOME)
    assert held.below == pytest.approx(28.0 * LOAD_REACH)
    assert "up to arrival_rate_per_s = 28" in step.why


def test_never_worse_than_one_setting_what_is_confirmed_higher_serves_rows_that_are_not() -> None:
    seen = [*windows((FAST, 50.0), (FAST, 51.0)), *baselines(42.0, 45.0)]
    step = confirming_rows(confirming(seen, 500.0), seen)
    assert isinstance(step, Move) and step.plan is not None
    assert [row.setting for row in step.plan.rows] == [FAST, HOME]
    assert step.plan.rows[0].below == 52.0


def test_a_setting_confirmed_for_a_small_part_makes_no_row() -> None:
    between = {"gpu.clock_mhz": 1000}
    own = windows((SLOW, 27.0), (SLOW, 27.5), (between, 28.0), (between, 28.5))
    higher = [replace(t, number=t.number + 9) for t in windows((FAST, 50.0), (FAST, 51.0))]
    seen = [*own, *higher, *baselines(28.0, 29.0, 42.0, 45.0)]
    step = confirming_rows(confirming(seen, 500.0), seen)
    assert isinstance(step, Move) and step.plan is not None
    assert [row.setting for row in step.plan.rows] == [SLOW, FAST, HOME]


def test_a_row_whose_load_never_lasts_is_measured_no_more_in_the_end() -> None:
    seen = [*windows(*((SLOW, 27.0 + 0.1 * n) for n in range(10))), *baselines(28.0, 29.0)]
    step = confirming_rows(confirming(seen, 31.0), seen)
    assert isinstance(step, Move) and step.plan is not None and len(step.plan.rows) == 2


def test_a_relative_limit_needs_the_baseline_at_the_very_load() -> None:
    seen = [*windows((FAST, 50.0), (FAST, 51.0)), *baselines(36.0, 37.0)]
    past = confirming(seen, 50.0, "<= 1.6x baseline")
    assert reach_of(past, FAST).load == 0.0
    step = confirming_rows(past, seen)
    assert isinstance(step, Assign) and step.setting == HOME


def test_a_row_rests_on_its_windows_and_on_the_baseline_moved_to_their_load() -> None:
    seen = [*windows((SLOW, 30.0), (SLOW, 31.0)), *baselines(24.0, 26.0)]
    duel = row_duel(confirming(seen, 30.0), PLAN, PLAN.rows[0])
    assert duel is not None
    before, after = duel
    assert before["energy_j"].mean == pytest.approx(truth(HOME, 30.5)[0], rel=0.04)
    assert after["latency_p99_ms"].mean == pytest.approx(truth(SLOW, 30.5)[1], rel=0.03)
    assert row_duel(confirming(seen, 30.0), PLAN, PLAN.rows[2]) is None


def test_a_hold_is_not_left_for_a_row_that_was_measured_often_enough() -> None:
    class Same:
        def suggest(self, past: Past) -> object:
            from tuner.core import Done

            return Done(PLAN, "made up")

    few = [*windows((SLOW, 27.0), (SLOW, 27.5)), *baselines(28.0, 29.0)]
    many = [*windows(*((SLOW, 27.0 + 0.1 * n) for n in range(10))), *baselines(28.0, 29.0)]
    held = Plan((Row(27.0, SLOW, at=26.0), Row(math.inf, HOME)), BY, eager=True)
    for seen, grows in ((few, True), (many, False)):
        past = confirming(seen, 31.0)
        holding = replace(past, study=replace(past.study, phase=Phase.HOLDING, plan=held))
        assert bool(why_grow(holding, Same())) is grows  # type: ignore[arg-type]


def test_under_a_load_that_never_comes_twice_all_windows_confirm_one_setting() -> None:
    loads = (36.0, 24.0, 16.0, 11.0, 7.0)
    seen = [*windows(*((FAST, load) for load in loads)), *baselines(26.0, 22.0)]
    found = reach(seen, FAST)
    assert found.load == 24.0 and found.result.won, "the second highest"
    assert reach([*seen[:4], *seen[5:]], FAST).load == 0.0, "too few windows"
    broke = Limit("latency_p99_ms", "<=", LIMIT_MS)
    assert reach([*seen[:2], replace(seen[2], broke=broke), *seen[3:]], FAST).load == 0.0
    relative = confirming(seen, 30.0, "<= 1.6x baseline")
    assert reach_of(relative, FAST).load == 0.0


def test_a_burst_is_no_load_of_its_own_to_confirm() -> None:
    """The last window had bursts of 900 requests above its load: a minute at 14/s more is one."""
    measured = baselines(30.0, 31.0)
    for n, each in enumerate(measured):
        assert each.measurement is not None
        load = {**each.measurement.context, burst_names(BY)[0]: 900.0}
        measured[n] = replace(each, measurement=replace(each.measurement, context=load))
    step = confirming_rows(confirming(measured, 44.0), measured)
    assert isinstance(step, Assign) and step.setting == SLOW


def test_where_the_load_goes_up_and_down_one_row_is_measured_until_it_met_its_load() -> None:
    """Measured for the load of the last window, each row would always meet the load of the other."""
    seen, measured = baselines(30.0, 48.0, 31.0, 49.0), list[Setting]()
    seen = [replace(t, number=n) for n, t in enumerate(seen, 1)]
    for load in (30.0, 48.0) * 6:
        step = confirming_rows(confirming(seen, seen[-1].ran_at[BY]), seen)
        if isinstance(step, Move):
            break
        measured.append(step.setting)
        (window,) = windows((step.setting, load))
        seen.append(replace(window, number=len(seen) + 1))
    assert isinstance(step, Move) and step.plan is not None
    assert [row.setting for row in step.plan.rows] == [SLOW, FAST, HOME]
    assert measured == [*[FAST] * 4, *[SLOW] * (len(measured) - 4)]
