"""What the windows measured so far tell of every setting: Gaussian processes, averaged.

Nothing is fitted. Each hypothesis of the prior (`tuner.bo.prior`) meets each of a few sizes of residual
and roughness, and all are averaged by how likely they make the readings: with ten readings the most
probable hyperparameters alone are over-confident, and the averages cost less than a fit. Exact
inference throughout; the joint covariance of the grid is never formed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import torch
from torch import Tensor

from tuner.bo.encoding import Grid
from tuner.bo.kernels import matern
from tuner.bo.prior import Hypothesis
from tuner.core import Estimate, Prediction

RESIDUALS = ((0.25, 0.015), (0.25, 0.05), (0.8, 0.05), (0.8, 0.15))
"""Length scale (in the unit cube) and size (log units) of what a hypothesis misses: a Matérn-5/2
process. Our choice, as are the next."""

ROUGHNESS = (0.003, 0.015, 0.05)
"""Standard deviation of a single row from any smooth surface: measured tables are that rough."""

LEVEL = 1.0
"""Prior deviation of the baseline's own level from what its windows showed."""

LEAST_NOISE = 0.003
"""No window is more exact than this: drift between windows is not in its standard error."""

NEGLIGIBLE = 0.005
"""Combinations of so small a share of the likeliest one's probability are left out."""

JITTER = 1e-10

MOST_EXPONENT = 300.0
"""A metric so many log units from its reference is as good as anything further: exp of more overflows."""


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

    def stretch(self, share: float, value: float) -> float:
        """Return in the model's units how long a share of a value is, near that value."""
        return share if self.log else share * abs(value) / self.unit

    def width(self, estimate: Estimate) -> float:
        """Return an estimate's standard error in the model's units, never below the floor."""
        return max(estimate.stderr / (estimate.mean if self.log else self.unit), LEAST_NOISE)

    def prediction(self, mean: float, sd: float) -> Prediction:
        """Return the model's mean and deviation as those of the metric, in its own unit."""
        if not self.log:
            return Prediction(self.reference + self.unit * mean, self.unit * sd)
        variance = min(sd * sd, MOST_EXPONENT)
        expected = self.reference * math.exp(min(mean + variance / 2.0, MOST_EXPONENT))
        return Prediction(expected, expected * math.sqrt(math.expm1(variance)), lognormal=True)


@dataclass(frozen=True, slots=True)
class RowReading:
    """What all windows of one row of the grid showed of one metric, in the model's units."""

    metric: int
    row: int
    value: float
    noise: float


@dataclass(frozen=True, slots=True)
class Component:
    """One way to read the evidence: its share of the probability, and its marginals.

    `mean` and `sd` have one row per setting and one column per metric. `loo_mean` is what the other
    readings say of each reading, `loo_variance` how surely, its own noise counted in; both are
    empty where nothing was read.
    """

    weight: float
    mean: Tensor
    sd: Tensor
    loo_mean: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))
    loo_variance: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))


def posterior(
    grid: Grid, metrics: int, readings: Sequence[RowReading], priors: Sequence[Hypothesis]
) -> list[Component]:
    """Return what the readings say of every row: components whose weights add up to one.

    Deterministic for the same readings.
    """
    seen = _Seen(grid, metrics, readings)
    conditioned = [_Conditioned(seen, prior) for prior in priors]
    ways = list(product(product(RESIDUALS, ROUGHNESS), conditioned))
    shared = {rest: seen.covariance(*rest) for rest in product(RESIDUALS, ROUGHNESS)}
    logs = [hypothesis.evidence(shared[rest]) for rest, hypothesis in ways]
    weights = torch.softmax(torch.tensor(logs, dtype=torch.float64), dim=0)
    weights = torch.where(weights < NEGLIGIBLE * weights.max(), 0.0, weights)
    weights = weights / weights.sum()
    return [
        hypothesis.component(float(weight), seen, rest, shared[rest])
        for weight, (rest, hypothesis) in zip(weights, ways, strict=True)
        if weight > 0.0
    ]


Rest = tuple[tuple[float, float], float]
"""Length scale and size of a residual, and the roughness of rows."""


