"""Invalid totals of a window are refused by name."""

from __future__ import annotations

import math

import pytest

from tests.errors import raised
from tuner.core import MeasurementError, Reading


@pytest.mark.parametrize("total", [-0.5, math.nan, math.inf, 1e200])
def test_a_total_that_nothing_can_add_up_to_is_refused_by_name(total: float) -> None:
    with raised(MeasurementError, "energy_j"):
        Reading({"energy_j": total})
