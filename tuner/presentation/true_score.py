"""The score of a tuner's choice on a simulated or replayed device, whose true values are available."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agents.devices.catalogue import Truth, oracle, true_score
from tuner.core import Constraint, Estimate, Limit, Objective, Setting, Space, limits


@dataclass(frozen=True, slots=True)
class TruePoint:
    """A setting and its true metrics, without noise."""

    setting: Setting
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The true value of a chosen setting.

    `captured` is its share of the best possible saving: (baseline − chosen) / (baseline − oracle), by
    true values; None if no saving is possible. `saving_percent` is the true saving in %. `feasible` and
    `baseline_feasible` are whether the chosen setting and the baseline truly keep every limit; the
    limits are computed from the true baseline.
    """

    baseline: TruePoint
    best: TruePoint
    oracle: TruePoint
    captured: float | None
    saving_percent: float
    feasible: bool
    baseline_feasible: bool


def score(
    space: Space,
    truth: Truth,
    objective: Objective,
    constraints: tuple[Constraint, ...],
    chosen: Setting,
) -> Score:
    """Compare a chosen setting with the baseline and with the best of the whole space."""
    base = truth(space.default)
    in_force = true_limits(constraints, base)
    optimum = oracle(space, truth, objective, in_force) or space.default
    best = truth(chosen)
    at_base, at_best, at_optimum = (true_score(objective, x) for x in (base, best, truth(optimum)))
    gain = objective.sign * (at_base - at_best)
    possible = objective.sign * (at_base - at_optimum)
    return Score(
        baseline=_point(space.default, base),
        best=_point(chosen, best),
        oracle=_point(optimum, truth(optimum)),
        captured=gain / possible if possible > 0.0 else None,
        saving_percent=100.0 * gain / at_base if at_base else 0.0,
        feasible=all(limit.holds(best[limit.metric]) for limit in in_force),
        baseline_feasible=all(limit.holds(base[limit.metric]) for limit in in_force),
    )


def true_limits(
    constraints: tuple[Constraint, ...], baseline: Mapping[str, float]
) -> tuple[Limit, ...]:
    """Return the limits of the constraints, computed from the true baseline."""
    estimates = {name: Estimate(value) for name, value in baseline.items()}
    return limits(constraints, estimates) or ()


def _point(setting: Setting, metrics: Mapping[str, float]) -> TruePoint:
    """Return copies of a setting and its true metrics."""
    return TruePoint(dict(setting), dict(metrics))
