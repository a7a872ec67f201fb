"""Suggestions: new settings, repeated ones, the proposal, and the end of a search."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest

from policies.polythrottle.policy import Polythrottle
from tests.builders import asked, baseline, knob, past, setting, study, surface, trial, window
from tests.unit.tuner.bo.searches import seen
from tuner import guard
from tuner.bo.caution import CAUTION, last_chance
from tuner.bo.suggest import suggest
from tuner.core import (
    Condition,
    Done,
    Limit,
    Measurement,
    MetricUnavailable,
    Phase,
    Safety,
    Setting,
    Space,
    Study,
    Suggestion,
    Trial,
    TrialState,
    Try,
    Wait,
    setting_key,
    weigh,
)
from tuner.guard import MOST_FAILURES
from tuner.study.lifecycle import next_step
from tuner.study.moves import Assign, Move

CLOCKS = tuple(range(400, 1001, 25))
FINE = Space((knob("gpu.clock_mhz", CLOCKS, 1000), knob("batch_size", (1, 2, 4, 8), 1)))


def fine(trials: int = 20, **changes: object) -> Study:
    return replace(asked(trials, **changes), space=FINE)


def tried(at: Study, answer: Suggestion) -> Try:
    assert isinstance(answer, Try), answer
    at.space.check(answer.setting)
    return answer


def go_on(at: Study, trials: list[Trial], count: int) -> list[Trial]:
    """Let the policy measure this many further settings on the surface."""
    for _ in range(count):
        answer = tried(at, suggest(past(at, trials)))
        trials = [*trials, trial(len(trials) + 1, answer.setting, surface(answer.setting))]
    return trials


def test_the_search_waits_for_the_baseline() -> None:
    at = study()
    assert isinstance(suggest(past(at, [])), Wait)
    lost = trial(1, at.baseline, phase=Phase.BASELINE, state=TrialState.FAILED)
    assert isinstance(suggest(past(at, [lost])), Wait)


def test_the_first_trials_leave_the_baseline_and_go_on_from_the_first() -> None:
    trials = go_on(fine(), baseline(fine()), 3)
    keys = {setting_key(t.setting) for t in trials if t.phase is Phase.TUNING}
    assert len(keys) >= 2
    assert setting_key(fine().baseline) not in keys


def test_a_shy_study_mends_a_baseline_that_breaks_its_limit() -> None:
    """The first steps are unlikely to keep the limit, and the guard permits them."""
    space = Space((knob("gpu.clock_mhz", (600, 1000, 1400), 1000), knob("batch_size", (1, 4), 4)))

    def shown(at: Setting) -> Measurement:
        clock, batch = int(at["gpu.clock_mhz"]) / 1000.0, int(at["batch_size"])
        return window(10.0 * clock / batch**0.3, 100.0 / clock * (0.3 + 0.175 * batch))

    at = replace(asked(9, constraints=("latency_p99_ms <= 40",)), space=space)
    at = replace(at, terms=replace(at.terms, safety=Safety.STRICT))
    trials = [trial(n, at.baseline, shown(at.baseline), phase=Phase.BASELINE) for n in (1, 2)]
    while isinstance(step := next_step(past(at, trials), Polythrottle()), Assign):
        trials.append(trial(len(trials) + 1, step.setting, shown(step.setting)))
    assert isinstance(step, Move)
    assert step.plan is not None
    assert step.plan.rows[0].setting == {"gpu.clock_mhz": 1400, "batch_size": 1}


@pytest.mark.parametrize("safety", list(Safety))
def test_no_setting_is_tried_against_its_own_prediction(safety: Safety) -> None:
    """No tried setting is less likely to keep the limits than the study's caution requires."""
    at = fine()
    at = replace(at, terms=replace(at.terms, safety=safety))
    least = last_chance(CAUTION[safety])
    trials = baseline(at)
    for _ in range(6):
        answer = suggest(past(at, trials))
        if not isinstance(answer, Try):
            break
        assert guard.risk(at, weigh(at, trials), answer.predicted) is None
        search = seen(at, trials)
        row = search.grid.row(answer.setting)
        assert float(search.chance[row]) >= least
        trials.append(trial(len(trials) + 1, answer.setting, surface(answer.setting)))
    assert len(trials) > 3


