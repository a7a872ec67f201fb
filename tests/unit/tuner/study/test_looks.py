"""The levels of a gain's looks: Student's t against printed tables."""

from __future__ import annotations

import pytest

from tuner.study import looks
from tuner.study.looks import beyond_scatter, proven_t


@pytest.mark.parametrize(
    ("freedom", "level", "t"),
    [(1, 0.005, 63.657), (2, 0.005, 9.925), (3, 0.005, 5.841), (4, 0.01, 3.747), (9, 0.025, 2.262)],
)
def test_the_points_are_those_of_the_tables(
    freedom: int, level: float, t: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "LEVELS", (2.0 * level,))
    assert proven_t(freedom, 0, among=2) == pytest.approx(t, abs=6e-4)


def test_two_values_show_no_scatter_and_nothing_is_proven_by_none() -> None:
    assert not beyond_scatter([1.0], [2.0]) and not beyond_scatter([], [2.0, 2.0])
    assert beyond_scatter([1.0, 1.1], [3.0, 3.1]) and not beyond_scatter([1.0, 1.5], [3.0, 2.5])
    assert proven_t(0, 0) > 1e9
