"""One Gaussian process per metric, with the noise the windows had."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import botorch
import torch
from botorch.exceptions import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.kernels import ScaleKernel
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from tuner.core import Estimate, Prediction

AMPLITUDE = 0.3
"""How much a metric is expected to vary over a space, before anything is known: log units."""

ROUGHNESS = 0.01
"""Standard deviation of a single row from any smooth surface: measured tables are that rough."""

LEAST_NOISE = 0.003
"""No window is more exact than this: drift between windows is not in its standard error."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How a metric enters its model: relative to `reference`, as a logarithm where `log` is set.

    Metrics that are somewhere zero or negative are taken as differences in units of `unit` instead.
    """

    reference: float
    log: bool
    unit: float = 1.0

    @classmethod
    def of(cls, reference: float, values: Sequence[float]) -> Scale:
        """Return the scale for values seen beside a reference, the baseline's."""
        if reference > 0.0 and all(v > 0.0 for v in values):
            return cls(reference, True)
        spread = max((abs(v - reference) for v in values), default=0.0)
        return cls(reference, False, max(spread, abs(reference)) or 1.0)

    def place(self, value: float) -> float:
        """Return a value of the metric in the model's units."""
        if not self.log:
            return (value - self.reference) / self.unit
        return math.log(value / self.reference) if value > 0.0 else -math.inf

    def width(self, estimate: Estimate) -> float:
        """Return an estimate's standard error in the model's units, never below the floor."""
        own = estimate.stderr / (estimate.mean if self.log else self.unit)
        return max(own, LEAST_NOISE)

    def prediction(self, mean: float, sd: float) -> Prediction:
        """Return the model's mean and deviation as those of the metric, in its own unit."""
        if not self.log:
            return Prediction(self.reference + self.unit * mean, self.unit * sd)
        expected = self.reference * math.exp(mean + sd * sd / 2.0)
        return Prediction(expected, expected * math.sqrt(math.expm1(sd * sd)))


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known of one row of the grid, in the model's units: all its windows together."""

    row: int
    value: float
    noise: float


def marginals(points: Tensor, readings: Sequence[Reading], seed: int) -> tuple[Tensor, Tensor]:
    """Return posterior mean and standard deviation of one metric at every point of the grid.

    The prior is zero, the baseline, with a Matérn-5/2 kernel of one length scale per knob (BoTorch's
    dimension-scaled priors), plus an independent deviation of each row. The joint covariance of the
    grid is never formed. Hyperparameters are the most probable ones; below two readings, or where no
    optimum is found, those of the prior.
    """
    rows = torch.tensor([r.row for r in readings], dtype=torch.long)
    values = torch.tensor([[r.value] for r in readings], dtype=torch.float64)
    noise = torch.tensor([[r.noise**2] for r in readings], dtype=torch.float64) + ROUGHNESS**2
    model = _fitted(points[rows], values, noise, seed)
    with torch.no_grad():
        kernel = model.covar_module
        prior = kernel(points, diag=True) + ROUGHNESS**2
        across = kernel(points[rows], points).to_dense()
        within = across[:, rows] + noise.squeeze(-1).diag()
        across[torch.arange(len(rows)), rows] += ROUGHNESS**2
        factor = torch.linalg.cholesky(within)
        solved = torch.linalg.solve_triangular(
            factor, torch.cat([values, across], dim=1), upper=False
        )
        mean = solved[:, 1:].T @ solved[:, 0]
        variance = prior - solved[:, 1:].square().sum(dim=0)
    return mean, variance.clamp_min(1e-12).sqrt()


def _fitted(points: Tensor, values: Tensor, noise: Tensor, seed: int) -> SingleTaskGP:
    smooth = get_covar_module_with_dim_scaled_prior(points.shape[-1], use_rbf_kernel=False)
    amplitude = LogNormalPrior(math.log(AMPLITUDE**2), 1.0)
    kernel = ScaleKernel(smooth, outputscale_prior=amplitude)
    kernel.outputscale = AMPLITUDE**2
    with botorch.settings.validate_input_scaling(False):
        model = SingleTaskGP(
            points,
            values,
            train_Yvar=noise,
            covar_module=kernel,
            mean_module=ZeroMean(),
            outcome_transform=None,
        )
    if len(values) < 2:
        return model
    likelihood = ExactMarginalLogLikelihood(model.likelihood, model)
    untouched = {name: value.clone() for name, value in model.state_dict().items()}
    # A fit that fails is tried again from random hyperparameters: seeded, and nobody else's seed.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            fit_gpytorch_mll(likelihood, optimizer_kwargs={"options": {"maxiter": 100}})
        except ModelFittingError:
            model.load_state_dict(untouched)
    return model
