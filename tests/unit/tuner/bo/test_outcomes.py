"""What a row promises and risks agrees with what a great many draws show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from tuner.bo.acquisition import Belief, Edge, argmax, information_gain
from tuner.bo.surrogate import Component

DRAWS = 400_000
ROWS = (
    ((-0.20, 0.05, 0.05, 0.02), (-0.15, 0.08, 0.12, 0.05)),
    ((-0.30, 0.05, 0.30, 0.05), (-0.10, 0.02, -0.05, 0.02)),
    ((0.10, 0.13, 0.00, 0.10), (0.05, 0.13, 0.05, 0.10)),
    ((-0.05, 0.01, -0.40, 0.01), (-0.06, 0.01, -0.30, 0.01)),
)
"""Objective and its deviation, a metric and its deviation: in one component and in the other."""
WEIGHTS = (0.3, 0.7)
UPPER = Edge(1, 1.0, 0.1, 0.0)
DOUBTFUL = Edge(1, 1.0, 0.1, 0.06)
LOWER = Edge(1, -1.0, -0.1, 0.03)


def component(weight: float, rows: Sequence[tuple[float, ...]]) -> Component:
    table = torch.tensor(rows, dtype=torch.float64)
    return Component(weight, table[:, ::2], table[:, 1::2])


def belief(*edges: Edge, sign: float = 1.0) -> Belief:
    halves = [[row[half] for row in ROWS] for half in range(2)]
    mirrored = [[(sign * e, *rest) for e, *rest in half] for half in halves]
    both = [component(w, half) for w, half in zip(WEIGHTS, mirrored, strict=True)]
    return Belief(both, sign, edges)


@dataclass
class Drawn:
    """A great many worlds: what every row's objective and metric are, and where the limits lie."""

    objective: np.ndarray
    kept: np.ndarray
    beyond: np.ndarray


def drawn(*edges: Edge) -> Drawn:
    """Draw row by row: the component first, then objective, metric and limits from it."""
    sampler = np.random.default_rng(7)
    objectives, kepts, beyonds = [], [], []
    for row in ROWS:
        mean_e, sd_e, mean_m, sd_m = np.array(row)[
            (sampler.random(DRAWS) > WEIGHTS[0]).astype(int)
        ].T
        values = sampler.normal(mean_e, sd_e), sampler.normal(mean_m, sd_m)
        over = np.array(
            [e.sign * (values[e.column] - sampler.normal(e.at, e.doubt, DRAWS)) for e in edges]
        )
        objectives.append(values[0])
        kepts.append((over <= 0.0).all(axis=0))
        beyonds.append(np.maximum(over, 0.0).sum(axis=0))
    return Drawn(*(np.array(x) for x in (objectives, kepts, beyonds)))


def close(found: Tensor, draws: np.ndarray) -> bool:
    """Return whether numbers agree with the mean of draws within four of its standard errors."""
    error = draws.std(axis=1) / np.sqrt(DRAWS)
    return bool((np.abs(found.numpy() - draws.mean(axis=1)) <= 4.0 * error + 1e-5).all())


def test_a_mixtures_moments_are_those_of_its_draws() -> None:
    found, draws = belief(), drawn().objective
    assert close(found.mean[:, 0], draws)
    assert found.sd[:, 0].numpy() == pytest.approx(draws.std(axis=1), rel=0.01)


@pytest.mark.parametrize("edges", [(UPPER,), (DOUBTFUL,), (LOWER,), (Edge(0, 1.0, -0.12, 0.0),)])
def test_chance_and_overshoot_are_those_of_the_draws(edges: tuple[Edge, ...]) -> None:
    found, draws = belief(*edges), drawn(*edges)
    assert close(found.chance, draws.kept.astype(float))
    assert close(found.overshoot, draws.beyond)
    assert close(found.squared_overshoot, draws.beyond**2)


@pytest.mark.parametrize("best", [0.0, -0.1])
@pytest.mark.parametrize("edge", [UPPER, DOUBTFUL, LOWER])
def test_the_gain_is_what_draws_that_keep_the_limit_save(edge: Edge, best: float) -> None:
    draws = drawn(edge)
    saved = np.maximum(best - draws.objective, 0.0) * draws.kept
    assert close(belief(edge).gain(best), saved)


