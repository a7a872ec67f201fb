"""The margin that a true value should keep from the limit of a tail."""

from __future__ import annotations

import math

import pytest

from tests.builders import setting, study, trial, window
from tuner.bo.margin import tail_gap
from tuner.core import (
    Estimate,
    Kind,
    Limit,
    Measurement,
    OverWindows,
    Phase,
    Quantity,
    Trial,
    weigh,
)

LIMIT = Limit("latency_p99_ms", "<=", 120.0)
FLOOR = Limit("latency_p99_ms", ">=", 80.0)


def tail(value: float, high: float) -> Measurement:
    """Return a window with this bound of its p99."""
    shown = Estimate(value, 0.02 * value, 500, 0.9 * value, high)
    return window(extra={"latency_p99_ms": shown})


def baseline() -> list[Trial]:
    return [trial(n, setting(), tail(100.0, 104.0), phase=Phase.BASELINE) for n in (1, 2)]


def test_the_gap_is_the_median_over_windows() -> None:
    trials = [*baseline(), trial(3, setting(800), tail(100.0, 130.0))]
    assert tail_gap(weigh(study(), trials), LIMIT) == pytest.approx(1.0 / 1.04)


def test_windows_without_a_bound_do_not_widen_the_gap() -> None:
    trials = [*baseline(), *(trial(n, setting(800), tail(100.0, math.inf)) for n in (3, 4, 5))]
    assert tail_gap(weigh(study(), trials), LIMIT) == pytest.approx(1.0 / 1.04)


def test_windows_cut_short_do_not_widen_the_gap() -> None:
    cut = [trial(n, setting(400), tail(150.0, 300.0), broke=LIMIT) for n in (3, 4, 5)]
    assert tail_gap(weigh(study(), [*baseline(), *cut]), LIMIT) == pytest.approx(1.0 / 1.04)


def test_without_any_window_there_is_no_gap() -> None:
    assert tail_gap(weigh(study(), []), LIMIT) == 1.0


def test_windows_that_show_nothing_have_no_gap() -> None:
    nothing = [trial(n, setting(), tail(0.0, 5.0), phase=Phase.BASELINE) for n in (1, 2)]
    assert tail_gap(weigh(study(), nothing), LIMIT) == 1.0


def test_a_tail_stays_on_the_safe_side_of_its_limit() -> None:
    evidence = weigh(study(), baseline())
    assert tail_gap(evidence, LIMIT) == pytest.approx(1.0 / 1.04)
    assert tail_gap(evidence, FLOOR) == pytest.approx(1.1)


@pytest.mark.parametrize("op", ["<=", ">="])
def test_the_limit_of_a_mean_is_taken_as_it_is(op: str) -> None:
    assert tail_gap(weigh(study(), baseline()), Limit("energy_j", op, 9.0)) == 1.0


def test_a_metric_may_be_declared_a_tail() -> None:
    shown = window(extra={"slowest_s": Estimate(1.0, 0.02, 500, 0.9, 1.25)})
    trials = [trial(n, setting(), shown, phase=Phase.BASELINE) for n in (1, 2)]
    limit = Limit("slowest_s", "<=", 2.0)
    declared = study(
        quantities={"slowest_s": Quantity("s", kind=Kind.TIME, over_windows=OverWindows.TAIL)}
    )
    assert tail_gap(weigh(declared, trials), limit) == pytest.approx(1.0 / 1.25)
    assert tail_gap(weigh(study(), trials), limit) == 1.0