def test_a_policy_with_limits_breaks_them_no_more_than_one_without() -> None:
    def broken(safety: Safety) -> float:
        at = fine(8)
        at = replace(at, terms=replace(at.terms, safety=safety))
        trials = baseline(at)
        while isinstance(answer := suggest(past(at, trials)), Try):
            trials.append(trial(len(trials) + 1, answer.setting, surface(answer.setting)))
        shown = [surface(t.setting).estimates["latency_p99_ms"].mean for t in trials]
        return sum(max(0.0, s - 120.0) for s in shown)

    assert max(broken(Safety.STRICT), broken(Safety.BALANCED)) <= broken(Safety.OFF)


def test_a_suggestion_is_a_function_of_its_past_alone() -> None:
    at = fine()
    trials = go_on(at, baseline(at), 2)
    given = past(at, trials)
    before = deepcopy(given)
    first = suggest(given)
    assert given == before
    go_on(fine(seed=4), baseline(at), 1)
    assert suggest(deepcopy(before)) == first


def test_a_stage_stays_within_its_own_and_learns_from_all() -> None:
    at = fine()
    trials = [*baseline(at), trial(3, setting(800), surface(setting(800)))]
    for _ in range(3):
        answer = suggest(past(at, trials), within=lambda s: s["batch_size"] == 2)
        assert isinstance(answer, Try)
        assert answer.setting["batch_size"] == 2
        trials.append(trial(len(trials) + 1, answer.setting, surface(answer.setting)))
    ended = suggest(past(at, trials), within=lambda _: False)
    assert isinstance(ended, Done)
    assert ended.plan.rows[0].setting != at.baseline


def test_a_prediction_comes_with_every_suggestion_and_becomes_true() -> None:
    at = fine()
    trials = go_on(at, baseline(at), 3)
    answer = tried(at, suggest(past(at, trials)))
    assert set(answer.predicted) == {"energy_j", "latency_p99_ms"}
    for metric, prediction in answer.predicted.items():
        real = surface(answer.setting).estimates[metric].mean
        assert abs(prediction.mean - real) <= 3.0 * prediction.sd + 0.02 * real


def test_few_trials_come_close_to_the_best_there_is() -> None:
    at = fine(12)
    trials = baseline(at)
    while isinstance(answer := suggest(past(at, trials)), Try):
        trials = go_on(at, trials, 1)
    assert isinstance(answer, Done)
    start = surface(at.baseline).estimates["energy_j"].mean
    limit = 1.2 * surface(at.baseline).estimates["latency_p99_ms"].mean
    best = min(
        shown["energy_j"].mean
        for s in FINE.grid()
        if (shown := surface(s).estimates)["latency_p99_ms"].mean <= limit
    )
    held = surface(answer.plan.rows[0].setting).estimates
    assert held["latency_p99_ms"].mean <= limit
    assert (start - held["energy_j"].mean) / (start - best) > 0.8


def test_while_nothing_keeps_the_limit_the_likeliest_is_tried() -> None:
    at = fine(constraints=("latency_p99_ms <= 90",))
    seen = [*baseline(at), trial(3, setting(900), surface(setting(900)))]
    seen.append(trial(4, setting(1000, 2), surface(setting(1000, 2))))
    answer = tried(at, suggest(past(at, seen)))
    assert "no setting meets every limit yet" in answer.why


def test_under_a_limit_that_the_baseline_breaks_the_cheapest_that_keeps_it_is_proposed() -> None:
    at = replace(
        fine(10, constraints=("latency_p99_ms <= 90",)),
        space=Space((knob("gpu.clock_mhz", (600, 800, 1000, 1200, 1400), 1000),)),
    )

    def dearer(clock: Setting) -> Measurement:
        ratio = int(clock["gpu.clock_mhz"]) / 1000
        return window(10.0 * ratio, 100.0 / ratio)

    trials = [trial(n, at.baseline, dearer(at.baseline), phase=Phase.BASELINE) for n in (1, 2)]
    while isinstance(answer := suggest(past(at, trials)), Try):
        trials.append(trial(len(trials) + 1, answer.setting, dearer(answer.setting)))
    assert trials[2].setting["gpu.clock_mhz"] in (1200, 1400), "a higher clock is a faster one"
    assert isinstance(answer, Done)
    assert answer.plan.rows[0].setting == {"gpu.clock_mhz": 1200}
    assert "above the baseline" in answer.why


