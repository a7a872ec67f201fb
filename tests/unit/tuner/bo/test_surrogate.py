"""The models agree with what was measured, as far as the noise allows, and know what they do not."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from torch import Tensor

from tests.builders import knob
from tuner.bo import surrogate
from tuner.bo.acquisition import Belief
from tuner.bo.encoding import Grid, enumerate_grid
from tuner.bo.prior import Hypothesis, hypotheses
from tuner.bo.surrogate import (
    LEAST_NOISE,
    LEVEL,
    RESIDUALS,
    ROUGHNESS,
    RowReading,
    Scale,
    posterior,
)
from tuner.core import Estimate, Kind, Space

CLOCKS = tuple(range(400, 1401, 50))
SPACE = Space((knob("clock_mhz", CLOCKS, 1400), knob("batch_size", (1, 2, 4, 8, 16), 4)))
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


KINDS = (Kind.ENERGY, Kind.TIME)
PRIORS = hypotheses(GRID, KINDS, (True, True))
SPREAD = [BASELINE, 0, 7, 23, 38, 52, 64, 77, 93, 100]


def read(rows: list[int], noise: float = 0.005, metric: int = 0) -> list[RowReading]:
    return [RowReading(metric, row, float(truth()[row]), noise) for row in rows]


def believed(readings: list[RowReading], priors: tuple[Hypothesis, ...] = PRIORS) -> Belief:
    """Return what the readings make of the priors, energy first."""
    metrics = priors[0].centres.shape[1] // len(GRID.settings)
    return Belief(posterior(GRID, metrics, readings, priors), 1.0, ())


def test_weights_are_positive_and_add_up_to_one() -> None:
    components = posterior(GRID, 2, read(SPREAD), PRIORS)
    assert sum(c.weight for c in components) == pytest.approx(1.0)
    assert all(c.weight > 0.0 for c in components)
    for component in components:
        assert component.mean.shape == component.sd.shape == (len(GRID.settings), 2)


def test_many_ways_that_are_equally_likely_all_count() -> None:
    """Each has far less than the share below which one is left out beside a likelier one."""
    flat = Hypothesis(torch.zeros(1, len(GRID.settings)), torch.zeros(0, len(GRID.settings)))
    components = posterior(GRID, 1, [], [Hypothesis(flat.centres, flat.features)] * 30)
    assert len(components) > 300
    assert sum(c.weight for c in components) == pytest.approx(1.0)


def test_exact_readings_are_believed() -> None:
    belief = believed(read(SPREAD, LEAST_NOISE))
    assert belief.mean[SPREAD, 0].numpy() == pytest.approx(truth()[SPREAD].numpy(), abs=0.01)
    assert float(belief.sd[SPREAD, 0].max()) < 0.01


def test_a_smooth_surface_is_learnt_from_a_tenth_of_it() -> None:
    belief = believed(read(SPREAD))
    error = belief.mean[:, 0] - truth()
    assert float(error.square().mean().sqrt()) < 0.05
    covered = (error.abs() <= 2.0 * belief.sd[:, 0]).double().mean()
    assert float(covered) > 0.9


def test_noisy_readings_are_doubted() -> None:
    sharp = believed([*read([BASELINE]), RowReading(0, 50, 0.3, 0.01)])
    vague = believed([*read([BASELINE]), RowReading(0, 50, 0.3, 0.3)])
    assert float(sharp.sd[50, 0]) < 0.05 < float(vague.sd[50, 0])
    assert abs(float(sharp.mean[50, 0]) - 0.3) < abs(float(vague.mean[50, 0]) - 0.3)


def test_certainty_falls_with_the_distance_to_what_was_read() -> None:
    sd = believed(read([BASELINE])).sd[:, 0]
    rows = [GRID.rows[(("batch_size", 4), ("clock_mhz", c))] for c in (1400, 1300, 1000, 400)]
    assert sd[rows].tolist() == sorted(sd[rows])
    assert float(sd[rows[-1]]) > 0.1 > 0.01 > float(sd[rows[0]])


def test_two_readings_of_a_clock_tell_of_the_others() -> None:
    def doubt(*clocks: int) -> float:
        """Return the doubt of every other clock: the readings follow one law."""
        seen = [GRID.rows[(("batch_size", 4), ("clock_mhz", c))] for c in clocks]
        rest = [row for row, s in enumerate(GRID.settings) if s["batch_size"] == 4]
        sd = believed(read(seen)).sd[:, 0]
        return float(sd[rest].mean())

    assert doubt(1400, 900) < 0.6 * doubt(1400)
    assert doubt(1400, 900, 500) < 0.6 * doubt(1400, 900)


def test_power_tells_of_energy() -> None:
    """What still draws much power at half the clock saves less energy than what draws little."""
    half = GRID.rows[(("batch_size", 4), ("clock_mhz", 700))]
    priors = hypotheses(GRID, (Kind.ENERGY, Kind.POWER), (True, True))
    at_baseline = [*read([BASELINE]), RowReading(1, BASELINE, 0.0, 0.005)]

    def energy(power: float) -> float:
        drawn = RowReading(1, half, math.log(power), 0.005)
        return float(believed([*at_baseline, drawn], priors).mean[half, 0])

    assert energy(0.45) < energy(0.9) - 0.1


def test_one_reading_of_an_unknown_metric_leaves_the_prior_elsewhere() -> None:
    unknown = hypotheses(GRID, (Kind.OTHER,), (True,))
    belief = believed([RowReading(0, BASELINE, 0.0, 0.01)], unknown)
    assert float(belief.mean.abs().max()) < 1e-9
    assert 0.1 < float(belief.sd[0, 0]) < 2.0


def test_one_contaminated_reading_does_not_drag_what_is_far_from_it() -> None:
    lied = next(r for r in SPREAD if r not in (BASELINE, 0, 100))
    honest = read([r for r in SPREAD if r != lied])
    wild = believed([*honest, RowReading(0, lied, float(truth()[lied]) + 1.0, 0.005)])
    near = GRID.points - GRID.points[lied]
    far = near.norm(dim=1) > 0.5
    moved = (wild.mean[:, 0] - believed(honest).mean[:, 0]).abs()
    assert float(moved[lied]) > 0.5
    assert float(moved[far].median()) < 0.1
    assert float((wild.mean[far, 0] - truth()[far]).abs().median()) < 0.15


def test_a_metric_not_measured_at_some_rows_is_less_certain_there() -> None:
    priors = hypotheses(GRID, (Kind.ENERGY, Kind.OTHER), (True, True))
    some = [RowReading(1, row, 0.0, 0.005) for row in SPREAD[:4]]
    belief = believed([*read(SPREAD), *some], priors)
    with_it, without = belief.sd[SPREAD[:4], 1], belief.sd[SPREAD[5:], 1]
    assert float(with_it.max()) < float(without.min())
    assert float(belief.sd[SPREAD, 0].max()) < 0.01


def test_a_metric_that_was_never_measured_is_as_unsure_as_before() -> None:
    belief = believed(read(SPREAD), hypotheses(GRID, (Kind.ENERGY, Kind.OTHER), (True, True)))
    assert bool((belief.sd[:, 1] >= LEVEL).all())


def test_constant_readings_are_no_trouble() -> None:
    belief = believed([RowReading(0, row, 0.0, 0.01) for row in SPREAD])
    assert bool((belief.sd > 0.0).all())
    assert float(belief.mean[SPREAD, 0].abs().max()) < 0.01


def test_contradicting_readings_are_no_trouble() -> None:
    wild = believed([RowReading(0, row, (-1.0) ** i, 0.003) for i, row in enumerate(SPREAD)])
    assert bool((torch.isfinite(wild.mean) & torch.isfinite(wild.sd)).all())


def test_the_same_readings_in_any_order_give_the_same_and_nobody_elses_draws_move() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, again = believed(read(SPREAD)), believed(read(SPREAD))
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(first.mean, again.mean)
    assert torch.equal(first.sd, again.sd)
    turned = believed(read(SPREAD[::-1]))
    assert torch.allclose(turned.mean, first.mean, atol=1e-6)


TINY = enumerate_grid(Space((knob("clock_mhz", (400, 700, 1000), 1000),)))


def dense(prior: Hypothesis, readings: list[RowReading]) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation of two metrics at the tiny grid's rows, by nothing but definition.

    Every law under every size of residual is one multivariate normal distribution over all rows and
    metrics, conditioned on the readings and weighed by their density.
    """
    seen = [r.metric * 3 + r.row for r in readings]
    values, noise = np.array([r.value for r in readings]), np.diag([r.noise**2 for r in readings])
    features, apart = prior.features.numpy(), np.abs(TINY.points.numpy() - TINY.points.numpy().T)
    weights, means, seconds = [], [], []
    for (length, size), rough in product(RESIDUALS, ROUGHNESS):
        reach = math.sqrt(5.0) * apart / length
        smooth = size**2 * (1.0 + reach + reach**2 / 3.0) * np.exp(-reach)
        one = LEVEL**2 + smooth + rough**2 * np.eye(3)
        whole = np.kron(np.eye(2), one) + features.T @ features
        known = whole[np.ix_(seen, seen)] + noise
        gain = whole[:, seen] @ np.linalg.inv(known)
        left = np.diag(whole - gain @ whole[seen])
        for law in prior.centres.numpy():
            weights.append(multivariate_normal(law[seen], known).pdf(values))
            means.append(law + gain @ (values - law[seen]))
            seconds.append(left + means[-1] ** 2)
    mean = np.average(means, axis=0, weights=weights)
    sd = np.sqrt(np.average(seconds, axis=0, weights=weights) - mean**2)
    return mean.reshape(2, 3).T, sd.reshape(2, 3).T


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_posterior_is_that_of_the_dense_distribution(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    prior = hypotheses(TINY, KINDS, (True, True))[place]
    readings = [
        RowReading(0, 2, 0.01, 0.02),
        RowReading(1, 2, 0.0, 0.02),
        RowReading(1, 1, 0.25, 0.05),
        RowReading(0, 0, -0.1, 0.03),
    ]
    mean, sd = dense(prior, readings)
    rough = Belief(posterior(TINY, 2, readings, [prior]), 1.0, ())
    assert rough.mean.numpy() == pytest.approx(mean, abs=0.02)
    monkeypatch.setattr(surrogate, "NEGLIGIBLE", 0.0)
    exact = Belief(posterior(TINY, 2, readings, [prior]), 1.0, ())
    assert exact.mean.numpy() == pytest.approx(mean, abs=1e-6)
    assert exact.sd.numpy() == pytest.approx(sd, abs=1e-6)


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


@pytest.mark.parametrize(("mean", "sd"), [(1e4, 0.1), (0.0, 1e3), (1e4, 1e3)])
def test_a_prediction_is_finite_however_wild(mean: float, sd: float) -> None:
    told = Scale(100.0, True).prediction(mean, sd)
    assert math.isfinite(told.mean)
    assert math.isfinite(told.sd)


def test_a_prediction_has_the_moments_of_a_lognormal() -> None:
    told = Scale(100.0, True).prediction(math.log(0.8), 0.1)
    draws = torch.exp(math.log(80.0) + 0.1 * torch.randn(200_000, dtype=torch.float64))
    assert told.mean == pytest.approx(float(draws.mean()), rel=0.01)
    assert told.sd == pytest.approx(float(draws.std()), rel=0.02)


def test_no_window_is_believed_to_be_exact() -> None:
    assert Scale(100.0, True).width(Estimate(50.0, 0.0)) == LEAST_NOISE
    assert Scale(100.0, True).width(Estimate(50.0, 5.0)) == pytest.approx(0.1)
    assert Scale(0.0, False, 20.0).width(Estimate(0.0, 5.0)) == pytest.approx(0.25)