class _Seen:
    """The readings as tensors, and the covariances that every hypothesis shares."""

    def __init__(self, grid: Grid, metrics: int, readings: Sequence[RowReading]) -> None:
        self.metrics, self.rows = metrics, len(grid.settings)
        self.points = grid.points
        self.row = torch.tensor([r.row for r in readings], dtype=torch.long)
        self.metric = torch.tensor([r.metric for r in readings], dtype=torch.long)
        self.at = self.metric * self.rows + self.row
        self.value = torch.tensor([r.value for r in readings], dtype=torch.float64)
        self.noise = torch.tensor([r.noise**2 for r in readings], dtype=torch.float64)
        self.alike = (self.metric[:, None] == self.metric[None]).double()
        self.apart = torch.cdist(grid.points[self.row], grid.points[self.row])

    def covariance(self, size: tuple[float, float], roughness: float) -> Tensor:
        """Return level, residual, roughness and noise between the readings."""
        length, amplitude = size
        same = (self.row[:, None] == self.row[None]).double()
        smooth = amplitude**2 * matern(self.apart / length)
        return self.alike * (LEVEL**2 + smooth + roughness**2 * same) + self.noise.diag()

    def across(self, size: tuple[float, float], roughness: float) -> Tensor:
        """Return level, residual and roughness between the readings and every row and metric."""
        length, amplitude = size
        apart = torch.cdist(self.points[self.row], self.points)
        block = LEVEL**2 + amplitude**2 * matern(apart / length)
        block[torch.arange(len(self.row)), self.row] += roughness**2
        return torch.cat(
            [block * (self.metric == m).double()[:, None] for m in range(self.metrics)], 1
        )


def _factor(covariance: Tensor) -> Tensor:
    jitter = JITTER * torch.eye(len(covariance), dtype=torch.float64)
    factor: Tensor = torch.linalg.cholesky(covariance + jitter)
    return factor


def _fits(factor: Tensor, misses: Tensor) -> Tensor:
    """Return how likely each row of misses is."""
    solved: Tensor = torch.linalg.solve_triangular(factor, misses.T, upper=False)
    return -0.5 * solved.square().sum(dim=0) - factor.diagonal().log().sum()


class _Conditioned:
    """A hypothesis where it meets the readings."""

    def __init__(self, seen: _Seen, prior: Hypothesis) -> None:
        self._prior = prior
        self._known = prior.features[:, seen.at]
        self._between = self._known.T @ self._known
        self._misses = seen.value - prior.centres[:, seen.at]

    @cached_property
    def _across(self) -> Tensor:
        return self._known.T @ self._prior.features

    @cached_property
    def _width(self) -> Tensor:
        return self._prior.features.square().sum(dim=0)

    def evidence(self, shared: Tensor) -> float:
        """Return the log of the readings' probability, up to what all hypotheses share."""
        fits = _fits(_factor(shared + self._between), self._misses)
        return float(torch.logsumexp(fits, dim=0)) - math.log(len(fits))

    def component(self, weight: float, seen: _Seen, rest: Rest, shared: Tensor) -> Component:
        """Return the marginals at every row, the hypothesis's laws weighed by their fit."""
        (_, amplitude), roughness = rest
        factor = _factor(shared + self._between)
        across = seen.across(*rest) + self._across
        half = torch.linalg.solve_triangular(factor, across, upper=False)
        shares = torch.softmax(_fits(factor, self._misses), dim=0)
        likely = shares > NEGLIGIBLE * shares.max()
        shares, misses = shares[likely] / shares[likely].sum(), self._misses[likely]
        shifts = torch.linalg.solve_triangular(factor, misses.T, upper=False).T @ half
        means = self._prior.centres[likely] + shifts
        mean = shares @ means
        prior = LEVEL**2 + amplitude**2 + roughness**2 + self._width
        variance = prior - half.square().sum(dim=0) + shares @ (means - mean).square()
        shape = (seen.metrics, seen.rows)
        sd = variance.clamp_min(1e-12).sqrt()
        inverse = torch.cholesky_inverse(factor)
        loo_mean = seen.value - misses @ inverse / inverse.diagonal()
        centre = shares @ loo_mean
        return Component(
            weight=weight,
            mean=mean.reshape(shape).T,
            sd=sd.reshape(shape).T,
            loo_mean=centre,
            loo_variance=1.0 / inverse.diagonal() + shares @ (loo_mean - centre).square(),
        )
