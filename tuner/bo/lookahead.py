"""What a window at a row would bring: what could be deployed after it, and after one more.

Every component of the model is conditioned on outcomes drawn from the mixture, and the components are
weighed anew: one step exact, the second the constrained expected improvement (two-step lookahead, after
Wu and Frazier, NeurIPS 2019, and Zhang et al., AISTATS 2021, who optimise over continuous inputs; here some
rows of a grid are enumerated). What a broken limit and a wrong deployment cost is in both steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from botorch.utils.probability.utils import log_ndtr, ndtr, phi
from torch import Tensor
from torch.quasirandom import SobolEngine

from tuner.bo.outcomes import LEAST_VARIANCE, OutcomeModel

import os
DRAWN = int(os.environ.get("DRAWN","16"))
"""So many outcomes of a window are looked at."""

KEPT = int(os.environ.get("KEPT","12"))
"""So many components of a model, the likeliest, look ahead."""

EDGE = 1e-6
"""No outcome less likely than this on either side is drawn."""


@dataclass(frozen=True, slots=True)
class Fantasies:
    """A model after each outcome of a window at each of some rows.

    `weights` is `tried x outcomes x components`, the others have a dimension for the rows beside:
    the log of the chance to keep the limits, the expected overshoot, the cost and its deviation.
    """

    weights: Tensor
    log_kept: Tensor
    overshoot: Tensor
    cost: Tensor
    cost_sd: Tensor

    def mixed(self, values: Tensor) -> Tensor:
        """Return the average over the components: `tried x outcomes x rows`."""
        return (self.weights[..., None] * values).sum(dim=2)


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is believed of some rows after each outcome of a window at each of them.

    All are `tried x outcomes x rows`: the chance to keep every limit, the expected overshoot and cost.
    """

    fantasies: Sequence[Fantasies]
    kept: Tensor
    overshoot: Tensor
    cost: Tensor

    def gain(self, best: Tensor) -> Tensor:
        """Return the expected improvement on `best`, of each outcome, with every limit kept."""
        leader = self.fantasies[0]
        u = (best[:, :, None, None] - leader.cost) / leader.cost_sd
        improved = leader.cost_sd * (phi(u) + u * ndtr(u))
        gain = leader.mixed(improved * leader.log_kept.exp())
        for other in self.fantasies[1:]:
            gain = gain * other.mixed(other.log_kept.exp())
        return gain


def ahead(
    models: Sequence[OutcomeModel], rows: Tensor, noise: Sequence[Tensor], seed: int
) -> Ahead:
    """Return what windows at some rows would make believe of the same rows.

    `noise` is a window's deviation, outcome by outcome, of each model.
    """
    each = [
        _fantasies(model, rows, own, seed + place)
        for place, (model, own) in enumerate(zip(models, noise, strict=True))
    ]
    kept = torch.stack([f.mixed(f.log_kept.exp()) for f in each]).prod(dim=0)
    overshoot = torch.stack([f.mixed(f.overshoot) for f in each]).sum(dim=0)
    return Ahead(each, kept, overshoot, each[0].mixed(each[0].cost))


def _fantasies(model: OutcomeModel, rows: Tensor, noise: Tensor, seed: int) -> Fantasies:
    top = model.weights.argsort(descending=True)[:KEPT]
    weights = model.weights[top] / model.weights[top].sum()
    mean, covariance = model.joint(rows, top)
    shape = len(top), len(rows), model.num_outputs, len(rows), model.num_outputs
    blocks = covariance.reshape(shape)
    own = torch.diagonal(blocks, dim1=1, dim2=3).permute(0, 3, 1, 2)
    factor = torch.linalg.cholesky(own + noise.square().diag())
    sobol = SobolEngine(model.num_outputs + 1, scramble=True, seed=seed).draw(DRAWN).double()
    sobol = sobol.clamp(EDGE, 1.0 - EDGE)
    source = torch.searchsorted(weights.cumsum(0), sobol[:, 0].contiguous())
    source = source.clamp_max(len(top) - 1)
    normal = torch.special.ndtri(sobol[:, 1:])
    shown = mean[source] + torch.einsum("jxab,jb->jxa", factor[source], normal)
    # tried x outcomes drawn x components x outcomes of the model
    away = shown.transpose(0, 1)[:, :, None] - mean.transpose(0, 1)[:, None]
    scaled = torch.linalg.solve_triangular(
        factor.transpose(0, 1)[:, None], away[..., None], upper=False
    )[..., 0]
    logs = weights.log() - scaled.square().sum(dim=-1) / 2.0
    after = torch.softmax(logs - factor.diagonal(dim1=2, dim2=3).log().sum(dim=2).T[:, None], dim=2)
    # components x tried x outcomes x rows x outcomes
    half = torch.linalg.solve_triangular(factor, blocks.flatten(3), upper=False).reshape(shape)
    means = mean + torch.einsum("xjcb,cxbro->xjcro", scaled, half)
    taken = half.square().sum(dim=2)
    variance = torch.diagonal(covariance, dim1=1, dim2=2).reshape(len(top), 1, *mean.shape[1:])
    sd = (variance - taken).clamp_min(LEAST_VARIANCE).sqrt().transpose(0, 1)[:, None]
    log_kept = torch.zeros(means.shape[:-1], dtype=torch.float64)
    overshoot = torch.zeros_like(log_kept)
    for column in model.margins:
        deviation = sd[..., column]
        beyond = means[..., column] / deviation
        log_kept = log_kept + log_ndtr(-beyond)
        overshoot = overshoot + deviation * (phi(beyond) + beyond * ndtr(beyond))
    return Fantasies(after, log_kept, overshoot, means[..., 0], sd[..., 0])
