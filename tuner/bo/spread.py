"""How much a metric that no law knows moves over the settings, learnt from what was measured of it.

An accuracy moves by percents where a time moves by factors. Taken for alike, every row of an accuracy that
may fall by 1.5 % is a coin's toss.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tuner.bo.encoding import Grid
from tuner.bo.kernels import matern
from tuner.bo.prior import power_laws

SPREADS = (1.0, 0.3, 0.1, 0.03, 0.01)
"""What a metric may move by, in shares of what times and energies move by. The prior is in proportion: of
two that explain the same, the larger is believed, as a knob not yet moved may do more than those that were.
Our choice."""
RESIDUAL_LENGTH, RESIDUAL, ROUGHNESS = 0.8, 0.05, 0.015
"""What power laws miss, as `tuner.bo.surrogate` has it."""


def learnt_spread(grid: Grid, rows: Tensor, shares: Tensor, stderrs: Tensor) -> float:
    """Return the mean of the spreads by how likely they make the readings; 1 before there are any.

    `rows` are those measured beside the baseline, `shares` how far each lies from the baseline's value as
    a share of it, `stderrs` how surely.
    """
    if not len(rows):
        return SPREADS[0]
    known = power_laws(grid, [True])[:, rows]
    apart = torch.cdist(grid.points[rows], grid.points[rows])
    smooth = RESIDUAL**2 * matern(apart / RESIDUAL_LENGTH)
    own = known.T @ known + smooth + ROUGHNESS**2 * torch.eye(len(rows), dtype=torch.float64)
    logs = []
    for spread in SPREADS:
        factor = torch.linalg.cholesky(spread**2 * own + stderrs.square().diag())
        solved = torch.linalg.solve_triangular(factor, shares[:, None], upper=False)
        fits = -0.5 * solved.square().sum() - factor.diagonal().log().sum()
        logs.append(float(fits) + float(torch.tensor(spread).log()))
    weights = torch.softmax(torch.tensor(logs, dtype=torch.float64), dim=0)
    return float(weights @ torch.tensor(SPREADS, dtype=torch.float64))
