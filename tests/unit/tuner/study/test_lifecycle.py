"""The walk of a study, step by step, derived from its trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from tests.builders import past, setting, study, trial, window
from tuner.core import (
    Constraint,
    Done,
    Estimate,
    Measurement,
    Objective,
    Past,
    Phase,
    Plan,
    Row,
    Setting,
    Study,
    Suggestion,
    Terms,
    Trial,
    TrialState,
    Try,
    Wait,
    setting_key,
)
from tuner.study.confirm import CONFIRM_MOST, MOST_COMPARED
from tuner.study.lifecycle import FAILED_IN_A_ROW, next_step
from tuner.study.moves import Assign, Move, Rest


@dataclass
class Scripted:
    """A policy with a fixed answer."""

    answer: Suggestion

    def suggest(self, past: Past) -> Suggestion:
        return self.answer


def step(at: Study, trials: list[Trial], answer: Suggestion | None = None) -> object:
    policy = Scripted(answer or Wait("nothing"))
    return next_step(past(at, trials), policy)


def base(number: int) -> Trial:
    return trial(number, setting(), window(), phase=Phase.BASELINE)


def test_the_baseline_is_measured_twice_before_tuning() -> None:
    fresh = study(Phase.BASELINE)
    first = step(fresh, [])
    assert isinstance(first, Assign)
    assert first.setting == fresh.baseline
    assert isinstance(step(fresh, [base(1)]), Assign)
    assert step(fresh, [base(1), base(2)]) == Move(
        Phase.TUNING, "the baseline was measured in 2 windows"
    )


def test_a_baseline_that_cannot_be_measured_is_held_with_the_reason() -> None:
    spoilt = [
        trial(n, phase=Phase.BASELINE, state=TrialState.CONTAMINATED, reason="others compute")
        for n in range(1, 7)
    ]
    move = step(study(Phase.BASELINE), spoilt)
    assert isinstance(move, Move)
    assert move.phase is Phase.HOLDING
    assert move.plan == Plan.single(study().baseline)
    assert "others compute" in move.why


def failed(first: int, *at: Setting, phase: Phase = Phase.TUNING) -> list[Trial]:
    return [
        trial(n, tried, phase=phase, state=TrialState.FAILED, reason=f"lost {n}")
        for n, tried in enumerate(at, first)
    ]


def test_a_baseline_that_fails_again_and_again_pauses_the_study() -> None:
    trials = failed(1, *[setting()] * FAILED_IN_A_ROW, phase=Phase.BASELINE)
    assert isinstance(step(study(Phase.BASELINE), trials[:-1]), Assign)
    move = step(study(Phase.BASELINE), trials)
    assert isinstance(move, Move)
    assert (move.phase, move.plan) == (Phase.PAUSED, None)
    assert "lost 4" in move.why


ALL_FAIL = [setting(800), setting(600), setting(800, 2), setting(600, 2)]


def test_after_failures_in_a_row_the_baseline_decides_whether_to_go_on() -> None:
    known = [base(1), base(2), *failed(3, *ALL_FAIL)]
    at = study(terms=Terms(trials=10))
    assert step(at, known[:-1], Try(setting(400), "next")) == Assign(setting(400), "next")
    check = step(at, known, Try(setting(400), "next"))
    assert isinstance(check, Assign)
    assert check.setting == at.baseline
    works = [*known, trial(7, setting(), window())]
    assert step(at, works, Try(setting(400), "next")) == Assign(setting(400), "next")
    broken = step(at, [*known, *failed(7, setting())], Try(setting(400), "next"))
    assert isinstance(broken, Move)
    assert broken.phase is Phase.PAUSED
    assert "lost 7" in broken.why


def test_failures_before_the_phase_or_after_the_last_trial_have_no_effect() -> None:
    known = [base(1), base(2), *failed(3, *ALL_FAIL)]
    resumed = study(terms=Terms(trials=10), phase_since=7)
    assert step(resumed, known, Try(setting(400), "next")) == Assign(setting(400), "next")
    spent = study(terms=Terms(trials=len(ALL_FAIL)))
    done = step(spent, known, Done(Plan.single(spent.baseline), "all trials are used"))
    assert isinstance(done, Move)
    assert done.phase is Phase.HOLDING


def test_tuning_follows_the_policy() -> None:
    trials = [base(1), base(2)]
    assert step(study(), trials, Try(setting(600), "cheaper")) == Assign(setting(600), "cheaper")
    assert step(study(), trials, Wait("a trial is running")) == Rest("a trial is running")
    done = step(study(), trials, Done(Plan.single(setting(600)), "enough"))
    assert done == Move(Phase.CONFIRMING, "enough", Plan.single(setting(600)))


def test_a_setting_with_fewer_changed_knobs_gives_no_gain_away() -> None:
    """9 ± 0.8 J at batch 2 beside 9.7 ± 0.8 J at batch 1, the baseline's, of 10 J."""
    trials = [base(1), base(2), trial(3, setting(600, 2), window(9.0, relative=0.09))]
    trials.append(trial(4, setting(600), window(9.7, relative=0.09)))
    proposed = Plan.single(setting(600, 2))
    assert step(study(), trials, Done(proposed, "enough")) == Move(
        Phase.CONFIRMING, "enough", proposed
    )


