"""The models agree with the measurements within their noise, and are uncertain elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from torch import Tensor

from tests.builders import knob
from tests.profiles import examples
from tuner.bo import mixture
from tuner.bo.encoding import Grid, enumerate_grid
from tuner.bo.mixture import (
    BESIDE_LAWS,
    LEVEL,
    Leftover,
    Mixture,
    RowReading,
    without_laws,
)
from tuner.bo.prior import Hypothesis, no_law, physical_hypotheses
from tuner.bo.scale import LEAST_NOISE
from tuner.core import Kind, Space

CLOCKS = tuple(range(400, 1401, 50))
SPACE = Space((knob("clock_mhz", CLOCKS, 1400), knob("batch_size", (1, 2, 4, 8, 16), 4)))
GRID = enumerate_grid(SPACE)
BASELINE = GRID.rows[(("batch_size", 4), ("clock_mhz", 1400))]
KINDS = (Kind.ENERGY, Kind.TIME)
PRIORS = physical_hypotheses(GRID, KINDS)
SPREAD = [BASELINE, 0, 7, 23, 38, 52, 64, 77, 93, 100]


def truth(grid: Grid = GRID) -> Tensor:
    """Return the log of a U-shaped energy over clock and batch, relative to the baseline."""
    values = []
    for setting in grid.settings:
        clock, batch = float(setting["clock_mhz"]) / 1400.0, float(setting["batch_size"])
        values.append(math.log(0.4 / clock + 0.2 + 0.6 * clock**2) - 0.25 * math.log(batch / 4.0))
    surface = torch.tensor(values, dtype=torch.float64)
    return surface - surface[BASELINE]


def read(rows: list[int], noise: float = 0.005, metric: int = 0) -> list[RowReading]:
    return [RowReading(metric, row, float(truth()[row]), noise) for row in rows]


@dataclass
class Told:
    """The predictions of a whole mixture for every row: `rows x metrics`."""

    mean: Tensor
    sd: Tensor


def overall(mix: Mixture) -> Told:
    mean = torch.einsum("c,crm->rm", mix.weights, mix.mean)
    seconds = torch.einsum("c,crm->rm", mix.weights, mix.variance + (mix.mean - mean) ** 2)
    return Told(mean, seconds.sqrt())


def believed(readings: list[RowReading], priors: tuple[Hypothesis, ...] = PRIORS) -> Told:
    """Return the posteriors of the priors after the readings, energy first."""
    metrics = priors[0].centres.shape[1] // len(GRID.settings)
    return overall(Mixture(GRID, BASELINE, metrics, readings, priors))


def test_weights_are_positive_and_add_up_to_one() -> None:
    posterior = Mixture(GRID, BASELINE, 2, read(SPREAD), PRIORS)
    assert float(posterior.weights.sum()) == pytest.approx(1.0)
    assert bool((posterior.weights > 0.0).all())
    shape = len(posterior.weights), len(GRID.settings), 2
    assert posterior.mean.shape == posterior.variance.shape == posterior.with_home.shape == shape
    assert posterior.weights.shape == shape[:1]


def test_many_equally_likely_hypotheses_all_count() -> None:
    """Each weight is far below the share at which a component beside a likelier one is left out."""
    rows = len(TINY.settings)
    flat = Hypothesis(torch.zeros(1, rows).double(), torch.zeros(0, rows).double())
    mix = Mixture(TINY, HOME, 1, [], [flat] * 30)
    assert len(mix.weights) > 300
    assert torch.allclose(mix.weights, torch.full_like(mix.weights, 1.0 / len(mix.weights)))
    assert bool(torch.isfinite(mix.variance).all())


def test_exact_readings_are_believed() -> None:
    posterior = believed(read(SPREAD, LEAST_NOISE))
    assert posterior.mean[SPREAD, 0].numpy() == pytest.approx(truth()[SPREAD].numpy(), abs=0.01)
    assert float(posterior.sd[SPREAD, 0].max()) < 0.01


def test_a_smooth_surface_is_learnt_from_a_tenth_of_it() -> None:
    posterior = believed(read(SPREAD))
    error = posterior.mean[:, 0] - truth()
    assert float(error.square().mean().sqrt()) < 0.05
    covered = (error.abs() <= 2.0 * posterior.sd[:, 0]).double().mean()
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


def test_two_readings_of_a_clock_inform_about_the_others() -> None:
    def doubt(*clocks: int) -> float:
        """Return the uncertainty of every other clock if the readings follow one law."""
        seen = [GRID.rows[(("batch_size", 4), ("clock_mhz", c))] for c in clocks]
        rest = [row for row, s in enumerate(GRID.settings) if s["batch_size"] == 4]
        return float(believed(read(seen)).sd[rest, 0].mean())

    assert doubt(1400, 900) < 0.7 * doubt(1400)
    assert doubt(1400, 900, 500) < 0.7 * doubt(1400, 900)


def test_power_informs_about_energy() -> None:
    """A setting that still draws much power at half the clock saves less energy than another."""
    half = GRID.rows[(("batch_size", 4), ("clock_mhz", 700))]
    priors = physical_hypotheses(GRID, (Kind.ENERGY, Kind.POWER))
    at_baseline = [*read([BASELINE]), RowReading(1, BASELINE, 0.0, 0.005)]

    def energy(power: float) -> float:
        drawn = RowReading(1, half, math.log(power), 0.005)
        return float(believed([*at_baseline, drawn], priors).mean[half, 0])

    assert energy(0.45) < energy(0.9) - 0.1


def test_one_reading_of_an_unknown_metric_leaves_the_prior_elsewhere() -> None:
    posterior = believed([RowReading(0, BASELINE, 0.0, 0.01)], no_law(GRID))
    assert float(posterior.mean.abs().max()) < 1e-9
    assert 0.1 < float(posterior.sd[0, 0]) < 2.0


def test_one_contaminated_reading_does_not_move_distant_predictions() -> None:
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
    some = [RowReading(1, row, 0.0, 0.005) for row in SPREAD[:4]]
    posterior = believed([*read(SPREAD), *some])
    assert float(posterior.sd[SPREAD[:4], 1].max()) < float(posterior.sd[SPREAD[5:], 1].min())
    assert float(posterior.sd[SPREAD, 0].max()) < 0.01


def test_a_metric_that_was_never_measured_is_as_uncertain_as_before() -> None:
    assert bool((believed(read(SPREAD)).sd[:, 1] >= LEVEL).all())


def test_constant_readings_cause_no_error() -> None:
    posterior = believed([RowReading(0, row, 0.0, 0.01) for row in SPREAD])
    assert bool((posterior.sd > 0.0).all())
    assert float(posterior.mean[SPREAD, 0].abs().max()) < 0.015


def test_contradicting_readings_cause_no_error() -> None:
    wild = believed([RowReading(0, row, (-1.0) ** i, 0.003) for i, row in enumerate(SPREAD)])
    assert bool((torch.isfinite(wild.mean) & torch.isfinite(wild.sd)).all())


def test_the_same_readings_in_any_order_give_the_same_and_other_draws_stay() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    readings = [*read(SPREAD), *read(SPREAD[:3], metric=1)]
    first, again = (Mixture(GRID, BASELINE, 2, readings, PRIORS) for _ in range(2))
    assert torch.equal(torch.rand(3), expected)
    turned = Mixture(GRID, BASELINE, 2, readings[::-1], PRIORS)
    for name in ("weights", "mean", "variance", "with_home"):
        one, other, back = (getattr(m, name) for m in (first, again, turned))
        assert torch.equal(one, other)
        assert torch.allclose(one, back, atol=1e-6)


MODES = ("eager", "graph", "fused")
TINY = enumerate_grid(Space((knob("clock_mhz", (400, 1000), 1000), knob("mode", MODES, "graph"))))
ROWS = len(TINY.settings)
HOME = TINY.settings.index({"clock_mhz": 1000, "mode": "graph"})
EVERY = torch.arange(ROWS)
TINY_PRIORS = physical_hypotheses(TINY, KINDS)
READINGS = (
    RowReading(0, HOME, 0.01, 0.02),
    RowReading(1, HOME, 0.0, 0.02),
    RowReading(1, 1, 0.25, 0.05),
    RowReading(0, 0, -0.1, 0.03),
)
SURPRISING = (
    *READINGS,
    RowReading(1, 3, 0.9, 0.01),
    RowReading(1, 5, -0.9, 0.01),
    RowReading(1, 0, -0.9, 0.01),
)


@dataclass
class Dense:
    """One component: the density of the evidence, and the normal distribution over all rows."""

    weight: float
    mean: np.ndarray
    covariance: np.ndarray


def dense(
    priors: Sequence[Hypothesis],
    readings: Sequence[RowReading],
    rests: Sequence[Leftover] = BESIDE_LAWS,
) -> list[Dense]:
    """Return every component, computed directly from the definition.

    Every law with every leftover is one multivariate normal distribution over all rows of
    both metrics, conditioned on the readings and weighed by their density.
    """
    seen = [r.metric * ROWS + r.row for r in readings]
    values, noise = np.array([r.value for r in readings]), np.diag([r.noise**2 for r in readings])
    parts = []
    for rest, (residual, roughness) in [(one, size) for one in rests for size in one.sizes]:
        places = TINY.places.numpy() / np.array(rest.lengths)
        reach = math.sqrt(5.0) * np.linalg.norm(places[:, None] - places, axis=2)
        smooth = residual**2 * (1.0 + reach + reach**2 / 3.0) * np.exp(-reach)
        one = LEVEL**2 + smooth + roughness**2 * np.eye(ROWS)
        for prior in priors:
            features, laws = prior.features.numpy(), prior.centres.numpy()
            whole = np.kron(np.eye(2), one) + features.T @ features
            known = whole[np.ix_(seen, seen)] + noise
            gain = whole[:, seen] @ np.linalg.inv(known)
            misses = values - laws[:, seen]
            weights = np.atleast_1d(multivariate_normal(cov=known).pdf(misses))
            means = laws + misses @ gain.T
            mean = weights @ means / weights.sum()
            away = means - mean
            between = (weights[:, None] * away).T @ away / weights.sum()
            covariance = whole - gain @ whole[seen] + between
            parts.append(Dense(weights.mean(), mean, covariance))
    return parts


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every component, and predict in several blocks."""
    monkeypatch.setattr(mixture, "NEGLIGIBLE", 0.0)
    monkeypatch.setattr(mixture, "BLOCK", 4)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("place", range(len(TINY_PRIORS)))
