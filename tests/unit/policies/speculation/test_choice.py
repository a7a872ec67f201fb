"""The best cell, and the window with the largest gain."""

from __future__ import annotations

import numpy as np
import pytest

from policies.speculation.choice import best_at, next_cell, surely_at
from policies.speculation.grid import Cell, Choice
from policies.speculation.surface import CostSurface


def cells(batch: int, lengths: int, draft: str = "a") -> tuple[Cell, ...]:
    return tuple(Cell(batch, Choice(s, (draft,))) for s in range(lengths))


def outlook(costs: list[float], sds: list[float], grid: tuple[Cell, ...] = ()) -> CostSurface:
    return CostSurface(
        grid or cells(1, len(costs)), np.array(costs), np.diag(np.array(sds, dtype=float) ** 2)
    )


def test_the_best_cell_is_of_its_batch_and_not_out() -> None:
    grid = (*cells(1, 2), *cells(2, 2))
    surface = outlook([0.0, 1.0, 3.0, 2.0], [0.1] * 4, grid)
    assert best_at(surface, 1) == grid[0]
    assert best_at(surface, 1, {grid[0]}) == grid[1]
    assert best_at(surface, 2) == grid[3]


def test_the_window_that_may_change_the_choice_comes_next() -> None:
    surface = outlook([0.0, 0.05, 2.0], [0.01, 0.2, 0.5])
    choice = next_cell(surface, surface.cells, 0.02)
    assert choice is not None
    cell, gain = choice
    assert cell.choice.length == 1
    assert 0.0 < gain < 0.2


def test_an_uninformative_window_has_no_gain() -> None:
    surface = outlook([0.0, 1.0], [1e-9, 1e-9])
    choice = next_cell(surface, surface.cells, 0.02)
    assert choice is not None
    assert choice[1] == pytest.approx(0.0, abs=1e-9)


def test_without_trials_left_there_is_no_next_window() -> None:
    assert next_cell(outlook([0.0], [0.1]), [], 0.02) is None


def test_drafting_that_may_be_dearer_than_plain_decoding_is_not_chosen() -> None:
    grid = cells(1, 2)
    assert surely_at(outlook([0.01, 0.0], [0.05, 0.05], grid), 1) == grid[0]
    assert surely_at(outlook([0.05, 0.0], [0.01, 0.01], grid), 1) == grid[1]
    assert surely_at(outlook([0.01, 0.0], [0.05, 0.05], grid), 1, {grid[0]}) == grid[1]
