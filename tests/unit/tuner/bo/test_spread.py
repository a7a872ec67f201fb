"""A metric that nobody knows is taken to move as much as it was seen to move, and no less at first."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tuner.bo.searches import LADDER
from tuner.bo.encoding import enumerate_grid
from tuner.bo.spread import SPREADS, learnt_spread

GRID = enumerate_grid(LADDER)


def spread(shares: list[float], stderr: float = 1e-4) -> float:
    rows = torch.arange(len(shares))
    told = torch.tensor(shares, dtype=torch.float64)
    return learnt_spread(GRID, rows, told, torch.full_like(told, stderr))


def test_before_anything_was_tried_it_may_move_as_much_as_a_time() -> None:
    assert spread([]) == max(SPREADS)


def test_what_moves_by_percents_is_told_from_what_moves_by_factors() -> None:
    falling = [0.5, 0.4, 0.3, 0.2, 0.1]
    assert spread([0.03 * share for share in falling]) < 0.15
    assert spread(falling) > 0.5


def test_one_row_that_does_not_move_is_not_taken_for_all() -> None:
    assert spread([0.0]) > 3 * spread([0.0] * 5)


def test_readings_that_nobody_is_sure_of_teach_little() -> None:
    assert spread([0.0, 0.0], stderr=1.0) > 3 * spread([0.0, 0.0])


@given(st.lists(st.floats(-0.9, 5.0), max_size=5))
def test_it_is_always_one_that_can_be(shares: list[float]) -> None:
    assert min(SPREADS) <= spread(shares) <= max(SPREADS) + 1e-9
    assert spread(shares) == pytest.approx(spread(shares))
