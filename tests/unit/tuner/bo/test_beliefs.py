"""What the evidence of a baseline alone tells of settings that nobody has tried."""

from __future__ import annotations

import pytest

from tests.builders import asked, trial, window
from tests.unit.tuner.bo.searches import seen
from tuner.core import Knob, Phase, Space, setting_key


def slower_under_three_quarters(limit: float, knob: str) -> float:
    """Return how much slower (log) a workload should be that draws 100 W, under 3/4 of its limit."""
    at = asked(20, space=Space((Knob(knob, (0.5 * limit, 0.75 * limit, limit), limit),)))
    shown = window(2.0, 100.0, rate=50.0)
    found = seen(at, [trial(n, at.baseline, shown, phase=Phase.BASELINE) for n in (1, 2)])
    row = found.grid.rows[setting_key({knob: 0.75 * limit})]
    return float(found.view.belief.mean[row, 1])


@pytest.mark.parametrize(
    ("knob", "unit"), [("gpu.power_limit_w", 1.0), ("power_limit_mw", 1e3), ("limit_uw", 1e6)]
)
def test_a_limit_far_above_what_the_baseline_draws_is_not_thought_to_bind(
    knob: str, unit: float
) -> None:
    """The unit is the one that the knob's name tells."""
    ample, tight = (slower_under_three_quarters(w * unit, knob) for w in (200.0, 102.0))
    assert ample < 0.3 * tight
