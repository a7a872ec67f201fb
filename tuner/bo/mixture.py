"""Predict every setting from the windows so far: a mixture of Gaussian processes.

Nothing is fitted. Each hypothesis of the prior (`tuner.bo.prior`) is combined with a few sizes of
residual and roughness, and each combination is weighted by the probability of the readings under
it. With ten readings the most probable hyperparameters alone are over-confident, and the averages
cost less than a fit. Inference is exact; the joint covariance of the whole grid is never formed,
only that of selected rows. `tuner.bo.front` makes a BoTorch model of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import torch
from torch import Tensor

from tuner.bo.encoding import Grid
from tuner.bo.prior import JITTER, Hypothesis

SIZES = (0.01, 0.03, 0.1, 0.3)
"""Deviations (log units). The residual of a hypothesis is a Matérn-5/2 process with one of the
larger three; a single row deviates from any smooth surface by one of the smaller three."""

LENGTHS = (0.25, 1.0)
"""Length scales of that process, in the unit cube."""

SCALES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
"""Deviations of a metric without a law: an accuracy moves by percents where a time moves by factors."""

ROUGH = (0.01, 0.1)
"""Its deviations of a single row, as shares of these."""

DRAWS = 32
"""Draws of its length scales, one for each knob: lognormal, a factor of e wide, around half the square
root of the number of knobs, as the distance of two settings grows with it."""

SEED = 20_260_117
"""The draws are the same in every study."""

LEVEL = 1.0
"""Prior deviation of the baseline's own level from its windows."""

NEGLIGIBLE = 0.005
"""Components below this share of the probability are dropped, and laws below this share of the
likeliest's."""

MOST_COMPONENTS = 96
"""Where there are more leftovers, this number of components is drawn in proportion to their
probability, at equal intervals."""

BLOCK = 1_024
"""The number of rows that are predicted at once: few enough for a processor's cache."""


@dataclass(frozen=True, slots=True)
class RowReading:
    """All windows of one row of the grid for one metric, in the model's units."""

    metric: int
    row: int
    value: float
    noise: float


@dataclass(frozen=True, slots=True)
class Leftover:
    """The parts that a hypothesis does not explain: smooth residuals, and roughness from row to row.

    All residuals have the same length scales. `sizes` are the deviations of residual and roughness.
    """

    lengths: tuple[float, ...]
    sizes: tuple[tuple[float, float], ...]

    def covariance(self, smooth: Tensor, same: Tensor) -> Tensor:
        """Return level, residual and roughness between rows of this correlation that may be the same."""
        residual, roughness = self.variances()[..., None, None].unbind()
        return LEVEL**2 + residual * smooth + roughness * same

    def variances(self) -> Tensor:
        """Return the variances of the residuals and of their roughness."""
        return torch.tensor(self.sizes, dtype=torch.float64).square().T

    def alike(self, one: Tensor, other: Tensor) -> Tensor:
        """Return the correlation of the smooth residuals between places."""
        lengths = torch.tensor(self.lengths, dtype=torch.float64)
        return matern(torch.cdist(one / lengths, other / lengths))


BESIDE_LAWS = tuple(
    Leftover((length,), tuple(product(SIZES[1:], SIZES[:-1]))) for length in LENGTHS
)
"""The leftovers of a hypothesis about laws: all knobs have one length scale."""


@lru_cache(maxsize=2)
def without_laws(grid: Grid) -> tuple[Leftover, ...]:
    """Return the leftovers of a metric that no law covers: each knob has a length scale of its own."""
    source, knobs = torch.Generator().manual_seed(SEED), len(grid.names)
    draws = torch.randn(DRAWS, knobs, dtype=torch.float64, generator=source).exp()
    lengths = (math.sqrt(knobs) / 2.0 * draws)[:, list(grid.owners)].tolist()
    sizes = tuple((scale, rough * scale) for scale, rough in product(SCALES, ROUGH))
    return tuple(Leftover(tuple(own), sizes) for own in lengths)


@dataclass(frozen=True, slots=True)
class Branch:
    """The components of one hypothesis with one kind of leftover, conditioned on the readings.

    `laws` are the hypothesis's laws that are likely under one of them. With one entry per component:
    `sizes` has the variances of residual and roughness, `shares` the probability of each of these laws,
    `whitening` the inverse of the Cholesky factor of the readings' covariance, `misses` what each law
    leaves of the readings, whitened.
    """

    prior: Hypothesis
    rest: Leftover
    laws: Tensor | slice
    sizes: Tensor
    shares: Tensor
    whitening: Tensor
    misses: Tensor


