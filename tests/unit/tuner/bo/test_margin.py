"""Slack and windows: what it takes until a setting may be deployed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.builders import setting, study, trial, window
from tuner.bo.proof import MOST_WINDOWS, tightened, usual_gap, windows_to_proof
from tuner.core import (
    Candidate,
    Constraint,
    Estimate,
    Limit,
    Measurement,
    Phase,
    Trial,
    Verdict,
    weigh,
)

LIMIT = Limit("latency_p99_ms", "<=", 120.0)


def tail(value: float, high: float) -> Measurement:
    """Return a window whose p99 has a bound of its own."""
    shown = Estimate(value, 0.02 * value, 500, 0.9 * value, high)
    return window(extra={"latency_p99_ms": shown})


def tails(*bounds: tuple[float, float]) -> Candidate:
    trials = [trial(3 + i, setting(800), tail(*b)) for i, b in enumerate(bounds)]
    found = weigh(study(), [*baseline(), *trials]).of(setting(800))
    assert found is not None
    return found


def baseline() -> list[Trial]:
    return [trial(n, setting(), tail(100.0, 104.0), phase=Phase.BASELINE) for n in (1, 2)]


def test_the_usual_gap_is_the_median_over_windows() -> None:
    trials = [*baseline(), trial(3, setting(800), tail(100.0, 130.0))]
    assert usual_gap(weigh(study(), trials), LIMIT) == pytest.approx(0.04)


def test_unbounded_windows_do_not_widen_the_gap() -> None:
    trials = [*baseline(), *(trial(n, setting(800), tail(100.0, math.inf)) for n in (3, 4, 5))]
    assert usual_gap(weigh(study(), trials), LIMIT) == pytest.approx(0.04)


def test_the_tightened_limit_lies_on_the_safe_side() -> None:
    evidence = weigh(study(), baseline())
    upper = Constraint.parse("latency_p99_ms <= 120")
    assert tightened(evidence, upper, LIMIT) == pytest.approx(120.0 / 1.04)
    lower, floor = Constraint.parse("latency_p99_ms >= 80"), Limit("latency_p99_ms", ">=", 80.0)
    assert tightened(evidence, lower, floor) == pytest.approx(80.0 * 1.1)


def test_a_relative_limit_is_tightened_by_the_baselines_doubt_as_well() -> None:
    evidence = weigh(study(), baseline())
    relative = Constraint.parse("latency_p99_ms <= 1.2x baseline")
    absolute = Constraint.parse("latency_p99_ms <= 120")
    assert tightened(evidence, relative, LIMIT) < tightened(evidence, absolute, LIMIT)


def test_a_window_that_was_unlucky_once_needs_two_more() -> None:
    candidate = tails((110.0, 125.0))
    assert candidate.verdict is Verdict.UNSURE
    assert windows_to_proof(candidate, [LIMIT], {"latency_p99_ms": 0.04}) == 2


def test_after_one_good_window_more_one_is_enough() -> None:
    candidate = tails((110.0, 125.0), (110.0, 115.0))
    assert windows_to_proof(candidate, [LIMIT], {"latency_p99_ms": 0.04}) == 1


def test_what_usual_windows_cannot_prove_is_given_up() -> None:
    assert windows_to_proof(tails((118.0, 125.0)), [LIMIT], {"latency_p99_ms": 0.04}) is None


def test_what_is_decided_needs_no_proof() -> None:
    assert windows_to_proof(tails((110.0, 115.0)), [LIMIT], {"latency_p99_ms": 0.04}) is None


def test_no_setting_is_measured_without_end() -> None:
    candidate = tails(*[(110.0, 125.0)] * MOST_WINDOWS)
    assert windows_to_proof(candidate, [LIMIT], {"latency_p99_ms": 0.04}) is None


def test_means_are_proven_by_their_standard_error() -> None:
    limit = Limit("energy_j", "<=", 10.15)
    shown = trial(3, setting(800), window(10.0, relative=0.01))
    wide = replace(study(), constraints=(Constraint.parse("energy_j <= 10.15"),))
    candidate = weigh(wide, [*baseline(), shown]).of(setting(800))
    assert candidate is not None
    needed = windows_to_proof(candidate, [limit], {"energy_j": 0.0165})
    assert needed is not None
    assert 1 <= needed < MOST_WINDOWS


def test_without_the_limited_metric_nothing_can_be_proven() -> None:
    candidate = tails((110.0, 125.0))
    other = Limit("queue_s", "<=", 1.0)
    assert windows_to_proof(candidate, [other], {"queue_s": 0.0}) is None