def test_a_search_that_ends_at_the_baseline_needs_no_confirming() -> None:
    done = step(study(), [base(1), base(2)], Done(Plan.single(study().baseline), "nothing better"))
    assert isinstance(done, Move)
    assert done.phase is Phase.HOLDING


def test_a_setting_refused_by_the_guard_is_not_tried() -> None:
    trials = [base(1), base(2), trial(3, setting(400), window(4.0, 200.0))]
    move = step(study(), trials, Try(setting(400), "again"))
    assert isinstance(move, Move)
    assert "was not tried: it breaks latency_p99_ms <= 120 in its windows" in move.why


Surface = Callable[[Setting], Measurement]


def confirm(at: Study, trials: list[Trial], surface: Surface) -> tuple[list[Setting], Move]:
    """Play the confirming phase on a surface; return the requested settings and the end."""
    asked: list[Setting] = []
    for _ in range(60):
        answer = step(at, trials)
        if isinstance(answer, Move):
            return asked, answer
        assert isinstance(answer, Assign)
        asked.append(answer.setting)
        found = surface(answer.setting)
        trials = [
            *trials,
            trial(len(trials) + 1, answer.setting, found, phase=Phase.CONFIRMING),
        ]
    raise AssertionError("confirming does not end")


def table(figures: Mapping[int, tuple[float, float]]) -> Surface:
    return lambda at: window(*figures[int(at["gpu.clock_mhz"])])


TUNED = [
    base(1),
    base(2),
    trial(3, setting(600), window(6.0, 110.0)),
    trial(4, setting(800), window(8.0, 105.0)),
]
PROPOSED = study(Phase.CONFIRMING, plan=Plan.single(setting(600)), phase_since=5)


def test_the_winner_is_confirmed_in_alternating_windows() -> None:
    asked, end = confirm(PROPOSED, TUNED, table({1000: (10, 100), 600: (6, 110)}))
    assert asked == [setting(), setting(600), setting(), setting(600)]
    assert (end.phase, end.plan) == (Phase.HOLDING, Plan.single(setting(600)))
    assert "40.0" in end.why


def test_an_unproven_setting_yields_to_the_next_best() -> None:
    asked, end = confirm(PROPOSED, TUNED, table({1000: (10, 100), 600: (6, 119.5), 800: (8, 105)}))
    assert end.plan == Plan.single(setting(800))
    assert setting(600) in asked


def tails(*bounds_ms: float) -> Surface:
    """Return windows at 600 MHz whose p99 has these upper bounds in turn, then always the last one."""
    coming = list(bounds_ms)

    def shown(at: Setting) -> Measurement:
        if at != setting(600):
            return window(10.0 if at == setting() else 9.9, 100.0)
        high = coming.pop(0) if len(coming) > 1 else coming[0]
        return window(6.0, extra={"latency_p99_ms": Estimate(110.0, 2.0, 500, 105.0, high)})

    return shown


def test_a_tail_that_one_window_leaves_unsure_is_bounded_by_more_of_them() -> None:
    asked, end = confirm(PROPOSED, TUNED, tails(115.0, 130.0, 116.0))
    assert asked == [setting(), setting(600)] * 3, (
        "a drift in further windows is in the baseline's, too"
    )
    assert end.plan == Plan.single(setting(600))