class Mixture:
    """Gaussian processes over the rows of a grid, averaged by the probability of the readings.

    `weights` has the share of each component. `mean`, `variance` and `with_home`, the covariance of
    each row with `home`, have the shape `components x rows x metrics`. Each hypothesis is combined
    with each size of each of `rests`, which have equally many. Deterministic for the same readings.
    """

    def __init__(
        self,
        grid: Grid,
        home: int,
        metrics: int,
        readings: Sequence[RowReading],
        priors: Sequence[Hypothesis],
        rests: Sequence[Leftover] = BESIDE_LAWS,
    ) -> None:
        self.home, self.metrics = home, metrics
        self.rows, self.points = len(grid.settings), grid.places
        self.row = torch.tensor([r.row for r in readings], dtype=torch.long)
        self.metric = torch.tensor([r.metric for r in readings], dtype=torch.long)
        self.value = torch.tensor([r.value for r in readings], dtype=torch.float64)
        self.noise = torch.tensor([r.noise for r in readings], dtype=torch.float64)
        # The expected noise of a further reading of each metric is the median of its readings.
        own = [self.noise[self.metric == metric] for metric in range(metrics)]
        self.usual_noise = torch.stack([(x if len(x) else self.noise).median() for x in own])
        self._read = self.metric * self.rows + self.row
        self._branches, self.weights = self._conditioned_on_all(priors, rests)
        seen = self.points[[home, *self.row.tolist()]]
        several = dict.fromkeys(branch.rest for branch in self._branches)
        self._smooth = {rest: rest.alike(seen, self.points) for rest in several}
        self.mean, self.variance, self.with_home = self._marginals()

    def hypotheses(self) -> list[Hypothesis]:
        """Return the hypothesis of each component."""
        return [branch.prior for branch in self._branches for _ in branch.shares]

    def joint(self, metric: int, rows: Tensor, which: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return a metric's means `components x rows` and the covariance of the rows in each."""
        same = (rows[:, None] == rows).double()
        components = [(branch, n) for branch in self._branches for n in range(len(branch.shares))]
        means, covariances = [], []
        for branch, n in (components[place] for place in which):
            centres, features, halves = self._at(branch, metric, rows)
            residual, roughness = branch.sizes[:, n]
            smooth = branch.rest.alike(self.points[rows], self.points[rows])
            block = LEVEL**2 + residual * smooth + roughness * same
            shares, half = branch.shares[n], halves[n]
            each = centres + branch.misses[n].T @ half
            means.append(shares @ each)
            away = shares.sqrt()[:, None] * (each - means[-1])
            covariances.append(block + features.T @ features - half.T @ half + away.T @ away)
        return torch.stack(means), torch.stack(covariances)

    def beside_home(self, metric: int, rows: Sequence[int], most: int) -> tuple[Tensor, Tensor]:
        """Return mean and covariance of a metric of `rows`, relative to that of home.

        Over the `most` likeliest components, as the normal distribution of their moments.
        """
        best = self.weights.argsort(descending=True)[:most]
        shares = self.weights[best] / self.weights[best].sum()
        means, covariances = self.joint(metric, torch.tensor([self.home, *rows]), best.tolist())
        contrast = torch.eye(len(rows) + 1, dtype=torch.float64)[1:]
        contrast[:, 0] -= 1.0
        each = means @ contrast.T
        mean = shares @ each
        away = shares.sqrt()[:, None] * (each - mean)
        within = torch.einsum("c,cij->ij", shares, covariances)
        return mean, contrast @ within @ contrast.T + away.T @ away

    def _conditioned_on_all(
        self, priors: Sequence[Hypothesis], rests: Sequence[Leftover]
    ) -> tuple[list[Branch], Tensor]:
        """Return the components that count, by hypothesis, and the probability of each.

        All residuals of a hypothesis are computed together, in a third of the time.
        """
        same = (self.row[:, None] == self.row).double()
        read = self.points[self.row]
        rough = torch.cat([rest.covariance(rest.alike(read, read), same) for rest in rests])
        alike = (self.metric[:, None] == self.metric).double()
        between = alike * rough + (self.noise.square() + JITTER).diag()
        factors, misses, fits = [], [], []
        for prior in priors:
            features = prior.features[:, self._read]
            factors.append(torch.linalg.cholesky(between + features.T @ features))
            missed = (self.value - prior.centres[:, self._read]).T
            misses.append(torch.linalg.solve_triangular(factors[-1], missed, upper=False))
            sizes = factors[-1].diagonal(dim1=1, dim2=2).log().sum(dim=1)
            fits.append(-misses[-1].square().sum(dim=1) / 2.0 - sizes[:, None])
        logs = torch.stack([f.logsumexp(dim=1) - math.log(f.shape[1]) for f in fits], dim=1)
        weights = torch.softmax(logs.flatten(), dim=0)
        if len(rough) > MOST_COMPONENTS:
            ticks = (torch.arange(MOST_COMPONENTS) + 0.5) / MOST_COMPONENTS
            places = torch.searchsorted(weights.cumsum(dim=0), ticks.double())
            weights = torch.bincount(places, minlength=len(weights)).double() / MOST_COMPONENTS
        weights = weights.reshape(len(rests), -1, len(priors))
        weights = torch.where(weights >= min(NEGLIGIBLE, float(weights.max())), weights, 0.0)
        one, branches, selected = torch.eye(len(self.row), dtype=torch.float64), [], []
        for (n, prior), (at, rest) in product(enumerate(priors), enumerate(rests)):
            own = torch.nonzero(weights[at, :, n]).flatten()
            if not len(own):
                continue
            of_rest, missed, factor = (
                torch.unflatten(each[n], 0, (len(rests), -1))[at, own]
                for each in (fits, misses, factors)
            )
            shares = torch.softmax(of_rest, dim=1)
            likely = shares > NEGLIGIBLE * shares.amax(dim=1, keepdim=True)
            used = likely.any(dim=0)
            laws = slice(None) if used.all() else torch.nonzero(used).flatten()
            shares = (shares * likely)[:, laws]
            shares /= shares.sum(dim=1, keepdim=True)
            whitening = torch.linalg.solve_triangular(factor, one, upper=False)
            sizes = rest.variances()[:, own]
            branches.append(Branch(prior, rest, laws, sizes, shares, whitening, missed[..., laws]))
            selected.append(weights[at, own, n])
        return branches, torch.cat(selected) / torch.cat(selected).sum()

    def _at(
        self, branch: Branch, metric: int, rows: Tensor | slice
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return means, features, and whitened covariances with the readings, of a metric at some rows."""
        prior, own = branch.prior, self.metric == metric
        columns = slice(metric * self.rows, (metric + 1) * self.rows)
        features = prior.features[:, columns][:, rows]
        shared = prior.features[:, self._read].T @ features
        shared[own] += LEVEL**2
        smooth = self._smooth[branch.rest][1:, rows][own]
        same = (self.row[own, None] == torch.arange(self.rows)[rows]).double()
        sized = branch.sizes[..., None, None] * branch.whitening[..., own]
        whitening = torch.cat([branch.whitening, *sized], dim=2)
        half = whitening @ torch.cat([shared, smooth, same])
        return prior.centres[:, columns][:, rows][branch.laws], features, half

    def _marginals(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean, variance and covariance with home: `components x rows x metrics`."""
        moments = torch.empty(3, len(self.weights), self.metrics, self.rows, dtype=torch.float64)
        parts = torch.split(moments, [len(branch.shares) for branch in self._branches], dim=1)
        for branch, part in zip(self._branches, parts, strict=True):
            for metric in range(self.metrics):
                self._moments(branch, metric, part[:, :, metric])
        means, variance, covariance = moments.mT
        return means, variance.clamp_min(JITTER), covariance

    def _moments(self, branch: Branch, metric: int, moments: Tensor) -> None:
        """Put mean, variance and covariance with home of a metric at every row: `3 x components x rows`.

        By the moments of the laws: hundreds of laws over thousands of rows are not kept.
        """
        shares, misses = branch.shares, branch.misses
        weighed = shares[:, None] * misses
        home = slice(self.home, self.home + 1)
        centres, at_home, half = self._at(branch, metric, home)
        centred = centres.T + (misses * half).sum(dim=1)
        away = shares * (centred - (shares * centred).sum(dim=1, keepdim=True))
        beside = (away[:, None] * misses).sum(dim=2) - half[..., 0]
        means = torch.cat([shares[:, None], away[:, None], 2.0 * weighed], dim=1)
        within = weighed @ misses.mT - torch.eye(len(self.row), dtype=torch.float64)
        moves = torch.cat([weighed.sum(dim=2)[:, None], beside[:, None], within], dim=1)
        residual, roughness = branch.sizes[..., None]
        for start in range(0, self.rows, BLOCK):
            rows = slice(start, min(start + BLOCK, self.rows))
            centres, features, half = self._at(branch, metric, rows)
            moved = torch.baddbmm(means @ centres, moves, half)
            mean, second = moved[:, 0], shares @ centres.square() + (moved[:, 2:] * half).sum(dim=1)
            moments[0, :, rows] = mean
            moments[1, :, rows] = second - mean.square() + features.square().sum(dim=0)
            moments[2, :, rows] = moved[:, 1] + (features * at_home).sum(dim=0)
        moments[1] += LEVEL**2 + residual + roughness
        moments[2] += LEVEL**2 + residual * self._smooth[branch.rest][0]
        moments[2, :, self.home] += roughness[:, 0]


def matern(distance: Tensor) -> Tensor:
    """Return the Matérn-5/2 correlation at a distance in length scales."""
    scaled = math.sqrt(5.0) * distance
    return (1.0 + scaled + scaled.square() / 3.0) * (-scaled).exp()
