"""What trying each row of the grid promises, and what it risks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from botorch.acquisition.analytic import LogExpectedImprovement
from botorch.models.model import Model
from botorch.posteriors.torch import TorchPosterior
from botorch.utils.probability.utils import log_ndtr, ndtr, phi
from torch import Tensor

from tuner.bo.surrogate import Component

WILDEST = 0.14
"""An objective less certain than this (log units) promises no more: a wide guess is no promise."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A limit on one column, in its model's units: feasible is `sign * (x - at) <= 0`.

    `doubt` is the deviation of the limit itself.
    """

    column: int
    sign: float
    at: float
    doubt: float


@dataclass(frozen=True)
class Belief:
    """What is believed of every row: a mixture of normal marginals, and the limits to keep.

    Column 0 is the objective; `sign` is +1 where it is to be minimised, -1 where maximised.
    """

    components: Sequence[Component]
    sign: float
    edges: tuple[Edge, ...]

    @cached_property
    def mean(self) -> Tensor:
        """The mixture's mean: one row per setting, one column per metric."""
        return torch.stack([c.weight * c.mean for c in self.components]).sum(dim=0)

    @cached_property
    def sd(self) -> Tensor:
        """The mixture's standard deviation, in the same shape."""
        parts = [c.weight * (c.sd**2 + (c.mean - self.mean) ** 2) for c in self.components]
        found: Tensor = torch.stack(parts).sum(dim=0).sqrt()
        return found

    @cached_property
    def chance(self) -> Tensor:
        """Each row's probability to keep every limit."""
        return self._mixed([log_feasible(c, self.edges).exp() for c in self.components])

    @cached_property
    def overshoot(self) -> Tensor:
        """By how much each row is expected to break the limits, in the models' units."""
        return self._mixed([expected_overshoot(c, self.edges) for c in self.components])

    @cached_property
    def squared_overshoot(self) -> Tensor:
        """The expected square of the same: what may go far wrong counts for more."""
        return self._mixed([expected_square(c, self.edges) for c in self.components])

    def gain(self, best: float) -> Tensor:
        """Return each row's expected improvement on `best` with every limit kept.

        In the model's units of the objective: the share of it that would be saved. EI × P(feasible)
        in every component, after Gardner et al. (ICML 2014), by BoTorch's numerically stable form.
        """
        return self._mixed(
            [
                (log_improvement(c, best, self.sign) + log_feasible(c, self.edges)).exp()
                for c in self.components
            ]
        )

    def _mixed(self, parts: Sequence[Tensor]) -> Tensor:
        weights = [c.weight for c in self.components]
        return torch.stack([w * p for w, p in zip(weights, parts, strict=True)]).sum(dim=0)


class Marginals(Model):
    """Marginals worked out beforehand, as a model whose inputs are row numbers.

    BoTorch's analytic acquisition functions read nothing else of a model.
    """

    def __init__(self, mean: Tensor, sd: Tensor) -> None:
        super().__init__()
        self._mean, self._sd = mean, sd

    @property
    def num_outputs(self) -> int:
        """How many metrics there are."""
        return int(self._mean.shape[-1])

    def posterior(self, X: Tensor, *_: object, **__: object) -> TorchPosterior:
        """Return the marginals of some rows."""
        rows = X.squeeze(-1).long()
        return TorchPosterior(torch.distributions.Normal(self._mean[rows], self._sd[rows]))


def log_improvement(component: Component, best: float, sign: float) -> Tensor:
    """Return the logarithm of each row's expected improvement on `best`."""
    objective = Marginals(component.mean[:, :1], component.sd[:, :1].clamp_max(WILDEST))
    improvement = LogExpectedImprovement(objective, best_f=best, maximize=sign < 0.0)
    rows = torch.arange(len(component.mean), dtype=torch.float64).reshape(-1, 1, 1)
    log_improvements: Tensor = improvement(rows)
    return log_improvements


def log_feasible(component: Component, edges: Sequence[Edge]) -> Tensor:
    """Return the logarithm of each row's probability to keep every limit."""
    log_probability = torch.zeros(len(component.mean), dtype=torch.float64)
    for edge in edges:
        log_probability = log_probability + log_ndtr(-_beyond(component, edge))
    return log_probability


def expected_overshoot(component: Component, edges: Sequence[Edge]) -> Tensor:
    """Return by how much each row is expected to break the limits; what keeps them counts as none."""
    overshoot = torch.zeros(len(component.mean), dtype=torch.float64)
    for edge in edges:
        beyond = _beyond(component, edge)
        overshoot = overshoot + _spread(component, edge) * (phi(beyond) + beyond * ndtr(beyond))
    return overshoot


def expected_square(component: Component, edges: Sequence[Edge]) -> Tensor:
    """Return the expected square of by how much each row breaks the limits."""
    second_moment = torch.zeros(len(component.mean), dtype=torch.float64)
    for edge in edges:
        beyond = _beyond(component, edge)
        parts = (1.0 + beyond.square()) * ndtr(beyond) + beyond * phi(beyond)
        second_moment = second_moment + _spread(component, edge).square() * parts
    return second_moment


def _beyond(component: Component, edge: Edge) -> Tensor:
    """Return how many deviations each row is expected to lie beyond a limit."""
    return edge.sign * (component.mean[:, edge.column] - edge.at) / _spread(component, edge)


def _spread(component: Component, edge: Edge) -> Tensor:
    return (component.sd[:, edge.column] ** 2 + edge.doubt**2).sqrt()


def information_gain(belief: Belief, row: int, noise: Sequence[float]) -> Tensor:
    """Return how much a window at each row would teach about a row's most doubtful limit.

    The variance by which the components' disagreement there would shrink; `noise` is a window's
    deviation, metric by metric.
    """
    means = torch.stack([c.mean for c in belief.components])
    weights = torch.tensor([c.weight for c in belief.components], dtype=torch.float64)
    edge = min(belief.edges, key=lambda e: _slack(belief, e, row))
    column = means[:, :, edge.column]
    away = column - weights @ column
    shared = (weights[:, None] * away * away[:, [row]]).sum(dim=0)
    return shared**2 / (belief.sd[:, edge.column] ** 2 + noise[edge.column] ** 2)


def _slack(belief: Belief, edge: Edge, row: int) -> float:
    mean, sd = belief.mean[row, edge.column], belief.sd[row, edge.column]
    return -edge.sign * float(mean - edge.at) / math.hypot(float(sd), edge.doubt)


def argmax(score: Tensor, allowed: Tensor, seed: int) -> int | None:
    """Return the allowed row of the highest score, None where none is; ties fall by the seed."""
    rows = torch.nonzero(allowed).flatten()
    if not len(rows):
        return None
    highest = rows[score[rows] == score[rows].max()]
    chance = torch.Generator().manual_seed(seed)
    return int(highest[torch.randint(len(highest), (1,), generator=chance)])
