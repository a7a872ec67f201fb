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
"""The least variance: a row relative to itself has none, and deviations are divisors."""


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

    Where `has_objective` is set the first outcome is the objective; the others are margins. A limit
    is kept where its margin is at or below zero. `moved` is the deviation by which a further window
    of each row is expected to move its mean.
    """

    def __init__(
        self, mixture: Mixture, outcomes: Sequence[ModelOutcome], has_objective: bool
    ) -> None:
        self.mixture, self.has_objective = mixture, has_objective
        self.weights, self.outcomes = mixture.weights, tuple(outcomes)
        self._column = torch.tensor([o.column for o in outcomes], dtype=torch.long)
        self._factor, self._beside, self._at = (
            torch.tensor([getattr(o, name) for o in outcomes], dtype=torch.float64)
            for name in ("factor", "beside", "at")
        )
        column, home = self._column, mixture.home
        mean = mixture.mean[..., column]
        self.mean = self._factor * (mean - self._beside * mean[:, [home]] - self._at)
        own, both = mixture.variance[..., column], mixture.with_home[..., column]
        variance = own + self._beside**2 * own[:, [home]] - 2.0 * self._beside * both
        self.sd = self._factor.abs() * variance.clamp_min(LEAST_VARIANCE).sqrt()
        noise = mixture.usual_noise[column]
        shift = (own - self._beside * both).abs() / (own + noise.square()).sqrt()
        self.moved = (self._factor.abs() * shift).clamp_min(LEAST_VARIANCE)

    @property
    def num_outputs(self) -> int:
        """The number of outcomes."""
        return len(self.outcomes)

    @property
    def margins(self) -> range:
        """The indices of the outcomes that are margins of a limit."""
        return range(int(self.has_objective), len(self.outcomes))

    @cached_property
    def kept(self) -> Tensor:
        """The probability that each row keeps all its limits: `components x rows`."""
        chance = torch.ones(self.mean.shape[:2], dtype=torch.float64)
        for column in self.margins:
            chance = chance * ndtr(-self.mean[..., column] / self.sd[..., column])
        return chance

    def trusted(self, sure: float) -> Tensor:
        """Return the chance that a further window leaves each row sure to keep its limits.

        `components x rows`; `sure` is the probability to keep a limit after that window, each limit
        by itself.
        """
        reach = torch.special.ndtri(torch.tensor(sure, dtype=torch.float64))
        chance = torch.ones(self.mean.shape[:2], dtype=torch.float64)
        for column in self.margins:
            mean, moved = self.mean[..., column], self.moved[..., column]
            left = (self.sd[..., column].square() - moved.square()).clamp_min(0.0).sqrt()
            chance = chance * ndtr(-(mean + reach * left) / moved)
        return chance

    def expected_below(self, best: float, widest: float) -> Tensor:
        """Return by how much a further window of each row is expected to show it below a cost.

        `components x rows`. Its mean moves with a deviation of at most `widest`.
        """
        return improvement(best - self.mean[..., 0], self.moved[..., 0].clamp_max(widest))

    def joint(self, rows: Tensor, which: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return means `components x rows x outcomes` and their covariances, flattened in that order.

        Of the components `which`, by default all.
        """
        which = torch.arange(len(self.weights)) if which is None else which
        extended = torch.cat([rows, torch.tensor([self.mixture.home])])
        mean, covariance = self.mixture.joint(extended, which.tolist())
        size, metrics = len(rows) + 1, self.mixture.metrics
        form = torch.zeros(len(rows), self.num_outputs, metrics, size, dtype=torch.float64)
        each = torch.arange(self.num_outputs)
        for i in range(len(rows)):
            form[i, each, self._column, i] += self._factor
            form[i, each, self._column, -1] -= self._factor * self._beside
        flat = form.flatten(2).flatten(0, 1)
        means = mean.flatten(1) @ flat.T - (self._factor * self._at).repeat(len(rows))
        return means.reshape(len(means), len(rows), -1), flat @ covariance @ flat.T


def improvement(by: Tensor, sd: Tensor) -> Tensor:
    """Return the expected positive part of a normal variable with mean `by` and deviation `sd`."""
    density = (by / sd).square().div(-2.0).exp() / math.sqrt(2.0 * math.pi)
    expected: Tensor = (by * ndtr(by / sd) + sd * density).clamp_min(0.0)
    return expected