def test_an_unreachable_limit_ends_at_the_baseline_with_the_reason() -> None:
    at = replace(asked(4, constraints=("latency_p99_ms <= 9",)))
    trials = baseline(at)
    while isinstance(answer := suggest(past(at, trials)), Try):
        trials.append(trial(len(trials) + 1, answer.setting, surface(answer.setting)))
    assert isinstance(answer, Done)
    assert answer.plan.rows[0].setting == at.baseline
    assert answer.why.endswith(
        "no measured setting is likely to meet every limit; the baseline breaks latency_p99_ms <= 9"
    )


def test_searching_does_not_stop_at_a_setting_that_failed_once() -> None:
    at = fine()
    first = tried(at, suggest(past(at, baseline(at)))).setting
    failed = [trial(3 + i, first, state=TrialState.FAILED) for i in range(MOST_FAILURES)]
    for count in (1, MOST_FAILURES):
        answer = tried(at, suggest(past(at, [*baseline(at), *failed[:count]])))
        if count == MOST_FAILURES:
            assert setting_key(answer.setting) != setting_key(first)


def test_a_setting_that_fails_is_tried_at_most_once_more() -> None:
    at = asked(12)
    trials = baseline(at)
    while isinstance(answer := suggest(past(at, trials)), Try):
        if answer.setting["gpu.clock_mhz"] == 800:
            trials.append(trial(len(trials) + 1, answer.setting, state=TrialState.FAILED))
        else:
            trials.append(trial(len(trials) + 1, answer.setting, surface(answer.setting)))
    keys = [setting_key(t.setting) for t in trials if t.state is TrialState.FAILED]
    assert keys
    assert max(keys.count(key) for key in keys) <= MOST_FAILURES


def test_a_setting_that_failed_once_and_works_now_is_proposed() -> None:
    at = fine(5)
    failed = trial(3, setting(725), state=TrialState.FAILED)
    good = [trial(n, setting(725), surface(setting(725))) for n in range(4, 8)]
    answer = suggest(past(at, [*baseline(at), failed, *good]))
    assert isinstance(answer, Done)
    assert answer.plan.rows[0].setting == setting(725)


def test_a_baseline_that_failed_once_and_works_now_is_trusted() -> None:
    at = fine()
    lost = trial(3, at.baseline, phase=Phase.BASELINE, state=TrialState.FAILED)
    clean = tried(at, suggest(past(at, baseline(at))))
    again = tried(at, suggest(past(at, [*baseline(at), lost])))
    assert (again.setting, again.why) == (clean.setting, clean.why)


def test_trials_ended_from_outside_do_not_use_up_the_budget() -> None:
    at = fine(1)
    aborted = trial(3, setting(800), state=TrialState.ABORTED)
    assert isinstance(suggest(past(at, [*baseline(at), aborted])), Try)
    failed = trial(3, setting(800), state=TrialState.FAILED)
    assert isinstance(suggest(past(at, [*baseline(at), failed])), Done)


def test_with_the_last_trial_running_it_waits() -> None:
    at = fine(1)
    running = trial(3, setting(800), state=TrialState.RUNNING)
    assert isinstance(suggest(past(at, [*baseline(at), running])), Wait)


def test_a_window_cut_short_keeps_the_search_away() -> None:
    at = fine()
    broke = Limit("latency_p99_ms", "<=", 120.0)
    cut = [
        trial(3, setting(500), window(7.0, 150.0, relative=0.05), broke=broke),
        trial(4, setting(450), window(7.5, 160.0, relative=0.05), broke=broke),
    ]
    trials = [*baseline(at), *cut]
    while isinstance(answer := suggest(past(at, trials)), Try):
        assert answer.setting["gpu.clock_mhz"] not in (450, 475, 500)
        trials.append(trial(len(trials) + 1, answer.setting, surface(answer.setting)))
    assert len(trials) > 6


def test_a_loosened_limit_rejudges_all_that_was_measured() -> None:
    tight, loose = fine(6), fine(6, constraints=("latency_p99_ms <= 1.5x baseline",))
    trials = go_on(tight, baseline(tight), 5)
    trials.append(trial(8, setting(600), surface(setting(600))))
    before, after = suggest(past(tight, trials)), suggest(past(loose, trials))
    assert isinstance(before, Done)
    assert isinstance(after, Done)
    held = [surface(done.plan.rows[0].setting).estimates for done in (before, after)]
    assert held[0]["latency_p99_ms"].mean <= 120.0 < held[1]["latency_p99_ms"].mean <= 150.0
    assert held[1]["energy_j"].mean < held[0]["energy_j"].mean


