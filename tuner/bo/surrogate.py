"""One Gaussian process per metric, with the noise that its windows had."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import botorch
import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from tuner.bo.encoding import Grid
from tuner.core import Estimate, Prediction

ELASTICITY = 0.5
"""Time, power and energy go about as powers of clocks, threads and batch sizes. This is the expected
size of the exponents: 1 is strictly proportional. Our choice, as are the next four."""

CURVATURE = 0.4
"""By how much an exponent is expected to change over the span of its own or another knob."""

AMPLITUDE = 0.3
"""How far a metric is expected to stray from such a law over the whole space, in log units."""

ROUGHNESS = 0.01
"""Standard deviation of a single row from any smooth surface: measured tables are that rough."""

LEAST_NOISE = 0.003
"""No window is more exact than this: drift between windows is not in its standard error."""

MOST_STEPS = 100
"""Steps of the optimiser in one fit."""


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
        if self.log:
            return math.log(value / self.reference)
        return (value - self.reference) / self.unit

    def width(self, estimate: Estimate) -> float:
        """Return an estimate's standard error in the model's units, never below the floor."""
        return max(estimate.stderr / (estimate.mean if self.log else self.unit), LEAST_NOISE)

    def prediction(self, mean: float, sd: float) -> Prediction:
        """Return the model's mean and deviation as those of the metric, in its own unit."""
        if not self.log:
            return Prediction(self.reference + self.unit * mean, self.unit * sd)
        expected = self.reference * math.exp(mean + sd * sd / 2.0)
        return Prediction(expected, expected * math.sqrt(math.expm1(sd * sd)))


@dataclass(frozen=True, slots=True)
class Reading:
    """What all windows of one row of the grid showed together, in the model's units."""

    row: int
    value: float
    noise: float


class PowerLaw(Kernel):  # type: ignore[misc]
    """Laws that are quadratic in the logarithms of the knobs and nothing at the baseline.

    Without parameters: the elasticities themselves have a fixed normal prior.
    """

    def __init__(self, centre: Tensor, spans: Tensor) -> None:
        super().__init__()
        self._centre, self._spans = centre, spans

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: object) -> Tensor:
        """Return the covariance between two sets of points."""
        slopes = self._inner(x1, x2, self._spans, diag)
        bends = self._inner(x1, x2, self._spans.sqrt(), diag)
        return ELASTICITY**2 * slopes + CURVATURE**2 / 2.0 * bends.square()

    def _inner(self, x1: Tensor, x2: Tensor, weights: Tensor, diag: bool) -> Tensor:
        one, other = (x1 - self._centre) * weights, (x2 - self._centre) * weights
        return (one * other).sum(-1) if diag else one @ other.transpose(-1, -2)


def marginals(
    grid: Grid, baseline: int, readings: Sequence[Reading], seed: int
) -> tuple[Tensor, Tensor]:
    """Return posterior mean and standard deviation of one metric at every row of the grid.

    The prior: zero at the baseline row; power laws of the knobs; a Matérn-5/2 process with one
    length scale per knob (BoTorch's dimension-scaled priors) for what they miss; an independent
    deviation of every row. Length scales and amplitude are the most probable ones; those of the
    prior below two readings, or where no optimum is found. The joint covariance of the grid is
    never formed. Deterministic for the same readings and seed.
    """
    rows = torch.tensor([r.row for r in readings], dtype=torch.long)
    values = torch.tensor([[r.value] for r in readings], dtype=torch.float64)
    noise = torch.tensor([[r.noise**2] for r in readings], dtype=torch.float64) + ROUGHNESS**2
    points = grid.points
    law = PowerLaw(points[baseline], grid.spans)
    kernel = _fitted(points[rows], values, noise, law, seed).covar_module
    with torch.no_grad():
        across = kernel(points[rows], points).to_dense()
        within = across[:, rows] + noise.squeeze(-1).diag()
        across[torch.arange(len(rows)), rows] += ROUGHNESS**2
        factor = torch.linalg.cholesky(within)
        solved = torch.linalg.solve_triangular(
            factor, torch.cat([values, across], dim=1), upper=False
        )
        mean = solved[:, 1:].T @ solved[:, 0]
        prior = kernel(points, diag=True) + ROUGHNESS**2
        variance = prior - solved[:, 1:].square().sum(dim=0)
    return mean, variance.clamp_min(1e-12).sqrt()


def _fitted(
    points: Tensor, values: Tensor, noise: Tensor, law: PowerLaw, seed: int
) -> SingleTaskGP:
    rest = ScaleKernel(
        get_covar_module_with_dim_scaled_prior(points.shape[-1], use_rbf_kernel=False),
        outputscale_prior=LogNormalPrior(2.0 * math.log(AMPLITUDE), 1.0),
    )
    rest.outputscale = AMPLITUDE**2
    # Values are relative to the baseline, not standardised: a few alike say little about the rest.
    with botorch.settings.validate_input_scaling(False):
        model = SingleTaskGP(
            points,
            values,
            train_Yvar=noise,
            covar_module=law + rest,
            mean_module=ZeroMean(),
            outcome_transform=None,
        )
    if len(values) < 2:
        return model
    likelihood = ExactMarginalLogLikelihood(model.likelihood, model)
    prior = {name: value.clone() for name, value in model.state_dict().items()}
    # A fit that fails is tried again from random hyperparameters: seeded, leaving others' draws be.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            fit_gpytorch_mll(likelihood, optimizer_kwargs={"options": {"maxiter": MOST_STEPS}})
        except ModelFittingError:
            model.load_state_dict(prior)
    return model
