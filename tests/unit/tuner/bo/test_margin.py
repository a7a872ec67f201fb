"""How far from a limit a true value should stay."""

from __future__ import annotations

import math

import pytest

from tests.builders import setting, study, trial, window
from tuner.bo.margin import doubt, tightened, usual_gap
from tuner.core import Constraint, Estimate, Limit, Measurement, Phase, Trial, weigh

LIMIT = Limit("latency_p99_ms", "<=", 120.0)


def tail(value: float, high: float) -> Measurement:
    """Return a window whose p99 has a bound of its own."""
    shown = Estimate(value, 0.02 * value, 500, 0.9 * value, high)
    return window(extra={"latency_p99_ms": shown})


def baseline() -> list[Trial]:
    return [trial(n, setting(), tail(100.0, 104.0), phase=Phase.BASELINE) for n in (1, 2)]


def test_the_usual_gap_is_the_median_over_windows() -> None:
    trials = [*baseline(), trial(3, setting(800), tail(100.0, 130.0))]
    assert usual_gap(weigh(study(), trials), LIMIT) == pytest.approx(0.04)


def test_windows_without_a_bound_do_not_widen_the_gap() -> None:
    trials = [*baseline(), *(trial(n, setting(800), tail(100.0, math.inf)) for n in (3, 4, 5))]
    assert usual_gap(weigh(study(), trials), LIMIT) == pytest.approx(0.04)


def test_windows_cut_short_do_not_widen_the_gap() -> None:
    cut = [trial(n, setting(400), tail(150.0, 300.0), broke=LIMIT) for n in (3, 4, 5)]
    assert usual_gap(weigh(study(), [*baseline(), *cut]), LIMIT) == pytest.approx(0.04)


def test_without_any_window_there_is_no_gap() -> None:
    assert usual_gap(weigh(study(), []), LIMIT) == 0.0
    assert tightened(weigh(study(), []), LIMIT) == 120.0


def test_the_limit_of_a_tail_is_tightened_to_the_safe_side() -> None:
    evidence = weigh(study(), baseline())
    assert tightened(evidence, LIMIT) == pytest.approx(120.0 / 1.04)
    floor = Limit("latency_p99_ms", ">=", 80.0)
    assert tightened(evidence, floor) == pytest.approx(80.0 * 1.1)


@pytest.mark.parametrize("op", ["<=", ">="])
def test_the_limit_of_a_mean_is_taken_as_it_is(op: str) -> None:
    assert tightened(weigh(study(), baseline()), Limit("energy_j", op, 9.0)) == 9.0


def test_only_a_limit_relative_to_a_noisy_baseline_is_doubtful_itself() -> None:
    evidence = weigh(study(), baseline())
    shown = evidence.baseline["latency_p99_ms"]
    relative = Constraint.parse("latency_p99_ms <= 1.2x baseline")
    assert doubt(evidence, relative) == pytest.approx(shown.stderr / shown.mean)
    assert doubt(evidence, Constraint.parse("latency_p99_ms <= 120")) == 0.0
    assert doubt(evidence, Constraint.parse("queue_s <= 1.2x baseline")) == 0.0