def test_the_joint_posterior_is_the_dense_distribution(place: int) -> None:
    priors = TINY_PRIORS[place : place + 1]
    expected = dense(priors, READINGS)
    posterior = Mixture(TINY, HOME, 2, READINGS, priors)
    assert len(posterior.weights) == len(expected)
    for metric in range(2):
        means, covariances = posterior.joint(metric, EVERY, range(len(expected)))
        for component, way in enumerate(expected):
            mean = way.mean.reshape(2, ROWS)[metric]
            own = way.covariance.reshape(2, ROWS, 2, ROWS)[metric, :, metric]
            assert means[component].numpy() == pytest.approx(mean, abs=1e-6)
            assert covariances[component].numpy() == pytest.approx(own, abs=1e-6)
            at = component, slice(None), metric
            assert posterior.mean[at].numpy() == pytest.approx(mean, abs=1e-6)
            assert posterior.variance[at].numpy() == pytest.approx(own.diagonal(), abs=1e-6)
            assert posterior.with_home[at].numpy() == pytest.approx(own[HOME], abs=1e-6)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("rests", [BESIDE_LAWS, without_laws(TINY)[:2]])
def test_each_hypothesis_weighs_by_the_likelihood_of_the_readings(
    rests: Sequence[Leftover],
) -> None:
    ways = dense(TINY_PRIORS, READINGS, rests)
    expected = np.array([way.weight for way in ways])
    posterior = Mixture(TINY, HOME, 2, READINGS, TINY_PRIORS, rests)
    shares = sorted(expected / expected.sum())
    assert sorted(posterior.weights.tolist()) == pytest.approx(shares, abs=1e-6)
    mean = np.average([way.mean for way in ways], axis=0, weights=expected)
    assert overall(posterior).mean.T.flatten().numpy() == pytest.approx(mean, abs=1e-6)


