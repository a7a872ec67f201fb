"""For every study a policy answers with a reason, and in bounded time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from policies.polythrottle.policy import Polythrottle
from tests.builders import SPACE, asked, baseline, knob, past, setting, surface, trial, window
from tests.errors import raised
from tuner.core import (
    Done,
    Estimate,
    Measurement,
    MeasurementError,
    MetricUnavailable,
    Phase,
    Setting,
    Space,
    Study,
    Suggestion,
    Trial,
    TrialState,
    Try,
    Wait,
    setting_key,
)
from tuner.study.lifecycle import next_step
from tuner.study.moves import Move, Rest

pytestmark = pytest.mark.timeout(60)

Shows = Callable[[Setting], Measurement]


def ask(at: Study, trials: list[Trial]) -> Suggestion:
    """Return an answer after checks of its form: it has a reason, and settings of the space."""
    answer = Polythrottle().suggest(past(at, trials))
    assert answer.why
    if isinstance(answer, Try):
        at.space.check(answer.setting)
        for prediction in answer.predicted.values():
            assert math.isfinite(prediction.mean)
            assert math.isfinite(prediction.sd)
    if isinstance(answer, Done):
        for row in answer.plan.rows:
            at.space.check(row.setting)
    return answer


def to_the_end(at: Study, trials: list[Trial], shows: Shows) -> tuple[list[Trial], Done]:
    """Let the policy tune until it is done, which its trials bound."""
    trials = list(trials)
    for _ in range(at.terms.trials + 1):
        answer = ask(at, trials)
        if isinstance(answer, Done):
            return trials, answer
        assert isinstance(answer, Try), answer
        trials.append(trial(len(trials) + 1, answer.setting, shows(answer.setting)))
    raise AssertionError("the policy spends more trials than the study has")


def held(at: Study, trials: list[Trial], shows: Shows) -> Setting:
    """Return the setting that is held at the end: the policy's proposal if fresh windows confirm it."""
    trials, policy = list(trials), Polythrottle()
    while at.phase is not Phase.HOLDING:
        step = next_step(past(at, trials), policy)
        assert not isinstance(step, Rest), step
        assert step.why
        if isinstance(step, Move):
            at = replace(at.moved(step.phase, step.plan), phase_since=len(trials) + 1)
        else:
            seen = shows(step.setting)
            trials.append(trial(len(trials) + 1, step.setting, seen, phase=at.phase))
    assert at.plan is not None
    return at.plan.rows[0].setting


def holds_baseline(at: Study, done: Done) -> bool:
    return [row.setting for row in done.plan.rows] == [at.baseline]


@pytest.mark.parametrize("energy_j", [10.0, 0.0])
def test_a_constant_objective_leaves_the_baseline(energy_j: float) -> None:
    def flat(at: Setting) -> Measurement:
        return window(energy_j, surface(at).estimates["latency_p99_ms"].mean)

    at = asked(8)
    assert held(at, baseline(at, flat(at.baseline)), flat) == at.baseline


def test_knobs_of_one_value_offer_no_choice() -> None:
    only = Space((knob("gpu.clock_mhz", (1000,), 1000), knob("batch_size", (1,), 1)))
    at = replace(asked(5), space=only)
    done = ask(at, baseline(at))
    assert isinstance(done, Done)
    assert holds_baseline(at, done)


def test_knobs_of_one_value_beside_others_change_nothing() -> None:
    at = asked(5)
    padded = replace(
        at, space=Space((knob("fan", ("auto",), "auto"), *SPACE.knobs, knob("cap_w", (60,), 60)))
    )
    plain, _ = to_the_end(at, baseline(at), surface)
    trials, _ = to_the_end(padded, baseline(padded), surface)
    kept = [{name: t.setting[name] for name in at.baseline} for t in trials]
    assert kept == [t.setting for t in plain]


@pytest.mark.parametrize("limit", ["latency_p99_ms <= 1", "latency_p99_ms <= 0.2x baseline"])
def test_where_every_setting_breaks_the_limit_the_baseline_stays(limit: str) -> None:
    at = asked(8, constraints=(limit,))
    trials, done = to_the_end(at, baseline(at), surface)
    assert holds_baseline(at, done)
    tried = [setting_key(t.setting) for t in trials[2:]]
    assert len(set(tried)) == len(tried)  # a proven infeasible setting is not tried again


def test_where_every_setting_fails_the_baseline_stays() -> None:
    at = asked(10)
    trials = baseline(at)
    while isinstance(answer := ask(at, trials), Try):
        trials.append(
            trial(len(trials) + 1, answer.setting, state=TrialState.FAILED, reason="driver refused")
        )
    assert isinstance(answer, Done)
    assert holds_baseline(at, answer)
    assert len(trials) <= 2 + at.terms.trials


