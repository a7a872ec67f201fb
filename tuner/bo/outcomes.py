"""The outcomes of a study at every setting: its cost, and its distance from each limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.special import ndtr

from tuner.bo.mixture import Mixture
from tuner.bo.prior import JITTER

LEAST_VARIANCE = JITTER
"""The least variance. The baseline relative to itself has a variance of 0, and deviations are divisors."""


@dataclass(frozen=True, slots=True)
class ModelOutcome:
    """A metric of a mixture where less is better: `factor · (y(x) − beside · y(baseline) − at)`.

    The baseline's value is in the joint posterior: the contrast is exact, without a further error.
    """

    column: int
    factor: float
    beside: float
    at: float


class OutcomeModel:
    """The outcomes of one mixture, at every row of the grid and for each component.

    With `has_objective` the first outcome is the objective; the others are margins, whose indices are
    `margins`. A limit is kept if its margin is at or below zero. Home is the baseline's row.
    """

    def __init__(
        self, mixture: Mixture, outcomes: Sequence[ModelOutcome], has_objective: bool
    ) -> None:
        self.mixture, self.weights, self.outcomes = mixture, mixture.weights, tuple(outcomes)
        self.margins = range(int(has_objective), len(outcomes))
        column = [o.column for o in outcomes]
        self._factor, self._beside, at = (
            torch.tensor([getattr(o, name) for o in outcomes], dtype=torch.float64)
            for name in ("factor", "beside", "at")
        )
        mean = mixture.mean[..., column]
        self.mean = self._factor * (mean - self._beside * mean[:, [mixture.home]] - at)
        self._own, self._both = mixture.variance[..., column], mixture.with_home[..., column]
        self._at_home = self._own[:, [mixture.home]]
        variance = self._own + self._beside**2 * self._at_home - 2.0 * self._beside * self._both
        self.sd = self._factor.abs() * variance.clamp_min(LEAST_VARIANCE).sqrt()
        self._noise = mixture.usual_noise[column]

    @cached_property
    def kept(self) -> Tensor:
        """The probability that each row keeps all its limits: `components x rows`."""
        return self._every(self.mean, self.sd)

    def trusted(self, sure: float, *, home: bool = False) -> Tensor:
        """Return the chance that after a further window each row keeps every limit with probability `sure`.

        `components x rows`. The window is one of the row, or with `home` one of the baseline. The
        limits are judged separately.
        """
        reach = torch.special.ndtri(torch.tensor(sure, dtype=torch.float64))
        moved = self._moved(home)
        left = (self.sd.square() - moved.square()).clamp_min(0.0).sqrt()
        return self._every(self.mean + reach * left, moved)

    def _every(self, mean: Tensor, sd: Tensor) -> Tensor:
        """Return the probability that all margins of such means and deviations are kept."""
        chance = torch.ones(mean.shape[:2], dtype=torch.float64)
        for margin in self.margins:
            chance = chance * ndtr(-mean[..., margin] / sd[..., margin])
        return chance

    def expected_below(self, best: float, widest: float) -> Tensor:
        """Return the expected amount by which each row's mean falls below a cost after a further window.

        `components x rows`. The standard deviation of the mean's move is bounded by `widest`.
        """
        moved = self._moved(home=False)[..., 0].clamp_max(widest)
        return improvement(best - self.mean[..., 0], moved)

    def _moved(self, home: bool) -> Tensor:
        """Return the deviation of the move of each row's mean by a further window of it, or of home."""
        shared, beside = (self._both, self._at_home) if home else (self._own, self._both)
        variance = (beside if home else shared) + self._noise.square()
        shift = (shared - self._beside * beside).abs() / variance.sqrt()
        return (self._factor.abs() * shift).clamp_min(LEAST_VARIANCE)


def improvement(by: Tensor, sd: Tensor) -> Tensor:
    """Return the expected positive part of a normal variable with mean `by` and deviation `sd`."""
    density = (by / sd).square().div(-2.0).exp() / math.sqrt(2.0 * math.pi)
    expected: Tensor = (by * ndtr(by / sd) + sd * density).clamp_min(0.0)
    return expected
