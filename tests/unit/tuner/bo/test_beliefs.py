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
    assert ample < 0.5 * tight


def chance_of_a_low_ceiling(rate: float) -> float:
    """Return how likely 4 at a time keep the limit that 64 kept, at so many requests/s of 0.1 s."""
    at = asked(20, space=Space((Knob("max_num_seqs", (4, 64), 64),)))
    shown = window(2.0, 100.0, rate=rate)
    found = seen(at, [trial(n, at.baseline, shown, phase=Phase.BASELINE) for n in (1, 2)])
    return float(found.chance[found.grid.rows[setting_key({"max_num_seqs": 4})]])


def test_a_ceiling_that_is_not_full_may_be_one_below_which_requests_queue() -> None:
    """Ten requests/s fill nothing of 64 places, four hundred do."""
    assert chance_of_a_low_ceiling(10.0) < chance_of_a_low_ceiling(400.0) - 0.1