def test_limits_on_both_sides_of_a_metric_are_both_kept() -> None:
    edges = Edge(1, 1.0, 0.06, 0.0), Edge(1, -1.0, -0.35, 0.0)
    upper, lower, both = (belief(*e) for e in (edges[:1], edges[1:], edges))
    assert bool((both.chance <= torch.minimum(upper.chance, lower.chance)).all())
    assert torch.allclose(both.overshoot, upper.overshoot + lower.overshoot)
    assert close(both.overshoot, drawn(*edges).beyond)


def test_without_limits_everything_keeps_them() -> None:
    free = belief()
    assert free.chance.tolist() == pytest.approx([1.0] * len(ROWS))
    assert not free.overshoot.any()


@pytest.mark.parametrize("edges", [(), (UPPER,), (LOWER,)])
def test_maximizing_mirrors_minimizing(edges: tuple[Edge, ...]) -> None:
    up, down = belief(*edges, sign=-1.0), belief(*edges)
    assert up.gain(0.1).tolist() == pytest.approx(down.gain(-0.1).tolist())
    assert up.chance.tolist() == down.chance.tolist()


def test_what_surely_breaks_the_limit_gains_nothing_however_good() -> None:
    table = component(1.0, [(-0.9, 0.05, 0.9, 0.02), (-0.05, 0.01, 0.0, 0.02)])
    gain = Belief([table], 1.0, (UPPER,)).gain(0.0)
    assert float(gain[0]) < 1e-12 < float(gain[1])


def test_an_objective_may_be_limited_itself() -> None:
    own = Edge(0, 1.0, -0.1, 0.0)
    free, limited = belief(UPPER), belief(UPPER, own)
    assert bool((limited.chance < free.chance).all())
    assert bool((limited.gain(-0.1) < free.gain(-0.1)).all())
    assert int(limited.gain(-0.1).argmax()) == int(free.gain(-0.1).argmax())


def test_a_wide_guess_promises_no_more_than_a_guess() -> None:
    rows = [(0.0, 5.0, 0.0, 0.1), (0.0, 0.5, 0.0, 0.1)]
    wild, tame = Belief([component(1.0, rows)], 1.0, ()).gain(0.0).tolist()
    assert wild <= tame < 0.2


def test_a_window_teaches_where_the_readings_disagree_alike() -> None:
    """The first row is in doubt: in one component it keeps the limit, in the other it does not."""
    one = component(0.5, [(0, 0.1, 0.0, 0.1), (0, 0.1, -0.2, 0.01), (0, 0.1, -0.2, 0.01)])
    two = component(0.5, [(0, 0.1, 0.3, 0.1), (0, 0.1, 0.0, 0.01), (0, 0.1, -0.2, 0.01)])
    doubted = Belief([one, two], 1.0, (UPPER,))
    lesson = information_gain(doubted, 0, [0.01] * 3)
    assert float(lesson[1]) > 0.0 == float(lesson[2])
    blurred = information_gain(doubted, 0, [0.5] * 3)
    assert float(blurred[1]) < 0.5 * float(lesson[1])


def test_the_most_doubtful_limit_is_the_one_to_learn_about() -> None:
    """Of two limits the first is kept anyway; only the last row tells of the second."""
    rows = [[(0.0, 0.1, -1.0, 0.1, 0.1 + d, 0.1), (0.0, 0.1, d, 0.1, -1.0, 0.1)] for d in (-1, 1)]
    rows[0].append((0.0, 0.1, -1.0, 0.1, -0.5, 0.1))
    rows[1].append((0.0, 0.1, -1.0, 0.1, 0.5, 0.1))
    both = Belief([component(0.5, half) for half in rows], 1.0, (UPPER, Edge(2, 1.0, 0.1, 0.0)))
    lesson = information_gain(both, 0, [0.01] * 3)
    assert float(lesson[1]) == 0.0 < float(lesson[2])


def test_the_argmax_is_allowed_and_highest() -> None:
    score = torch.tensor([3.0, 9.0, 5.0])
    assert argmax(score, torch.tensor([True, False, True]), 0) == 2
    assert argmax(score, torch.zeros(3, dtype=torch.bool), 0) is None


def test_ties_fall_by_the_seed_and_always_the_same() -> None:
    score, every = torch.zeros(16), torch.ones(16, dtype=torch.bool)
    picked = [argmax(score, every, seed) for seed in range(8)]
    assert picked == [argmax(score, every, seed) for seed in range(8)]
    assert len(set(picked)) > 1
