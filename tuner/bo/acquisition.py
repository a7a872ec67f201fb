"""What trying each row of the grid promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from botorch.acquisition.analytic import (
    LogExpectedImprovement,
    LogProbabilityOfFeasibility,
)
from botorch.models.model import Model
from botorch.posteriors.torch import TorchPosterior
from torch import Tensor

Bounds = tuple[float | None, float | None]
"""Lower and upper limit of one metric, in its model's units."""


@dataclass(frozen=True, slots=True)
class Belief:
    """Posterior marginals over the grid: one row per setting, one column per metric.

    Column 0 is the objective; `minimize` tells its direction. `bounds` limits columns, each in its
    own model's units.
    """

    mean: Tensor
    sd: Tensor
    minimize: bool
    bounds: Mapping[int, Bounds]


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


def log_feasible(belief: Belief) -> Tensor:
    """Return for each row the logarithm of the probability that it keeps every limit."""
    if not belief.bounds:
        return torch.zeros(len(belief.mean), dtype=torch.float64)
    model = Marginals(belief.mean, belief.sd)
    found: Tensor = LogProbabilityOfFeasibility(model, dict(belief.bounds))(_rows(belief))
    return found


def log_gain(belief: Belief, best: float) -> Tensor:
    """Return the logarithm of the expected improvement on `best` with every limit kept.

    The improvement counts only where the limits hold: EI × P(feasible). Put together here, since
    BoTorch's constrained improvement refuses a limit on the objective itself.
    """
    objective = Marginals(belief.mean[:, :1], belief.sd[:, :1])
    improvement = LogExpectedImprovement(objective, best_f=best, maximize=not belief.minimize)
    found: Tensor = improvement(_rows(belief)) + log_feasible(belief)
    return found


def within(belief: Belief, deviations: float) -> Tensor:
    """Return which rows keep every limit even that many standard deviations towards it."""
    kept = torch.ones(len(belief.mean), dtype=torch.bool)
    for column, (lower, upper) in belief.bounds.items():
        mean, away = belief.mean[:, column], deviations * belief.sd[:, column]
        if upper is not None:
            kept &= mean + away <= upper
        if lower is not None:
            kept &= mean - away >= lower
    return kept


def argmax(score: Tensor, allowed: Tensor, seed: int) -> int | None:
    """Return the allowed row of the highest score, None where none is; ties fall by the seed."""
    rows = torch.nonzero(allowed).flatten()
    if not len(rows):
        return None
    highest = rows[score[rows] == score[rows].max()]
    chance = torch.Generator().manual_seed(seed)
    return int(highest[torch.randint(len(highest), (1,), generator=chance)])


def _rows(belief: Belief) -> Tensor:
    return torch.arange(len(belief.mean), dtype=torch.float64).reshape(-1, 1, 1)