@pytest.mark.parametrize(("bound_ms", "windows"), [(130.0, 5), (math.inf, 2)])
def test_a_tail_that_stays_unsure_is_not_held(bound_ms: float, windows: int) -> None:
    asked, end = confirm(PROPOSED, TUNED, tails(bound_ms))
    assert asked.count(setting(600)) == windows
    assert end.plan != Plan.single(setting(600))


def test_a_gain_that_is_not_proven_is_not_claimed() -> None:
    flat = table({1000: (10, 100), 600: (9.99, 100), 800: (9.99, 100)})
    _, end = confirm(PROPOSED, TUNED, flat)
    assert (end.phase, end.plan) == (Phase.HOLDING, Plan.single(setting()))
    assert "not proven" in end.why


TIGHT = replace(PROPOSED, constraints=(Constraint.parse("latency_p99_ms <= 90"),))


def test_if_the_baseline_breaks_a_limit_a_setting_that_keeps_it_wins_at_any_cost() -> None:
    _, end = confirm(TIGHT, TUNED, table({1000: (10, 100), 600: (12, 80)}))
    assert (end.phase, end.plan) == (Phase.HOLDING, Plan.single(setting(600)))
    assert "latency_p99_ms <= 90, which the baseline breaks; energy_j 20.0" in end.why
    assert end.why.endswith("% worse than the baseline")
    _, end = confirm(TIGHT, TUNED, table({1000: (10, 100), 600: (8, 80)}))
    assert end.why.endswith("% better than the baseline")


def test_if_the_baseline_breaks_a_limit_a_setting_that_breaks_it_too_does_not_win() -> None:
    _, end = confirm(TIGHT, TUNED, table({1000: (10, 100), 600: (6, 95), 800: (8, 89.9)}))
    assert (end.phase, end.plan) == (Phase.HOLDING, Plan.single(setting()))


def test_if_the_baseline_breaks_a_limit_the_last_contender_is_furthest_from_it() -> None:
    near = setting(600), setting(800), setting(600, 2)
    shown = [(s, 12.0 + i / 10, 88.0) for i, s in enumerate(near)] + [(setting(800, 2), 13.0, 60.0)]
    tried = [
        trial(3 + i, s, window(energy, ms, relative=0.001))
        for i, (s, energy, ms) in enumerate(shown)
    ]
    at = replace(TIGHT, phase_since=7)

    def truth(at: Setting) -> Measurement:
        return (
            window(10.0, 100.0) if at == setting() else window(13.0, 95.0 if at in near else 60.0)
        )

    asked, end = confirm(at, [base(1), base(2), *tried], truth)
    assert end.plan == Plan.single(setting(800, 2))
    assert setting(600, 2) not in asked


def test_a_confirming_window_that_fails_is_repeated_once() -> None:
    failed = [
        trial(6, setting(600), state=TrialState.FAILED, phase=Phase.CONFIRMING),
        trial(7, setting(600), state=TrialState.FAILED, phase=Phase.CONFIRMING),
    ]
    before = [*TUNED, trial(5, setting(), window(), phase=Phase.CONFIRMING)]
    again, next_best = step(PROPOSED, [*before, failed[0]]), step(PROPOSED, [*before, *failed])
    assert isinstance(again, Assign) and again.setting == setting(600)
    assert isinstance(next_best, Assign) and next_best.setting == setting(800)


def test_a_limit_relative_to_nothing_pauses_the_study_with_the_reason() -> None:
    at = replace(study(Phase.BASELINE), constraints=(Constraint.parse("power_w <= 1.2x baseline"),))
    dark = window(extra={"power_w": Estimate.of_mean(0.0, 0.0)})
    seen = [trial(n, setting(), dark, phase=Phase.BASELINE) for n in (1, 2)]
    end = step(at, seen)
    assert isinstance(end, Move)
    assert end.phase is Phase.PAUSED
    assert end.why == (
        "power_w is 0 at the baseline, so no limit can be relative to it; "
        "set an absolute limit with `constraint set`"
    )


def test_at_most_three_settings_are_confirmed() -> None:
    many = [
        *TUNED,
        trial(5, setting(600, 2), window(6.5, 110.0)),
        trial(6, setting(800, 2), window(8.5, 105.0)),
    ]
    proposed = replace(PROPOSED, phase_since=7)
    asked, end = confirm(
        proposed, many, lambda at: window(8.0, 100.0 if at == setting() else 200.0)
    )
    tried = {setting_key(s) for s in asked} - {setting_key(setting())}
    assert len(tried) == 3
    assert end.plan == Plan.single(setting())


