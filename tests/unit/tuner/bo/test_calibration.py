"""Readings left out one by one tell whether the model is too sure of itself."""

from __future__ import annotations

import math

import pytest
import torch

from tests.builders import knob
from tuner.bo import surrogate
from tuner.bo.calibration import CALM, calibrated
from tuner.bo.encoding import enumerate_grid
from tuner.bo.prior import Hypothesis
from tuner.bo.surrogate import Component, RowReading, posterior
from tuner.core import Space

GRID = enumerate_grid(Space((knob("clock_mhz", (400, 600, 800, 1000, 1200), 1000),)))
ROWS = len(GRID.settings)
NOISE = 0.01
FLAT = (Hypothesis(torch.zeros(1, 2 * ROWS).double(), torch.zeros(0, 2 * ROWS).double()),)
"""Nothing changes with the clock, but for residuals."""


def read(values: dict[int, float], metric: int) -> list[RowReading]:
    return [RowReading(metric, row, value, NOISE) for row, value in values.items()]


def found(readings: list[RowReading]) -> list[Component]:
    return posterior(GRID, 2, readings, FLAT)


@pytest.fixture
def one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a single component of the posterior, whose leave-one-out can be had by leaving out."""
    monkeypatch.setattr(surrogate, "RESIDUALS", ((0.25, 0.05),))
    monkeypatch.setattr(surrogate, "ROUGHNESS", (0.003,))


@pytest.mark.usefixtures("one_way")
def test_what_is_foretold_of_a_reading_is_what_the_others_say() -> None:
    readings = [*read({0: 0.2, 2: -0.1, 4: 0.05}, 0), *read({1: 0.3, 3: 0.0}, 1)]
    (whole,) = found(readings)
    for left, reading in enumerate(readings):
        (rest,) = found(readings[:left] + readings[left + 1 :])
        variance = float(rest.sd[reading.row, reading.metric]) ** 2 + NOISE**2
        assert float(whole.loo_mean[left]) == pytest.approx(
            float(rest.mean[reading.row, reading.metric]), abs=1e-6
        )
        assert float(whole.loo_variance[left]) == pytest.approx(variance, rel=1e-4)


def test_a_surprise_widens_the_metric_that_it_came_in_and_no_other() -> None:
    readings = [*read({0: 0.0, 1: 0.9, 2: 0.0, 4: 0.0}, 1), *read({3: 0.0}, 0)]
    before = found(readings)
    after = calibrated(before, readings, {1})
    unread = [row for row in range(ROWS) if row not in (0, 1, 2, 4)]
    for plain, wide in zip(before, after, strict=True):
        assert bool((wide.sd[unread, 1] > 1.2 * plain.sd[unread, 1]).all())
        assert torch.equal(wide.sd[:, 0], plain.sd[:, 0])
        assert torch.equal(wide.mean, plain.mean)


def test_no_row_is_less_sure_than_its_own_windows() -> None:
    readings = read({0: 0.0, 1: 0.9, 2: 0.0, 4: 0.0}, 1)
    for component in calibrated(found(readings), readings, {1}):
        assert float(component.sd[[0, 1, 2, 4], 1].max()) <= NOISE * (1.0 + 1e-9)


def test_what_came_as_foretold_changes_nothing() -> None:
    readings = read({0: 0.0, 1: 0.001, 2: 0.0, 4: -0.001}, 1)
    before = found(readings)
    for plain, same in zip(before, calibrated(before, readings, {1}), strict=True):
        assert torch.equal(same.sd, plain.sd)


def test_the_factor_is_the_root_mean_square_of_the_misses_and_starts_calm() -> None:
    """One reading, missed by three deviations of what was predicted without it."""
    component = Component(
        1.0,
        torch.zeros(2, 1).double(),
        torch.ones(2, 1).double(),
        torch.zeros(1).double(),
        torch.full((1,), 0.04).double(),
    )
    (wide,) = calibrated([component], [RowReading(0, 0, 0.6, 5.0)], {0})
    assert wide.sd[:, 0].tolist() == pytest.approx([math.sqrt((CALM + 9.0) / (CALM + 1.0))] * 2)
