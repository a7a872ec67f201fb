from __future__ import annotations

import pytest

from agents.target.window_counts import WindowCounts
from tests.builders import window
from tuner.core import UNDECLARED, Estimate, Origin


def test_joules_of_different_origin_are_kept_apart() -> None:
    counts = WindowCounts()
    guessed = Estimate.of_mean(100.0, 1.0, origin=Origin.ESTIMATED)
    counts.add(window(), UNDECLARED, spoilt=False)
    counts.add(window(extra={"power_w": guessed}), UNDECLARED, spoilt=True)
    assert counts.joules == {
        Origin.MEASURED: pytest.approx(5000.0),
        Origin.ESTIMATED: pytest.approx(1000.0),
    }
    assert (counts.measured, counts.spoilt, counts.failed) == (2, 1, 0)
    assert counts.seconds == 20.0


def test_a_window_without_a_meter_of_energy_adds_time_and_no_joules() -> None:
    counts, seen = WindowCounts(), window()
    estimates = {k: v for k, v in seen.estimates.items() if k not in ("power_w", "energy_j")}
    counts.add(
        type(seen)(estimates=estimates, started_at=seen.started_at, seconds=10.0), {}, spoilt=False
    )
    counts.fail()
    assert counts.joules == {}
    assert (counts.measured, counts.failed) == (1, 1)
