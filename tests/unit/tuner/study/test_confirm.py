"""Every row of a plan, confirmed at the load that it was decided at."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest

from tests.builders import past, setting, study, trial, window
from tuner.core import (
    Context,
    Done,
    Estimate,
    Measurement,
    Past,
    Phase,
    Plan,
    Row,
    Setting,
    Signal,
    Study,
    Suggestion,
    Trial,
    TrialState,
)
from tuner.study.confirm import (
    CONFIRM_MOST,
    CONFIRM_WINDOWS,
    MOST_COMPARED,
    PENDING,
    compared,
    most_tries,
)
from tuner.study.lifecycle import next_step
from tuner.study.moves import Assign, Move
from tuner.study.sequential_tests import beyond_scatter

BY = "requests_in_system"
TUNED = [
    trial(1, setting(), window(), phase=Phase.BASELINE),
    trial(2, setting(), window(), phase=Phase.BASELINE),
    trial(3, setting(600), window(6.0, 110.0)),
    trial(4, setting(800), window(8.0, 105.0)),
]

Truth = Callable[[Setting, Context], Measurement | TrialState]
Asked = list[tuple[int, float | None]]


class Silent:
    """A policy that must not be called while a plan is confirmed."""

    def suggest(self, past: Past) -> Suggestion:
        return Done(Plan.single(setting()), "")


def proposed(*rows: Row, askable: bool = True) -> Study:
    signals = (Signal(BY, askable=askable),)
    return study(Phase.CONFIRMING, plan=Plan(rows, BY), phase_since=5, signals=signals)


def confirm(
    at: Study, truth: Truth, before: Sequence[Trial] = TUNED
) -> tuple[Asked, Move, list[Trial]]:
    """Play the phase; return the requested clocks and loads, the end, and all trials."""
    trials, windows = list(before), Asked()
    for _ in range(4 * CONFIRM_MOST):
        step = next_step(past(at, trials), Silent())
        assert step == next_step(past(at, list(trials)), Silent()), "the same past, the same step"
        if isinstance(step, Move):
            return windows, step, trials
        assert isinstance(step, Assign)
        windows.append((int(step.setting["gpu.clock_mhz"]), step.context.get(BY)))
        outcome = truth(step.setting, step.context)
        ended = (
            {"state": outcome, "reason": f"overrun at {step.context.get(BY, 0):g}"}
            if isinstance(outcome, TrialState)
            else {"measurement": replace(outcome, context=step.context or outcome.context)}
        )
        trials.append(
            trial(
                len(trials) + 1,
                step.setting,
                phase=Phase.CONFIRMING,
                context=step.context,
                **ended,
            )
        )
    raise AssertionError("confirming does not end")


def saves(at: Setting, context: Context) -> Measurement:
    """Return a window: the energy falls with the clock; the latency grows with the load."""
    wait = 25.0 * context.get(BY, 4.0)
    return window(float(at["gpu.clock_mhz"]) / 100.0, wait * (1.1 if at != setting() else 1.0))


LOW, HIGH = Row(3.0, setting(600), at=2.0), Row(math.inf, setting(800), at=8.0)


def test_a_row_is_confirmed_at_the_load_it_was_decided_at() -> None:
    at = proposed(LOW, HIGH)
    windows, end, _ = confirm(at, saves)
    assert windows == [(1000, 2), (600, 2)] * 2 + [(1000, 8), (800, 8)] * 2
    assert (end.phase, end.plan) == (Phase.HOLDING, at.plan)
    assert "gpu.clock_mhz=600 batch_size=1 at requests_in_system = 2: confirmed" in end.why
    assert "gpu.clock_mhz=800 batch_size=1 at requests_in_system = 8: confirmed" in end.why


@pytest.mark.promise(
    "a plan is good at one load only, or one of its rows drifts",
    "each row is confirmed, limited and monitored at its own load; a lost row becomes the baseline",
)
def test_a_setting_is_confirmed_at_each_load_and_lost_at_loads_without_a_gain() -> None:
    again = Row(math.inf, setting(600), at=16.0)
    at = proposed(LOW, replace(HIGH, below=12.0), again)

    def truth(of: Setting, context: Context) -> Measurement:
        vain = of == setting(600) and context[BY] == 16
        return replace(saves(setting(), context) if vain else saves(of, context))

    windows, end, _ = confirm(at, truth)
    assert windows.count((600, 2)) == windows.count((600, 16)) == 2
    lost = replace(again, setting=setting())
    assert end.plan == Plan((LOW, replace(HIGH, below=12.0), lost), BY)
    assert (
        "the baseline is held instead of gpu.clock_mhz=600 batch_size=1 at requests_in_system = 16: "
        "its gain over the baseline is not proven" in end.why
    )


def test_a_row_keeps_the_limit_of_its_own_load() -> None:
    """The limit is 1.2 × 50 ms at a load of 2 and 1.2 × 400 ms at 16, not 1.2 × the study's 100 ms."""
    high = replace(HIGH, at=16.0)

    def truth(of: Setting, context: Context) -> Measurement:
        slow = of == setting(600)
        return window(float(of["gpu.clock_mhz"]) / 100.0, 100.0 if slow else 25.0 * context[BY])

    _, end, _ = confirm(proposed(LOW, high), truth)
    assert end.plan == Plan((replace(LOW, setting=setting()), high), BY)
    assert "at requests_in_system = 2: its confirming windows do not prove" in end.why


