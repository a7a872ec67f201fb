"""The predicted gain and risk of a row agree with those of many random draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.builders import knob
from tuner.bo.beliefs import WILDEST, View
from tuner.bo.encoding import enumerate_grid
from tuner.bo.mixture import Mixture, RowReading
from tuner.bo.outcomes import ModelOutcome, OutcomeModel
from tuner.bo.prior import physical_hypotheses
from tuner.core import Kind, Space

DRAWS = 400_000
HOME = 0
ROWS = (
    ((0.00, 0.05, 0.00, 0.05), (0.02, 0.06, -0.03, 0.08)),
    ((-0.20, 0.05, 0.05, 0.02), (-0.15, 0.08, 0.12, 0.05)),
    ((-0.30, 0.05, 0.30, 0.05), (-0.10, 0.02, -0.05, 0.02)),
    ((0.10, 0.13, 0.00, 0.10), (0.05, 0.13, 0.05, 0.10)),
    ((-0.05, 0.01, -0.40, 0.01), (-0.06, 0.01, -0.30, 0.01)),
)
"""The objective and its deviation, a metric and its deviation: in each of two components."""
NOISE = 0.02
"""The relative error of a further window."""
ALIKE = 0.6
"""The correlation of each row with the first, the baseline."""
WEIGHTS = (0.3, 0.7)
OBJECTIVE = ModelOutcome(0, 1.0, 0.0, 0.0)
SAVED = ModelOutcome(0, 1.0, 1.0, 0.0)
UPPER = ModelOutcome(1, 1.0, 0.0, 0.1)
BESIDE = ModelOutcome(1, 1.0, 1.0, 0.1)
TWICE = ModelOutcome(1, 0.5, 2.0, 0.1)
LOWER = ModelOutcome(1, -1.0, 0.0, -0.1)


def by_hand(
    worlds: Sequence[Sequence[Sequence[float]]],
    weights: Sequence[float],
    outcomes: Sequence[ModelOutcome],
    leads: bool = True,
    alike: float = 0.0,
) -> OutcomeModel:
    """Return the model with given predictions by world and row: means and deviations in turn."""
    table = torch.tensor(worlds, dtype=torch.float64)
    sd = table[..., 1::2]
    with_home = alike * sd * sd[:, [HOME]]
    with_home[:, HOME] = sd[:, HOME].square()
    share = torch.tensor(weights, dtype=torch.float64)
    mixture = SimpleNamespace(
        home=HOME, metrics=sd.shape[-1], weights=share, mean=table[..., ::2],
        variance=sd.square(), with_home=with_home,
        usual_noise=torch.full((sd.shape[-1],), NOISE, dtype=torch.float64),
    )  # fmt: skip
    return OutcomeModel(cast(Mixture, mixture), outcomes, leads)


def viewed(*models: OutcomeModel) -> View:
    return View(models, {}, {}, {})


def view(*margins: ModelOutcome, objective: ModelOutcome = OBJECTIVE) -> View:
    halves = [[row[half] for row in ROWS] for half in range(2)]
    return viewed(by_hand(halves, WEIGHTS, [objective, *margins], alike=ALIKE))


@dataclass
class Drawn:
    """Many sampled worlds: the objective and the metric of every row, and the limits."""

    objective: np.ndarray
    kept: np.ndarray


def drawn(*margins: ModelOutcome, objective: ModelOutcome = OBJECTIVE) -> Drawn:
    """Sample row by row: first the component, then the row together with the baseline."""
    sampler = np.random.default_rng(7)
    objectives, kepts = [], []
    for place, row in enumerate(ROWS):
        which = (sampler.random(DRAWS) > WEIGHTS[0]).astype(int)
        found = []
        for column in (0, 2):
            home_mean, home_sd = np.array(ROWS[HOME])[which, column : column + 2].T
            mean, sd = np.array(row)[which, column : column + 2].T
            first, second = sampler.normal(size=(2, DRAWS))
            home = home_mean + home_sd * first
            other = mean + sd * (ALIKE * first + math.sqrt(1.0 - ALIKE**2) * second)
            found.append((home if place == HOME else other, home))

        def shown(
            o: ModelOutcome, values: list[tuple[np.ndarray, np.ndarray]] = found
        ) -> np.ndarray:
            here, home = values[o.column]
            return np.asarray(o.factor * (here - o.beside * home - o.at))

        over = np.array([shown(o) for o in margins]).reshape(len(margins), DRAWS)
        objectives.append(shown(objective))
        kepts.append((over <= 0.0).all(axis=0))
    return Drawn(*(np.array(x) for x in (objectives, kepts)))


def close(moments: Tensor, draws: np.ndarray) -> bool:
    """Return whether numbers agree with the mean of samples within four of its standard errors."""
    error = draws.std(axis=1) / np.sqrt(DRAWS)
    return bool((np.abs(moments.numpy() - draws.mean(axis=1)) <= 4.0 * error + 2e-5).all())


@pytest.mark.parametrize("objective", [OBJECTIVE, SAVED, ModelOutcome(1, -2.0, 0.5, 0.3)])
def test_a_mixtures_moments_are_those_of_its_draws(objective: ModelOutcome) -> None:
    computed, draws = view(objective=objective), drawn(objective=objective).objective
    assert close(computed.cost, draws)
    assert computed.cost_sd.numpy() == pytest.approx(draws.std(axis=1), rel=0.01, abs=1e-4)


@pytest.mark.parametrize(
    "margins", [(UPPER,), (BESIDE,), (TWICE,), (LOWER,), (ModelOutcome(0, 1.0, 0.0, -0.12),)]
)
def test_the_chance_is_that_of_the_draws(margins: tuple[ModelOutcome, ...]) -> None:
    computed, draws = view(*margins), drawn(*margins)
    assert close(computed.chance, draws.kept.astype(float))


@pytest.mark.parametrize("best", [0.0, -0.1])
@pytest.mark.parametrize("margin", [UPPER, BESIDE, LOWER])
def test_the_gain_is_the_saving_of_draws_that_keep_the_limit(
    margin: ModelOutcome, best: float
) -> None:
    draws = drawn(margin, objective=SAVED)
    saved = np.maximum(best - draws.objective, 0.0) * draws.kept
    assert close(view(margin, objective=SAVED).gain(best), saved)


def test_limits_of_other_models_count_as_independent_ones() -> None:
    halves = [[row[half] for row in ROWS] for half in range(2)]
    leading = by_hand(halves, WEIGHTS, [OBJECTIVE, UPPER])
    other = by_hand(halves[::-1], (0.5, 0.5), [ModelOutcome(1, -1.0, 0.0, -0.35)], leads=False)
    both, alone, beside = viewed(leading, other), viewed(leading), viewed(other)
    assert torch.allclose(both.chance, alone.chance * beside.chance)
    assert torch.allclose(both.gain(0.0), alone.gain(0.0) * beside.chance)


def test_limits_on_both_sides_of_a_metric_are_both_kept() -> None:
    margins = ModelOutcome(1, 1.0, 0.0, 0.06), ModelOutcome(1, -1.0, 0.0, -0.35)
    upper, lower, both = (view(*m) for m in (margins[:1], margins[1:], margins))
    assert bool((both.chance <= torch.minimum(upper.chance, lower.chance) + 1e-12).all())


def test_without_limits_everything_keeps_them() -> None:
    free = view()
    assert free.chance.tolist() == pytest.approx([1.0] * len(ROWS))
    saved = np.maximum(-drawn(objective=SAVED).objective, 0.0)
    assert close(view(objective=SAVED).gain(0.0), saved)


def test_a_surely_infeasible_setting_has_no_gain() -> None:
    world = [(0.0, 0.01, 0.0, 0.02), (-0.9, 0.05, 0.9, 0.02), (-0.05, 0.01, 0.0, 0.02)]
    gain = viewed(by_hand([world], [1.0], [OBJECTIVE, UPPER])).gain(0.0)
    assert float(gain[1]) < 1e-12 < float(gain[2])


def test_an_objective_may_be_limited_itself() -> None:
    free, limited = view(UPPER), view(UPPER, ModelOutcome(0, 1.0, 0.0, -0.1))
    assert bool((limited.chance < free.chance).all())
    assert bool((limited.gain(-0.1) < free.gain(-0.1)).all())
    assert int(limited.gain(-0.1).argmax()) == int(free.gain(-0.1).argmax())


def test_a_wider_guess_gains_no_more_than_a_usual_one() -> None:
    world = [(0.0, sd, 0.0, 0.1) for sd in (0.01, 5.0, 0.5, WILDEST)]
    computed = viewed(by_hand([world], [1.0], [OBJECTIVE, UPPER]))
    sure, wild, tame, usual = computed.gain(0.0).tolist()
    assert sure < usual
    assert wild == pytest.approx(tame) == pytest.approx(usual)
    assert float(computed.cost_sd[1]) == pytest.approx(5.0), "how unsure it is is told all the same"


def test_bounding_a_guess_does_not_make_its_limit_less_doubtful() -> None:
    kept = [
        viewed(by_hand([[(0.0, sd, 0.0, 5.0)]], [1.0], [OBJECTIVE, UPPER])) for sd in (9.0, 0.2)
    ]
    assert torch.equal(kept[0].chance, kept[1].chance)
    assert torch.equal(kept[0].gain(0.0), kept[1].gain(0.0))


SPACE = Space((knob("clock_mhz", (400, 600, 800, 1000), 1000), knob("mode", ("a", "b"), "a")))
GRID = enumerate_grid(SPACE)
BASELINE = GRID.settings.index({"clock_mhz": 1000, "mode": "a"})
EVERY = torch.arange(len(GRID.settings))
PRIORS = physical_hypotheses(GRID, (Kind.ENERGY, Kind.TIME))
SLOWER = ModelOutcome(1, 1.0, 1.0, math.log(1.2))


def known(
    noise: float = 0.02, outcomes: Sequence[ModelOutcome] = (SAVED, SLOWER), *more: RowReading
) -> OutcomeModel:
    """Return the predictions from the baseline alone, or with more readings."""
    seen = [RowReading(metric, BASELINE, 0.0, noise) for metric in range(2)]
    return OutcomeModel(Mixture(GRID, BASELINE, 2, [*seen, *more], PRIORS), outcomes, True)


def test_beside_the_baseline_the_baselines_own_error_does_not_count() -> None:
    """However uncertain the baseline is, a setting equal to it does not differ from it."""
    vague = known(0.5)
    assert float(vague.mixture.variance[:, BASELINE].min()) > 0.1
    assert float(vague.mean[:, BASELINE, 0].abs().max()) < 1e-9
    assert float(vague.sd[:, BASELINE].max()) < 1e-4
    near = GRID.settings.index({"clock_mhz": 800, "mode": "a"})
    own = vague.mixture.variance[:, near].sqrt()
    assert bool((vague.sd[:, near] < own).all())
    alone = known(0.5, (OBJECTIVE, UPPER))
    assert torch.allclose(alone.sd[:, near], own)


@pytest.mark.parametrize(
    "outcomes",
    [(SAVED, SLOWER), (OBJECTIVE, TWICE, LOWER), (ModelOutcome(0, -2.0, 0.5, 0.3), SAVED)],
)
def test_a_contrast_is_that_of_the_joint_distribution(outcomes: tuple[ModelOutcome, ...]) -> None:
    """Sampled: row and baseline together, then their difference."""
    model = known(0.1, outcomes, RowReading(0, 1, -0.1, 0.05), RowReading(1, 3, 0.5, 0.01))
    rows, home = [5, BASELINE, 2], 1
    for j, o in enumerate(outcomes):
        mean, covariance = model.mixture.joint(
            o.column, torch.tensor(rows), range(len(model.weights))
        )
        for i, row in enumerate(rows):
            take = torch.zeros(len(rows), dtype=torch.float64)
            take[i] += o.factor
            take[home] -= o.factor * o.beside
            variance = take @ covariance @ take
            assert torch.allclose(model.mean[:, row, j], mean @ take - o.factor * o.at)
            assert torch.allclose(model.sd[:, row, j], variance.clamp_min(0.0).sqrt(), atol=1e-4)


def test_all_components_together_are_the_normal_distribution_of_their_moments() -> None:
    model = known(0.1, (SAVED, ModelOutcome(1, 1.0, 1.0, 0.0)), RowReading(1, 3, 0.5, 0.01))
    rows, likeliest = EVERY.tolist(), int(model.weights.argmax())
    for column in range(2):
        mean, covariance = model.mixture.beside_home(column, rows, len(model.weights))
        each, sd = model.mean[..., column], model.sd[..., column]
        expected = model.weights @ each
        variance = model.weights @ ((each - expected).square() + sd.square())
        assert torch.allclose(mean, expected)
        assert torch.allclose(covariance.diagonal(), variance, atol=1e-8)
        assert torch.allclose(covariance, covariance.T)
        few, _ = model.mixture.beside_home(column, rows, 1)
        assert torch.allclose(few, each[likeliest])