@pytest.mark.parametrize(
    ("state", "end"),
    [
        (TrialState.CONTAMINATED, (Phase.HOLDING, Plan.single(setting()))),
        (TrialState.FAILED, (Phase.PAUSED, None)),
    ],
)
def test_confirming_ends_with_any_windows(
    state: TrialState, end: tuple[Phase, Plan | None]
) -> None:
    trials = list(TUNED)
    for _ in range(CONFIRM_MOST + 2):
        answer = step(PROPOSED, trials)
        if isinstance(answer, Move):
            break
        assert isinstance(answer, Assign)
        bad = trial(len(trials) + 1, answer.setting, phase=Phase.CONFIRMING, state=state)
        trials.append(bad)
    assert isinstance(answer, Move)
    assert (answer.phase, answer.plan) == end


def test_the_same_past_gives_the_same_step() -> None:
    for count in range(len(TUNED) + 1):
        assert step(PROPOSED, TUNED[:count]) == step(PROPOSED, list(TUNED[:count]))


def test_a_fresh_start_measures_the_baseline_again() -> None:
    fresh = replace(study(Phase.BASELINE), since_trial=5, phase_since=5)
    assert isinstance(step(fresh, TUNED), Assign)


@pytest.mark.parametrize("phase", [Phase.HOLDING, Phase.PAUSED, Phase.STOPPED])
def test_a_study_in_a_resting_phase_takes_no_step(phase: Phase) -> None:
    paused_from = Phase.TUNING if phase is Phase.PAUSED else None
    resting = study(phase, plan=Plan.single(setting()), paused_from=paused_from)
    assert isinstance(step(resting, TUNED), Rest)


def test_a_window_without_the_requested_metrics_is_not_a_baseline() -> None:
    bare = window()
    figures = {k: v for k, v in bare.estimates.items() if k != "latency_p99_ms"}
    blind = [
        trial(n, setting(), replace(bare, estimates=figures), phase=Phase.BASELINE)
        for n in range(1, 7)
    ]
    assert isinstance(step(study(Phase.BASELINE), blind[:2]), Assign)
    end = step(study(Phase.BASELINE), blind)
    assert isinstance(end, Move)
    assert end.phase is Phase.HOLDING


def test_no_policy_spends_more_than_the_terms_allow() -> None:
    spent = [base(1), base(2), *(trial(n, setting(600), window(6.0, 110.0)) for n in range(3, 7))]
    move = step(study(), spent, Try(setting(800), "more"))
    assert isinstance(move, Move)
    assert (move.phase, move.plan) == (Phase.CONFIRMING, Plan.single(setting(600)))


def test_trials_ended_from_outside_are_not_spent() -> None:
    lost = [trial(n, setting(600), state=TrialState.ABORTED) for n in range(3, 9)]
    answer = step(study(), [base(1), base(2), *lost], Try(setting(800), "go on"))
    assert isinstance(answer, Assign)


@pytest.mark.parametrize("clock", [400, 99999])
def test_a_plan_the_guard_refuses_is_not_even_confirmed(clock: int) -> None:
    trials = [*TUNED, trial(5, setting(400), window(4.0, 200.0))]
    move = step(study(), trials, Done(Plan.single(setting(clock)), "looks cheap"))
    assert isinstance(move, Move)
    assert move.plan == Plan.single(setting(600))
    assert "cannot be held" in move.why


def test_every_row_of_a_plan_is_confirmed_and_the_whole_plan_held() -> None:
    plan = Plan((Row(10.0, setting(600)), Row(math.inf, setting(800))), by="arrival_rate_per_s")
    asked, end = confirm(
        replace(PROPOSED, plan=plan), TUNED, table({1000: (10, 100), 600: (6, 110), 800: (8, 105)})
    )
    assert asked == [setting(), setting(600)] * 2 + [setting(), setting(800)] * 2
    assert end.plan == plan


