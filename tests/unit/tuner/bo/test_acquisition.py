"""Acquisition values agree with what they are defined as."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
import torch

from tuner.bo.acquisition import Belief, Bounds, argmax, log_feasible, log_gain, within

NORMAL = NormalDist()


def belief(
    rows: list[tuple[float, float, float, float]],
    bounds: Bounds = (None, 0.1),
    *,
    minimize: bool = True,
) -> Belief:
    """Return a belief from (objective, its sd, metric, its sd) per row."""
    table = torch.tensor(rows, dtype=torch.float64)
    return Belief(table[:, [0, 2]], table[:, [1, 3]], minimize, {1: bounds})


ROWS = [
    (-0.20, 0.05, 0.05, 0.02),
    (-0.30, 0.05, 0.30, 0.05),
    (0.10, 0.20, 0.00, 0.10),
    (-0.05, 0.01, -0.40, 0.01),
]


def improvement(mean: float, sd: float, best: float) -> float:
    u = (best - mean) / sd
    return sd * (u * NORMAL.cdf(u) + NORMAL.pdf(u))


def test_feasibility_is_the_probability_below_the_limit() -> None:
    expected = [math.log(NORMAL.cdf((0.1 - m) / s)) for _, _, m, s in ROWS]
    assert log_feasible(belief(ROWS)).tolist() == pytest.approx(expected)


def test_a_lower_limit_counts_from_the_other_side() -> None:
    expected = [math.log(NORMAL.cdf((m + 0.1) / s)) for _, _, m, s in ROWS[:3]]
    assert log_feasible(belief(ROWS[:3], (-0.1, None))).tolist() == pytest.approx(expected)


def test_without_limits_everything_is_feasible() -> None:
    table = torch.zeros(3, 1, dtype=torch.float64)
    free = Belief(table, table + 0.1, True, {})
    assert log_feasible(free).tolist() == [0.0, 0.0, 0.0]
    assert bool(within(free, 2.0).all())


@pytest.mark.parametrize("best", [0.0, -0.1])
def test_the_gain_is_expected_improvement_times_feasibility(best: float) -> None:
    expected = [
        math.log(improvement(e, s, best)) + math.log(NORMAL.cdf((0.1 - m) / w))
        for e, s, m, w in ROWS
    ]
    assert log_gain(belief(ROWS), best).tolist() == pytest.approx(expected, rel=1e-5)


def test_maximizing_mirrors_minimizing() -> None:
    mirrored = [(-e, s, m, w) for e, s, m, w in ROWS]
    up = log_gain(belief(mirrored, minimize=False), 0.1)
    assert up.tolist() == pytest.approx(log_gain(belief(ROWS), -0.1).tolist())


def test_what_breaks_the_limit_gains_nothing_however_good() -> None:
    gain = log_gain(belief(ROWS), 0.0)
    assert int(gain.argmax()) == 0
    assert float(gain[1]) < math.log(1e-4)


def test_the_objective_may_be_limited_itself() -> None:
    table = torch.tensor(ROWS, dtype=torch.float64)
    own = Belief(table[:, [0, 2]], table[:, [1, 3]], True, {0: (None, -0.1), 1: (None, 0.1)})
    more = [math.log(NORMAL.cdf((-0.1 - e) / s)) for e, s, _, _ in ROWS]
    expected = [g + m for g, m in zip(log_gain(belief(ROWS), -0.1).tolist(), more, strict=True)]
    assert log_gain(own, -0.1).tolist() == pytest.approx(expected)


def test_a_margin_of_deviations_is_kept_on_both_sides() -> None:
    assert within(belief(ROWS), 1.0).tolist() == [True, False, True, True]
    assert within(belief(ROWS), 3.0).tolist() == [False, False, False, True]
    assert within(belief(ROWS, (-0.1, None)), 1.0).tolist() == [True, True, True, False]


def test_the_argmax_is_allowed_and_highest() -> None:
    score = torch.tensor([3.0, 9.0, 5.0])
    assert argmax(score, torch.tensor([True, False, True]), 0) == 2
    assert argmax(score, torch.zeros(3, dtype=torch.bool), 0) is None


def test_ties_fall_by_the_seed_and_always_the_same() -> None:
    score, every = torch.zeros(16), torch.ones(16, dtype=torch.bool)
    picked = [argmax(score, every, seed) for seed in range(8)]
    assert picked == [argmax(score, every, seed) for seed in range(8)]
    assert len(set(picked)) > 1