def test_a_load_that_cannot_be_requested_is_the_present_one_and_reported() -> None:
    at = proposed(LOW, HIGH, askable=False)
    windows, end, _ = confirm(at, saves)
    assert windows == [(1000, None), (600, None)] * 2 + [(1000, None), (800, None)] * 2
    assert end.plan == at.plan
    assert end.why.endswith("under the present load, because a trial cannot set requests_in_system")


def test_a_row_at_whose_load_the_baseline_fails_is_lost_and_the_others_stay() -> None:
    def truth(of: Setting, context: Context) -> Measurement | TrialState:
        return TrialState.FAILED if context[BY] == 8 else saves(of, context)

    _, end, _ = confirm(proposed(LOW, HIGH), truth)
    assert end.plan == Plan((LOW, replace(HIGH, setting=setting())), BY)
    assert "the baseline could not be measured at requests_in_system = 8: overrun at 8" in end.why


def test_a_plan_of_five_rows_is_settled_within_bounds_and_keeps_confirmed_rows() -> None:
    clocks = (600, 800, 600, 800, 600)
    rows = [Row(3.0 * 2**k, setting(c), at=2.0 * 2**k) for k, c in enumerate(clocks)]
    rows[-1] = replace(rows[-1], below=math.inf)

    def truth(of: Setting, context: Context) -> Measurement:
        measured = saves(of, context)
        if of == setting() or context[BY] == 2:
            return measured
        wait = measured.estimates["latency_p99_ms"].mean
        unsure = Estimate(wait, 0.1 * wait, 500, 0.9 * wait, 1.2 * wait)
        return replace(measured, estimates={**measured.estimates, "latency_p99_ms": unsure})

    windows, end, _ = confirm(proposed(*rows), truth)
    assert len(windows) == 2 * CONFIRM_WINDOWS + 4 * 2 * MOST_COMPARED
    assert end.plan is not None
    assert [r.setting for r in end.plan.rows] == [setting(600), setting()]
    assert "do not prove that it meets the limits" in end.why


def test_windows_at_other_requested_loads_do_not_inform_about_the_present_one() -> None:
    at = proposed(LOW, HIGH)
    _, _, trials = confirm(at, saves)
    assert past(at, trials).evidence == past(at, TUNED).evidence


@pytest.mark.parametrize("lack", [(1,), (1, 2), (1, 4), (3, 4), (2, 4)])
def test_a_window_without_the_objective_is_measured_again(lack: tuple[int, ...]) -> None:
    count = 0

    def truth(of: Setting, context: Context) -> Measurement:
        nonlocal count
        count += 1
        seen = saves(of, context)
        missing = {n: e for n, e in seen.estimates.items() if n != "energy_j" or count not in lack}
        return replace(seen, estimates=missing)

    at = study(Phase.CONFIRMING, plan=Plan.single(setting(600)), phase_since=5)
    windows, end, _ = confirm(at, truth)
    assert end.plan == at.plan and len(windows) == 2 * CONFIRM_WINDOWS + len(lack)
    assert not beyond_scatter([1.0], [2.0])


def disturbed(*spoilt: int) -> Truth:
    """Return windows with a gain that needs several looks; these of the setting are disturbed."""
    seen = {1000: 0, 600: 0}

    def truth(of: Setting, context: Context) -> Measurement | TrialState:
        clock = int(of["gpu.clock_mhz"])
        seen[clock] += 1
        if clock == 600 and seen[clock] in spoilt:
            return TrialState.CONTAMINATED
        return window((8.7 if clock == 600 else 10.0) * (1.0 + 0.03 * (-1) ** seen[clock]), 50.0)

    return truth


@pytest.mark.parametrize("askable", [True, False])
def test_disturbed_windows_do_not_count_as_looks(askable: bool) -> None:
    at = proposed(LOW, Row(math.inf, setting(), at=8.0), askable=askable)
    _, calm, _ = confirm(at, disturbed())
    _, end, _ = confirm(at, disturbed(2, 3, 4, 5))
    assert calm.plan == at.plan and end.plan == at.plan, end.why


