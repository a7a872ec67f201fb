"""The cost of a saving in capacity and latency, as text."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.builders import START, metric_sample, saved, setting, study, trial, window
from tuner.core import (
    FIRST,
    FRESH,
    BaselineCourse,
    BaselineShift,
    Bill,
    Constraint,
    Context,
    Estimate,
    Limit,
    Objective,
    Outcome,
    Phase,
    Plan,
    Revision,
    Study,
    Trial,
    TrialState,
    capacity_beside,
    capacity_lost,
    draw_up,
    improvement,
    slower_by,
)


def at(throughput: float) -> dict[str, Estimate]:
    return {"throughput_per_s": Estimate.of_mean(throughput, 0.1)}


def offered(clause: str) -> Constraint:
    """Return the constraint that a clause recommends."""
    match = re.search('the constraint "(.*)"', clause)
    assert match is not None
    return Constraint.parse(match[1])


def test_a_loss_of_capacity_is_reported_with_the_constraint_against_it() -> None:
    clause = capacity_lost(at(53.6), at(24.8), ["energy_j", "latency_p99_ms"])
    assert "throughput_per_s is 53.7 % lower" in clause
    assert offered(clause) == Constraint.parse("throughput_per_s >= 0.95x baseline")


def test_an_allowed_loss_is_reported_without_a_further_constraint() -> None:
    clause = capacity_lost(at(50.0), at(40.0), ["energy_j", "throughput_per_s"])
    assert clause == "throughput_per_s is 20.0 % lower, as its constraint allows"


@pytest.mark.parametrize("after", [47.6, 50.0, 60.0])
def test_a_cost_of_a_twentieth_is_not_a_loss(after: float) -> None:
    assert capacity_lost(at(50.0), at(after), []) == ""


def tail(latency: float, cpu_time: float = 1.0) -> dict[str, Estimate]:
    return {
        "latency_ms": Estimate.of_mean(latency / 2.0, 0.1),
        "latency_p99_ms": Estimate.of_mean(latency, 0.1),
        "cpu_time_ms": Estimate.of_mean(cpu_time, 0.1),
    }


def test_growth_of_an_unlimited_latency_is_reported_with_the_constraint_against_it() -> None:
    clause = slower_by(
        tail(10.0), {**tail(26.0), "latency_ms": Estimate.of_mean(6.0, 0.1)}, ["energy_j"]
    )
    assert "latency_p99_ms is 160.0 % higher" in clause
    assert offered(clause) == Constraint.parse("latency_p99_ms <= 1.05x baseline")


@pytest.mark.parametrize(
    ("after", "metrics"),
    [
        (tail(26.0), ["energy_j", "latency_ms"]),
        (tail(10.4), ["energy_j"]),
        (tail(10.0, cpu_time=9.0), ["energy_j"]),
        ({}, ["energy_j"]),
    ],
)
def test_growth_of_a_limited_latency_or_a_small_one_is_not_reported(
    after: dict[str, Estimate], metrics: list[str]
) -> None:
    assert slower_by(tail(10.0), after, metrics) == ""


@pytest.mark.parametrize(
    ("after", "clause"),
    [
        (49.0, "throughput_per_s is 2.0 % lower"),
        (51.0, "throughput_per_s is 2.0 % higher"),
        (50.001, "throughput_per_s is unchanged"),
    ],
)
def test_capacity_is_shown_beside_every_saving(after: float, clause: str) -> None:
    assert capacity_beside(at(50.0), at(after), []) == clause
    assert capacity_beside(at(50.0), {}, []) == "throughput_per_s was not measured"


VALUES = st.floats(-1e99, 1e99, allow_subnormal=False) | st.sampled_from([0.0, 1e-300, -1e-300])
DOUBTS = st.floats(0.0, 1e98)


@given(VALUES, VALUES, DOUBTS, DOUBTS, st.sampled_from(["minimize", "maximize"]))
@example(-1.0, -0.5, 0.0, 0.0, "minimize")  # Ax issue 1685: a status quo below zero
@example(0.0, 5.0, 0.0, 0.0, "minimize")
@example(1e-300, 1e99, 0.0, 0.0, "minimize")
def test_an_improvement_is_above_zero_exactly_where_the_objective_is_better(
    before: float, after: float, doubt: float, other_doubt: float, goal: str
) -> None:
    objective = Objective("score", goal)
    gain = improvement(
        Estimate.of_mean(before, doubt), Estimate.of_mean(after, other_doubt), objective.sign
    )
    shown = gain.amount.mean
    assert math.isfinite(shown) and math.isfinite(gain.amount.stderr)
    assert (shown > 0.0) == (objective.better(after, before) and shown != 0.0)
    assert (shown < 0.0) == (objective.better(before, after) and shown != 0.0)
    if abs(before - after) > 1e-9 * abs(before):
        assert shown != 0.0
    if before <= 0.0 or after < 0.0:
        assert not gain.relative
        assert shown == objective.sign * (before - after)


@given(st.floats(1e-6, 1e6), st.floats(0.0, 1e6), st.floats(1e-3, 1e3))
def test_a_share_is_the_same_in_any_unit(before: float, after: float, unit: float) -> None:
    here = improvement(Estimate.of_mean(before, 0.1), Estimate.of_mean(after, 0.1)).share
    there = improvement(
        Estimate.of_mean(unit * before, unit * 0.1), Estimate.of_mean(unit * after, unit * 0.1)
    ).share
    assert here is not None and there is not None
    assert there.mean == pytest.approx(here.mean, rel=1e-9, abs=1e-9)
    assert there.stderr == pytest.approx(here.stderr)


HELD = study(Phase.HOLDING, plan=Plan.single(setting(600)))
LOAD = {"arrival_rate_per_s": 50.0}


def after(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def baseline(
    number: int, minute: float, energy_j: float, phase: Phase = Phase.HOLDING, rate: float = 50.0
) -> Trial:
    """Return a window of the baseline of 10 s that began this many minutes after the start."""
    shown = replace(window(energy_j, rate=rate), started_at=after(minute))
    ended = after(minute) + timedelta(seconds=10.0)
    made = trial(number, setting(), shown, phase=phase)
    return replace(made, started_at=after(minute), ended_at=ended)


FIRST_WINDOWS = [baseline(n, n - 2.0, 10.0, Phase.BASELINE) for n in (1, 2)]
"""The first baseline: 10 J, at the start and a minute before it."""


def around(course: BaselineCourse, minute: float, load: Context = LOAD) -> dict[int, float]:
    parts = course.around("energy_j", after(minute), load)
    return {part.number: round(part.share, 9) for part in parts}


def test_without_control_windows_the_first_baseline_counts_for_all_time() -> None:
    course = BaselineCourse.of(HELD, FIRST_WINDOWS)
    assert course.again == ()
    (part,) = course.around("energy_j", after(1e6), LOAD)
    assert (part.number, part.at, part.share) == (FIRST, after(0.0), 1.0)
    assert part.estimate.mean == pytest.approx(10.0)
    assert part.estimate.stderr == pytest.approx(0.1 / math.sqrt(2.0), rel=0.2)


def test_between_two_windows_the_baseline_goes_straight_from_one_to_the_other() -> None:
    course = BaselineCourse.of(
        HELD, [*FIRST_WINDOWS, baseline(3, 20.0, 9.0), baseline(4, 40.0, 8.0)]
    )
    assert around(course, -0.5) == {FIRST: 1.0}
    assert around(course, 5.0) == {FIRST: 0.75, 3: 0.25}
    assert around(course, 30.0) == {3: 0.5, 4: 0.5}
    assert around(course, 50.0) == {4: 1.0}


def test_a_window_of_another_load_is_no_evidence_for_this_one() -> None:
    course = BaselineCourse.of(
        HELD,
        [*FIRST_WINDOWS, baseline(3, 20.0, 30.0, rate=5.0), baseline(4, 40.0, 9.0)],
    )
    assert around(course, 20.0) == {FIRST: 0.5, 4: 0.5}
    assert around(course, 10.0, {"arrival_rate_per_s": 5.0}) == {3: 1.0}
    assert around(course, 10.0, {"arrival_rate_per_s": 500.0}) == {}


@pytest.mark.parametrize(
    "seen",
    [
        Outcome(state=TrialState.FAILED, reason="no meter"),
        Outcome(state=TrialState.INCONCLUSIVE, measurement=window(3.0)),
        Outcome(
            state=TrialState.COMPLETED,
            measurement=window(3.0),
            broke=Limit("latency_p99_ms", "<=", 90.0),
        ),
    ],
    ids=["failed", "inconclusive", "cut short"],
)
def test_a_control_window_that_was_not_measured_to_its_end_does_not_count(seen: Outcome) -> None:
    running = replace(baseline(3, 20.0, 9.0), state=TrialState.RUNNING, measurement=None)
    ended = running.ended(seen, after(21.0))
    assert BaselineCourse.of(HELD, [*FIRST_WINDOWS, running]).again == ()
    assert BaselineCourse.of(HELD, [*FIRST_WINDOWS, ended]).again == ()


def test_measurements_before_a_fresh_start_are_not_a_baseline() -> None:
    fresh = replace(HELD, since_trial=4)
    course = BaselineCourse.of(fresh, [*FIRST_WINDOWS, baseline(3, 20.0, 9.0)])
    assert around(course, 30.0) == {}


def test_the_baselines_confirming_windows_are_interpolated_at_their_time() -> None:
    later = baseline(4, 40.0, 8.0, Phase.CONFIRMING)
    course = BaselineCourse.of(HELD, [*FIRST_WINDOWS, baseline(3, 20.0, 9.0), later])
    assert around(course, 30.0) == {3: 0.5, 4: 0.5}
    assert course.first(LOAD)["energy_j"].mean == pytest.approx(10.0)


def billed(controls: list[Trial], *minutes: float) -> Bill:
    """Return the bill of windows at these minutes of a hold: 6 J per item, 50 items per second."""
    trials = [*FIRST_WINDOWS, *controls]
    course = BaselineCourse.of(HELD, trials)
    shown = course.first(LOAD)
    return draw_up(
        trials,
        shown,
        {"energy_j": Estimate(6.0)},
        [metric_sample(minute, 6.0) for minute in minutes],
        [revision(HELD)],
        course=course,
    )


def revision(of: Study) -> Revision:
    return Revision(study=of, who="tuner", why="", at=START)


def test_without_control_windows_the_bill_gives_the_start_of_extrapolation() -> None:
    bill = billed([], 1, 2)
    assert saved(bill).saved_j == pytest.approx(4.0 * 50.0 * (10 + 60))
    assert (bill.controls, bill.measured_again_at) == (0, None)
    assert bill.extrapolated_since == START


def test_the_first_baselines_own_error_is_in_all_that_rests_on_it() -> None:
    bill, longer = billed([], *range(1, 60)), billed([], *range(1, 600))
    share, same = ((s.stderr_j or 0.0) / (s.saved_j or 0.0) for s in (saved(bill), saved(longer)))
    # About 0.7 % of 10 J, for 4 J saved: more windows of the hold do not reduce this error.
    assert share == pytest.approx(0.07 / 4.0, rel=0.3)
    assert same == pytest.approx(share, rel=0.05)


def test_the_baseline_near_a_held_window_is_the_one_it_is_compared_with() -> None:
    bill = billed([baseline(3, 2.0, 9.0), baseline(4, 4.0, 8.0)], 1, 5)
    # 9.5 J when the first window began and 8 J when the second did, which counts for four minutes less
    # the two control windows.
    assert saved(bill).saved_j == pytest.approx(50.0 * (3.5 * 10 + 2.0 * (240 - 20)))
    assert (bill.controls, bill.measured_again_at) == (2, after(4.0))
    assert bill.extrapolated_since is None


def test_a_step_between_two_control_windows_is_in_doubt_by_when_it_was() -> None:
    def error_j(second_j: float) -> float:
        bill = billed([baseline(3, 0.5, 10.0), baseline(4, 60.0, second_j)], *range(1, 60))
        return saved(bill).stderr_j or 0.0

    items = 50.0 * (10 + 58 * 60)
    assert math.sqrt(error_j(8.0) ** 2 - error_j(10.0) ** 2) == pytest.approx(
        2.0 * items / math.sqrt(12.0), rel=0.05
    )


def test_without_a_near_control_window_the_bill_extrapolates_again() -> None:
    day = FRESH / timedelta(minutes=1)
    near = billed([baseline(3, 2.0, 9.0)], 1, 3, 2.0 + day)
    assert near.extrapolated_since is None
    far = billed([baseline(3, 2.0, 9.0)], 1, 3, 2.1 + day)
    assert (far.controls, far.extrapolated_since) == (1, after(2.0))


def test_holds_before_a_new_baseline_are_not_extrapolated() -> None:
    assert billed([baseline(3, 9.0, 10.0, Phase.CONFIRMING)], 1, 2).extrapolated_since is None


def test_a_control_window_explores_nothing_and_is_not_counted_as_a_trial() -> None:
    assert replace(billed([], 1), whole=None) == replace(
        billed([baseline(3, 2.0, 10.0)], 1),
        whole=None,
        controls=0,
        measured_again_at=None,
        extrapolated_since=START,
    )


def test_a_control_window_at_a_load_that_was_never_held_is_not_reported_as_counted() -> None:
    bill = billed([baseline(3, 2.0, 9.0, rate=500.0)], 1, 3)
    assert (bill.controls, bill.extrapolated_since) == (0, START)


def test_a_shift_gives_the_present_baseline_with_both_errors() -> None:
    shift = BaselineShift(after(20.0), Estimate.of_mean(-0.1, 0.01, 4), 4)
    now = shift.now(Estimate.of_mean(10.0, 0.1, 20))
    assert now.mean == pytest.approx(9.0)
    assert now.stderr == pytest.approx(math.hypot(0.09, 0.1))
    assert shift.in_words("energy_j") == (
        "the baseline has drifted: its energy_j is 10.0 ± 1.0 % lower than the study's first "
        "baseline (4 windows since 2026-01-01 12:20:00Z)"
    )