def test_ways_of_little_weight_are_left_out_and_little_changes() -> None:
    readings = [*READINGS[:2], RowReading(1, 1, -0.6, 0.02), RowReading(0, 1, 0.4, 0.02)]
    ways = dense(TINY_PRIORS, readings)
    weights = np.array([way.weight for way in ways])
    posterior = Mixture(TINY, HOME, 2, readings, TINY_PRIORS)
    assert len(posterior.weights) < len(ways)
    mean = np.average([way.mean for way in ways], axis=0, weights=weights)
    assert overall(posterior).mean.T.flatten().numpy() == pytest.approx(mean, abs=0.03)


@pytest.mark.parametrize("readings", [(), READINGS, SURPRISING])
def test_the_joint_posterior_has_the_marginals(readings: tuple[RowReading, ...]) -> None:
    """For any rows in any order."""
    posterior = Mixture(TINY, HOME, 2, readings, TINY_PRIORS)
    rows, which = torch.tensor([HOME, 5, 0]), range(len(posterior.weights))
    for metric in range(2):
        means, own = posterior.joint(metric, rows, which)
        assert torch.allclose(means, posterior.mean[:, rows, metric])
        assert torch.allclose(own.diagonal(dim1=1, dim2=2), posterior.variance[:, rows, metric])
        assert torch.allclose(own[:, 0], posterior.with_home[:, rows, metric])
        assert torch.allclose(own, own.mT)
        assert float(torch.linalg.eigvalsh(own).min()) > 0.0


