"""The models agree with what was measured, as far as the noise allows, and know what they do not."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tuner.bo.encoding import Grid, enumerate_grid
from tuner.bo.surrogate import LEAST_NOISE, Reading, Scale, marginals
from tuner.core import Estimate, Knob, Space

CLOCKS = tuple(range(400, 1401, 50))
SPACE = Space((Knob("clock_mhz", CLOCKS, 1400), Knob("batch_size", (1, 2, 4, 8, 16), 4)))
GRID = enumerate_grid(SPACE)
BASELINE = GRID.rows[(("batch_size", 4), ("clock_mhz", 1400))]


def truth(grid: Grid = GRID) -> Tensor:
    """Return the log of a U-shaped energy over clock and batch, relative to the baseline."""
    values = []
    for setting in grid.settings:
        clock, batch = float(setting["clock_mhz"]) / 1400.0, float(setting["batch_size"])
        values.append(math.log(0.4 / clock + 0.2 + 0.6 * clock**2) - 0.25 * math.log(batch / 4.0))
    found = torch.tensor(values, dtype=torch.float64)
    return found - found[BASELINE]


def read(rows: list[int], noise: float = 0.005) -> list[Reading]:
    return [Reading(row, float(truth()[row]), noise) for row in rows]


SPREAD = [BASELINE, 0, 7, 23, 38, 52, 64, 77, 93, 100]


def test_exact_readings_are_believed() -> None:
    mean, sd = marginals(GRID, BASELINE, read(SPREAD, LEAST_NOISE), 0)
    assert mean[SPREAD].numpy() == pytest.approx(truth()[SPREAD].numpy(), abs=0.02)
    assert float(sd[SPREAD].max()) < 0.01


def test_a_smooth_surface_is_learnt_from_a_tenth_of_it() -> None:
    mean, sd = marginals(GRID, BASELINE, read(SPREAD), 0)
    error = mean - truth()
    assert float(error.square().mean().sqrt()) < 0.05
    covered = (error.abs() <= 2.0 * sd).double().mean()
    assert float(covered) > 0.9


def test_noisy_readings_are_doubted() -> None:
    sharp, sure = marginals(GRID, BASELINE, [*read([BASELINE]), Reading(50, 0.3, 0.01)], 0)
    vague, unsure = marginals(GRID, BASELINE, [*read([BASELINE]), Reading(50, 0.3, 0.3)], 0)
    assert float(sure[50]) < 0.05 < float(unsure[50])
    assert abs(float(sharp[50]) - 0.3) < abs(float(vague[50]) - 0.3)


def test_what_is_far_from_all_readings_is_less_certain() -> None:
    _, sd = marginals(GRID, BASELINE, read([BASELINE, BASELINE - 5]), 0)
    assert float(sd[0]) > 5.0 * float(sd[BASELINE - 5])


def test_one_reading_leaves_the_prior_elsewhere() -> None:
    mean, sd = marginals(GRID, BASELINE, [Reading(BASELINE, 0.0, 0.01)], 0)
    assert mean.abs().max() < 1e-9
    assert 0.1 < float(sd[0]) < 2.0


def test_constant_readings_are_no_trouble() -> None:
    mean, sd = marginals(GRID, BASELINE, [Reading(row, 0.0, 0.01) for row in SPREAD], 0)
    assert bool(torch.isfinite(mean).all())
    assert float(mean.abs().max()) < 0.01
    assert bool((sd > 0.0).all())


def test_contradicting_readings_are_no_trouble() -> None:
    wild = [Reading(row, (-1.0) ** i, 0.003) for i, row in enumerate(SPREAD)]
    mean, sd = marginals(GRID, BASELINE, wild, 0)
    assert bool((torch.isfinite(mean) & torch.isfinite(sd)).all())


def test_the_same_readings_give_the_same_model_and_nobody_elses_draws_move() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = marginals(GRID, BASELINE, read(SPREAD), 3)
    again = marginals(GRID, BASELINE, read(SPREAD), 3)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6))
def test_positive_metrics_are_taken_as_factors(reference: float, value: float) -> None:
    scale = Scale.of(reference, [value])
    assert scale.log
    assert scale.place(reference) == 0.0
    assert scale.prediction(scale.place(value), 0.0).mean == pytest.approx(value)


@given(st.floats(-1e6, 1e6), st.lists(st.floats(-1e6, 1e6), max_size=4))
def test_any_other_metric_is_taken_as_a_difference(reference: float, values: list[float]) -> None:
    scale = Scale.of(reference, [*values, 0.0])
    assert not scale.log
    for value in values:
        assert abs(scale.place(value)) <= 2.0
        back = scale.prediction(scale.place(value), 0.0).mean
        assert back == pytest.approx(value, abs=1e-6 * max(1.0, abs(reference)))


def test_a_prediction_has_the_moments_of_a_lognormal() -> None:
    told = Scale(100.0, True).prediction(math.log(0.8), 0.1)
    draws = torch.exp(math.log(80.0) + 0.1 * torch.randn(200_000, dtype=torch.float64))
    assert told.mean == pytest.approx(float(draws.mean()), rel=0.01)
    assert told.sd == pytest.approx(float(draws.std()), rel=0.02)


def test_no_window_is_believed_to_be_exact() -> None:
    assert Scale(100.0, True).width(Estimate(50.0, 0.0)) == LEAST_NOISE
    assert Scale(100.0, True).width(Estimate(50.0, 5.0)) == pytest.approx(0.1)
    assert Scale(0.0, False, 20.0).width(Estimate(0.0, 5.0)) == pytest.approx(0.25)