@pytest.mark.parametrize("figure", [math.nan, math.inf, -math.inf])
def test_a_meter_without_a_number_never_reaches_the_policy(figure: float) -> None:
    with raised(MeasurementError, "mean"):
        Estimate.of_mean(figure, 0.1)
    with raised(MeasurementError, "standard error"):
        Estimate(10.0, figure)


def test_trials_whose_meter_gave_no_number_cost_trials_and_nothing_else() -> None:
    at = asked(6)
    trials, done = to_the_end(at, baseline(at), surface)
    assert not holds_baseline(at, done)
    broken = [
        trial(
            len(trials) + n,
            setting(600, 2),
            state=TrialState.FAILED,
            reason="an estimate cannot have the mean nan",
        )
        for n in (1, 2)
    ]
    more = replace(at, terms=replace(at.terms, trials=10))
    _, played = to_the_end(more, [*trials, *broken], surface)
    assert not holds_baseline(at, played)


def test_a_silent_meter_keeps_the_earlier_proof() -> None:
    def deaf(at: Setting) -> Measurement:
        shown = surface(at)
        kept = {k: e for k, e in shown.estimates.items() if k != "energy_j"}
        return replace(shown, estimates=kept)

    at = asked(10)
    good = [trial(3, setting(800), surface(setting(800)))]
    _, done = to_the_end(at, [*baseline(at), *good], deaf)
    assert setting_key(done.plan.rows[0].setting) == setting_key(setting(800))


def test_tails_that_no_window_bounds_prove_nothing() -> None:
    def unbounded(at: Setting) -> Measurement:
        shown = surface(at)
        tail = replace(shown.estimates["latency_p99_ms"], high=math.inf)
        return replace(shown, estimates={**shown.estimates, "latency_p99_ms": tail})

    at = asked(6)
    assert held(at, baseline(at), unbounded) == at.baseline


@pytest.mark.parametrize("clock", [1000, 800])
def test_two_hundred_windows_of_one_setting_are_one_setting(clock: int) -> None:
    at = asked(220)
    same = [trial(n, setting(clock), surface(setting(clock))) for n in range(3, 203)]
    answer = ask(at, [*baseline(at), *same])
    assert isinstance(answer, Try)
    assert setting_key(answer.setting) != setting_key(setting(clock))


def test_two_hundred_windows_that_show_the_same_end_at_the_baseline() -> None:
    wide = Space(
        (knob("gpu.clock_mhz", tuple(range(400, 1001, 10)), 1000), *SPACE.knobs[1:]),
    )
    at = replace(asked(200), space=wide)
    tried = list(wide.grid())[::-1][:183]
    trials = [trial(n, tried[n % 183], window()) for n in range(3, 203)]
    done = ask(at, [*baseline(at, window()), *trials])
    assert isinstance(done, Done)
    assert holds_baseline(at, done)


def queued(at: Setting) -> Measurement:
    """Return a window that also shows a queue, which is longer in larger batches."""
    shown = surface(at)
    queue_ms = 2.0 * float(at["batch_size"])
    return replace(
        shown,
        estimates={**shown.estimates, "queue_ms": Estimate.of_mean(queue_ms, 0.01 * queue_ms, 50)},
    )


def test_a_limit_on_an_unmeasured_metric_names_the_metric() -> None:
    at = asked(10, constraints=("queue_ms <= 3",))
    with raised(MetricUnavailable, "queue_ms") as caught:
        ask(at, baseline(at))
    assert caught.value.hint


def test_a_metric_that_appears_late_counts_from_then_on() -> None:
    at = asked(10, constraints=("queue_ms <= 3",))
    late = [*baseline(at), trial(3, setting(800), queued(setting(800)))]
    answer = ask(at, late)
    assert isinstance(answer, Try)
    assert "queue_ms" in answer.predicted
    _, done = to_the_end(at, late, queued)
    assert done.plan.rows[0].setting["batch_size"] == 1
    assert not holds_baseline(at, done)


def test_a_relative_limit_waits_for_the_baseline_of_a_late_metric() -> None:
    at = asked(10, constraints=("queue_ms <= 1.1x baseline",))
    late = [*baseline(at), trial(3, setting(800), queued(setting(800)))]
    answer = ask(at, late)
    assert isinstance(answer, Wait)
    assert "baseline" in answer.why
    again = [*late, trial(4, at.baseline, queued(at.baseline))]
    assert isinstance(ask(at, again), Try)