def test_a_metric_near_zero_can_be_limited_too() -> None:
    def with_drops(at: Setting) -> Measurement:
        drops = max(0.0, (700 - float(at["gpu.clock_mhz"])) / 100.0)
        shown = dict(surface(at).estimates)
        shown["dropped"] = replace(shown["energy_j"], mean=drops, low=drops - 0.1, high=drops + 0.1)
        return replace(surface(at), estimates=shown)

    at = fine(8, constraints=("dropped <= 1",))
    trials = baseline(at, with_drops(at.baseline))
    while isinstance(answer := suggest(past(at, trials)), Try):
        trials.append(trial(len(trials) + 1, answer.setting, with_drops(answer.setting)))
    assert isinstance(answer, Done)
    held = answer.plan.rows[0].setting
    assert with_drops(held).estimates["dropped"].mean <= 1.0
    assert (
        surface(held).estimates["energy_j"].mean < surface(at.baseline).estimates["energy_j"].mean
    )


def test_the_objective_may_be_limited_itself() -> None:
    at = fine(8, constraints=("energy_j <= 0.9x baseline", "latency_p99_ms <= 1.2x baseline"))
    trials = baseline(at)
    while isinstance(answer := suggest(past(at, trials)), Try):
        trials.append(trial(len(trials) + 1, answer.setting, surface(answer.setting)))
    assert isinstance(answer, Done)
    held = surface(answer.plan.rows[0].setting).estimates["energy_j"].mean
    assert held <= 0.9 * surface(at.baseline).estimates["energy_j"].mean


def test_an_unmeasured_limit_is_an_error_that_names_it() -> None:
    at = fine(constraints=("queue_s <= 1",))
    with pytest.raises(MetricUnavailable, match="queue_s"):
        suggest(past(at, baseline(at)))


def test_a_space_of_one_setting_is_done_at_once() -> None:
    only = Space((knob("gpu.clock_mhz", (1000,), 1000), knob("batch_size", (1,), 1)))
    at = replace(asked(5), space=only)
    answer = suggest(past(at, baseline(at)))
    assert isinstance(answer, Done)
    assert answer.plan.rows[0].setting == at.baseline


def test_trials_that_no_longer_count_are_not_used() -> None:
    at = replace(fine(), since_trial=5)
    stale = [*baseline(at), *(trial(n, setting(800)) for n in (3, 4))]
    assert isinstance(suggest(past(at, stale)), Wait)


def test_a_stage_limits_the_tried_settings_and_forgets_no_evidence() -> None:
    at = fine()
    trials = go_on(at, baseline(at), 2)
    for _ in range(2):
        answer = tried(at, suggest(past(at, trials), within=lambda s: s["batch_size"] == 1))
        assert answer.setting["batch_size"] == 1
        trials = [*trials, trial(len(trials) + 1, answer.setting, surface(answer.setting))]
    seen = {setting_key(t.setting) for t in trials}
    closed = suggest(past(at, trials), within=lambda s: setting_key(s) in seen)
    assert not isinstance(closed, Try) or setting_key(closed.setting) in seen
    done = suggest(past(at, trials), within=lambda _: False)
    assert isinstance(done, Done)
    held = surface(done.plan.rows[0].setting).estimates["energy_j"].mean
    assert held < surface(at.baseline).estimates["energy_j"].mean


def test_a_study_with_a_knob_that_mostly_has_no_effect_goes_to_its_end() -> None:
    workers, prefetch = knob("workers", (0, 2, 4), 0), knob("prefetch", (2, 4, 8), 2)
    bound = replace(prefetch, condition=Condition.parse("workers > 0"))
    at = replace(asked(8, constraints=()), space=Space((workers, bound)))
    trials = [trial(1, at.baseline, window(10.0), phase=Phase.BASELINE)]
    while isinstance(answer := suggest(past(at, trials)), Try):
        at.space.check(answer.setting)
        spent = 10.0 - float(answer.setting["prefetch"]) * (answer.setting["workers"] == 2)
        trials = [*trials, trial(len(trials) + 1, answer.setting, window(spent))]
    assert isinstance(answer, Done)
    assert answer.plan.chief(at.baseline) == {"workers": 2, "prefetch": 8}
    fixed = replace(at, space=at.space.restricted({"workers": (0,)}))
    assert isinstance(suggest(past(fixed, trials[:1])), Done)
    dead = replace(at, space=Space((knob("gpu.clock_mhz", (400, 800), 800), *fixed.space.knobs)))
    tried(dead, suggest(past(dead, [trial(1, dead.baseline, window(10.0), phase=Phase.BASELINE)])))