def test_some_components_can_be_selected_alone() -> None:
    posterior = Mixture(TINY, HOME, 2, READINGS, TINY_PRIORS)
    means, covariances = posterior.joint(1, EVERY, range(len(posterior.weights)))
    some, between = posterior.joint(1, EVERY, [3, 0])
    assert torch.equal(some, means[[3, 0]])
    assert torch.equal(between, covariances[[3, 0]])


FLAT = (Hypothesis(torch.zeros(1, 2 * ROWS).double(), torch.zeros(0, 2 * ROWS).double()),)
"""Nothing changes with any knob, except for residuals."""
NOISE = 0.01


def at_rows(values: dict[int, float], metric: int) -> list[RowReading]:
    return [RowReading(metric, row, value, NOISE) for row, value in values.items()]


def flat(readings: Sequence[RowReading]) -> Mixture:
    return Mixture(TINY, HOME, 2, readings, FLAT)


def test_no_row_is_less_certain_than_its_own_windows() -> None:
    posterior = flat(at_rows({0: 0.0, 1: 0.9, 2: 0.0, 4: 0.0}, 1))
    assert float(posterior.variance[:, [0, 1, 2, 4], 1].max()) <= NOISE**2 * (1.0 + 1e-9)


@pytest.mark.parametrize("noises", [(NOISE, 1.0), (1.0, NOISE)])
def test_if_a_row_was_read_twice_the_better_windows_count(noises: tuple[float, float]) -> None:
    readings = at_rows({0: 0.0, 1: 0.9, 2: 0.0}, 1)
    twice = [RowReading(1, 4, 0.0, noise) for noise in noises]
    assert float(flat([*readings, *twice]).variance[:, 4, 1].max()) <= NOISE**2 * (1.0 + 1e-9)


readings_of = st.lists(
    st.builds(
        RowReading,
        metric=st.integers(0, 1),
        row=st.integers(0, ROWS - 1),
        value=st.floats(-20.0, 20.0),
        noise=st.floats(LEAST_NOISE, 10.0),
    ),
    max_size=6,
)


@settings(max_examples=examples(0.6))
@given(readings_of, st.sampled_from([BESIDE_LAWS, without_laws(TINY)[::9]]))
def test_any_readings_leave_a_mixture_finite(
    readings: list[RowReading], rests: Sequence[Leftover]
) -> None:
    posterior = Mixture(TINY, HOME, 2, readings, TINY_PRIORS, rests)
    means, covariances = posterior.joint(1, EVERY, range(len(posterior.weights)))
    for part in (posterior.weights, posterior.mean, posterior.with_home, means, covariances):
        assert bool(torch.isfinite(part).all())
    assert bool((posterior.variance > 0.0).all())
    assert float(posterior.weights.sum()) == pytest.approx(1.0)


def test_the_effect_of_one_name_informs_equally_about_all_others() -> None:
    """In any order of the list: no name lies between two others, and the evidence on each is small."""
    names = "abcd"
    grid = enumerate_grid(Space((knob("mode", tuple(names), "b"),)))
    priors = physical_hypotheses(grid, KINDS)
    home = [RowReading(metric, 1, 0.0, 0.005) for metric in range(2)]
    for moved in (0, 2, 3):
        posterior = overall(Mixture(grid, 1, 2, [*home, RowReading(0, moved, 0.3, 0.005)], priors))
        one, other = {0, 2, 3} - {moved}
        assert torch.allclose(posterior.mean[one], posterior.mean[other])
        assert torch.allclose(posterior.sd[one], posterior.sd[other])
        assert abs(float(posterior.mean[one, 0])) < 0.1
        assert float(posterior.sd[one, 0]) > 0.1


def test_the_observed_spread_of_readings_counts() -> None:
    """A metric that moves by thousandths is not expected to move by a tenth."""

    def doubt(size: float) -> float:
        readings = [RowReading(0, row, size * (-1.0) ** row, 1e-4) for row in (0, 1, HOME, 4)]
        posterior = Mixture(TINY, HOME, 1, readings, no_law(TINY), without_laws(TINY))
        return float(overall(posterior).sd[3, 0])

    assert doubt(0.001) < 0.1 * doubt(0.1)
