"""The predictions follow the windows within their errors, and no further."""

from __future__ import annotations

import math

import pytest

from tests.builders import knob, setting, trial, window
from tests.unit.tuner.bo.searches import CLOCKS, at_baseline, believed, ladder, measured, seen
from tuner.bo.search import Search
from tuner.core import (
    Estimate,
    Limit,
    Measurement,
    Phase,
    Space,
    Study,
    Trial,
)

AT_700 = CLOCKS.index(700)


def started(at: Study, shown: Measurement, first: int = 1) -> list[Trial]:
    """Return two equal windows of the baseline."""
    return [trial(n, at.baseline, shown, phase=Phase.BASELINE) for n in (first, first + 1)]


def queued(ms: float, stderr: float) -> Measurement:
    """Return a window that also shows the mean of a time."""
    return window(extra={"queue_ms": Estimate.of_mean(ms, stderr, 500)})


def after(limit: str, start: Measurement, then: Measurement) -> Search:
    """Return the predictions after a window of the baseline and one of 700 MHz."""
    at = ladder(constraints=(limit,))
    return seen(at, [*started(at, start), trial(3, setting(700), then)])


def test_a_limit_relative_to_a_noisy_baseline_is_less_certain_than_one_in_units() -> None:
    """Both limits are 120 ms; after two windows the baseline's 100 ms are still uncertain."""

    def kept(limit: str) -> float:
        return float(after(limit, queued(100.0, 10.0), queued(112.0, 0.5)).chance[AT_700])

    assert kept("queue_ms <= 1.2x baseline") < kept("queue_ms <= 120") - 0.01


def test_a_tail_whose_bounds_lie_far_above_it_has_to_stay_further_below_its_limit() -> None:
    """Both are equally certain, but no window could prove that one of them keeps its limit."""

    def kept(high: float) -> float:
        def tail(ms: float) -> Measurement:
            shown = Estimate(ms, 0.01 * ms, 500, 0.95 * ms, high * ms)
            return window(extra={"latency_p99_ms": shown})

        search = after("latency_p99_ms <= 1.2x baseline", tail(100.0), tail(112.0))
        return float(search.chance[AT_700])

    assert kept(1.12) < 0.5 < kept(1.02)


def test_a_window_cut_short_leaves_more_doubt_than_a_complete_one() -> None:
    """The numbers are equal, but the rest of the window was not measured."""

    def doubt(broke: Limit | None) -> float:
        at = ladder()
        shown = trial(3, setting(700), window(9.0, 140.0), broke=broke)
        return float(believed(seen(at, [*at_baseline(at), shown]), "latency_p99_ms")[1][AT_700])

    assert doubt(Limit("latency_p99_ms", "<=", 120.0)) > 2.0 * doubt(None)


def test_predictions_do_not_depend_on_when_the_baseline_was_measured() -> None:
    """The setting measured first is thirty times as slow."""
    at = ladder()
    first = seen(at, [*started(at, window()), measured(3, 500, 200.0, 3000.0)])
    last = seen(at, [measured(1, 500, 200.0, 3000.0), *started(at, window(), first=2)])
    assert last.chance.tolist() == pytest.approx(first.chance.tolist(), abs=1e-6)
    for row in range(len(CLOCKS)):
        expected = first.view.predicted(row)
        for metric, prediction in last.view.predicted(row).items():
            assert prediction.mean == pytest.approx(expected[metric].mean, rel=1e-6)
            assert prediction.sd == pytest.approx(expected[metric].sd, rel=1e-6)


def test_a_tiny_margin_below_a_limit_is_never_sure() -> None:
    search = after("queue_ms <= 120", queued(100.0, 0.0), queued(119.8, 0.0))
    assert 0.5 < float(search.chance[AT_700]) < 0.9


def test_where_neighbours_jump_about_a_row_between_them_is_as_uncertain_as_they_differ() -> None:
    """Every second clock was measured without error."""
    clocks = tuple(range(500, 1001, 25))
    at = ladder(space=Space((knob("gpu.clock_mhz", clocks, 1000),)), constraints=())

    def doubt(jump: float) -> float:
        trials = started(at, window(relative=0.001))
        for place, mhz in enumerate(clocks[1:-1:2]):
            shown = window(mhz / 100.0 * math.exp(jump * (-1) ** place), relative=0.001)
            trials.append(trial(3 + place, {"gpu.clock_mhz": mhz}, shown))
        return float(believed(seen(at, trials), "energy_j")[1][clocks.index(750)])

    assert doubt(0.0) < 0.02 < doubt(0.04)