def test_an_unconfirmed_row_returns_to_the_baseline_and_the_others_stay() -> None:
    rows = (Row(5.0, setting(400)), Row(10.0, setting(600)), Row(math.inf, setting(800)))
    plan = Plan(rows, by="requests_in_system")
    truth = table({1000: (10, 100), 600: (10, 100), 400: (10, 100), 800: (8, 105)})
    asked, end = confirm(replace(PROPOSED, plan=plan), TUNED, truth)
    assert end.plan == Plan(
        (Row(10.0, setting()), Row(math.inf, setting(800))), by="requests_in_system"
    )
    assert "the baseline is held instead of gpu.clock_mhz=600 batch_size=1: its gain" in end.why
    assert "gpu.clock_mhz=800 batch_size=1: confirmed" in end.why
    assert asked.count(setting(800)) == 2


def test_a_plan_of_which_nothing_is_confirmed_makes_room_for_the_next_best() -> None:
    plan = Plan((Row(5.0, setting(600)), Row(math.inf, setting(400))), by="requests_in_system")
    truth = table({1000: (10, 100), 600: (8, 200), 400: (8, 200), 800: (8, 105)})
    _, end = confirm(replace(PROPOSED, plan=plan), TUNED, truth)
    assert end.plan == Plan.single(setting(800))


def test_a_row_at_the_baseline_has_nothing_to_win() -> None:
    plan = Plan((Row(5.0, setting()), Row(math.inf, setting(600))), by="requests_in_system")
    asked, end = confirm(
        replace(PROPOSED, plan=plan), TUNED, table({1000: (10, 100), 600: (6, 110)})
    )
    assert asked == [setting(), setting(600)] * 2
    assert end.plan == plan


def test_after_a_gain_that_is_not_proven_no_other_setting_has_a_chance_to_win_by_luck() -> None:
    truth = table({1000: (10, 100), 600: (9.9, 105), 800: (8, 105)})
    asked, end = confirm(PROPOSED, TUNED, truth)
    assert asked == [setting(), setting(600)] * MOST_COMPARED
    assert end.plan == Plan.single(setting())
    assert "its gain over the baseline is not proven" in end.why


@pytest.mark.parametrize(("relative", "proven"), [(0.03, True), (0.035, False)])
def test_a_gain_is_proven_from_two_standard_errors_of_at_most_five_windows(
    relative: float, proven: bool
) -> None:
    def truth(at: Setting) -> Measurement:
        return window(10.0 if at == setting() else 9.6, 100.0, relative=relative)

    _, end = confirm(PROPOSED, TUNED, truth)
    assert (end.plan == Plan.single(setting(600))) is proven, end.why


@pytest.mark.parametrize(("rate", "back"), [(100.0, True), (50.0, False)])
def test_another_rate_sends_the_study_back_to_its_baseline_and_foreign_load_does_not(
    rate: float, back: bool
) -> None:
    spoilt = [
        trial(n, setting(600), window(rate=rate), state=TrialState.CONTAMINATED) for n in (3, 4)
    ]
    at = replace(study(), phase_since=3)
    assert isinstance(step(at, [base(1), base(2), spoilt[0]], Try(setting(600), "x")), Assign)
    move = step(at, [base(1), base(2), *spoilt], Try(setting(600), "x"))
    assert isinstance(move, Move) is back


def loss(value: float, n: int, at: Setting, phase: Phase) -> Trial:
    return trial(n, at, window(extra={"loss": Estimate.of_mean(value, 0.0)}), phase=phase)


@pytest.mark.parametrize(
    ("shown", "won"),
    # Ax issues 1685 and 2812: a status quo below zero turned the sign of every relative improvement.
    [(-2.0, True), (-0.5, False), (-1.0, False)],
)
def test_a_negative_loss_is_confirmed_only_if_it_decreased(shown: float, won: bool) -> None:
    at = study(Phase.CONFIRMING, (), plan=Plan.single(setting(600)), objective=Objective("loss"))
    seen = [loss(-1.0, 1, setting(), Phase.BASELINE), loss(shown, 2, setting(600), Phase.TUNING)]
    at = replace(at, phase_since=3)
    for n in range(3, 9):
        moved = step(at, seen)
        if isinstance(moved, Move):
            break
        assert isinstance(moved, Assign)
        value = -1.0 if moved.setting == setting() else shown
        seen.append(loss(value, n, moved.setting, Phase.CONFIRMING))
    assert isinstance(moved, Move) and moved.plan is not None
    assert (moved.plan.rows[0].setting == setting(600)) is won
    assert "%" not in moved.why