def test_too_few_undisturbed_windows_are_not_a_missing_gain() -> None:
    at = study(Phase.CONFIRMING, plan=Plan.single(setting(600)), phase_since=5)

    def truth(of: Setting, context: Context) -> Measurement | TrialState:
        return TrialState.CONTAMINATED if of == setting(600) else saves(of, context)

    windows, end, _ = confirm(at, truth)
    assert end.plan == Plan.single(setting(800)), end.why
    assert windows.count((600, None)) == most_tries(at)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_a_contender_after_a_table_has_all_its_windows(rows: int) -> None:
    """All rows and the first contender use all their windows, as their limits are not proven."""
    of_rows = [setting(400), setting(600), setting(800), setting(400, 2), setting(600, 2)][:rows]
    unsure, last = setting(800, 4), setting(600, 4)
    trials = [trial(n, setting(), window(), phase=Phase.BASELINE) for n in (1, 2)]
    for each in [*of_rows, unsure, last]:
        trials.append(trial(len(trials) + 1, each, window(6.0 + 0.1 * len(trials))))
    plan = Plan(
        tuple(
            Row(3.0 * k if k < rows else math.inf, s, at=3.0 * k - 1.0)
            for k, s in enumerate(of_rows, 1)
        ),
        BY,
    )
    at = study(Phase.CONFIRMING, plan=plan, phase_since=len(trials) + 1, signals=(Signal(BY),))

    def truth(of: Setting, _: Context) -> Measurement:
        seen = window(10.0 if of == setting() else 6.0)
        wait = seen.estimates["latency_p99_ms"]
        high = 140.0 if of in (*of_rows, unsure) else wait.high
        return replace(
            seen, estimates={**seen.estimates, "latency_p99_ms": replace(wait, high=high)}
        )

    _, end, _ = confirm(at, truth, trials)
    assert end.plan == Plan.single(last), end.why


NOISE, PARTS = 0.02, 9


def won(rng: Random, gain: float, told: float = 1.0) -> bool:
    """Return whether a setting of this true gain is confirmed over all looks, at 2 % noise a window.

    A window's own standard error is that of ten parts, times `told`.
    """
    at = study(Phase.TUNING)
    evidence = past(at, TUNED).evidence

    def shown(mean: float) -> Estimate:
        seen = told * NOISE * (rng.gammavariate(PARTS / 2.0, 2.0) / PARTS) ** 0.5
        return Estimate.of_mean(mean * (1.0 + rng.gauss(0.0, NOISE)), mean * seen, PARTS + 1)

    base, own = [shown(10.0)], [shown(10.0 * (1.0 - gain))]
    while True:
        base.append(shown(10.0))
        own.append(shown(10.0 * (1.0 - gain)))
        if len(own) < CONFIRM_WINDOWS:
            continue
        before, after = ([{"energy_j": e} for e in each] for each in (base, own))
        result = compared(at, evidence, before, after, last=len(own) >= MOST_COMPARED)
        if result != PENDING:
            return result.won


def share_won(gains: Sequence[float], told: float = 1.0) -> float:
    rng = Random(7)
    return sum(won(rng, gain, told) for gain in gains) / len(gains)


def test_a_setting_without_a_gain_is_rarely_confirmed_over_all_looks() -> None:
    """Also where windows report half of their true error; else it is confirmed less often still."""
    assert share_won([0.0] * 8_000, told=0.5) <= 0.025


def test_a_setting_that_is_worse_is_hardly_ever_confirmed() -> None:
    assert share_won([-0.01] * 4_000) <= 0.005


def test_few_real_gains_are_missed() -> None:
    """Gains from 3 % to 20 %, as of a study at 2 % noise."""
    gains = [0.03 + 0.17 * step / 2_000 for step in range(2_000)]
    assert share_won(gains) >= 0.95


def test_a_promising_gain_is_measured_further_and_a_loss_is_not() -> None:
    at = study(Phase.CONFIRMING, plan=Plan.single(setting(600)), phase_since=5)
    tried = {}
    for gain in (-0.005, 0.005, 0.2):
        energy_j = {1000: 10.0, 600: 10.0 * (1.0 - gain)}

        def truth(of: Setting, _: Context, shown: Mapping[int, float] = energy_j) -> Measurement:
            return window(shown[int(of["gpu.clock_mhz"])])

        windows, end, _ = confirm(at, truth)
        tried[gain] = len(windows), "not proven" in end.why
    assert tried == {
        -0.005: (2 * CONFIRM_WINDOWS, True),
        0.005: (2 * MOST_COMPARED, True),
        0.2: (2 * CONFIRM_WINDOWS, False),
    }
