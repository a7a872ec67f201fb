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


@dataclass(frozen=True, slots=True)
class RowReading:
    """All windows of one row of the grid for one metric, in the model's units."""

    metric: int
    row: int
    value: float
    noise: float


@dataclass(frozen=True, slots=True)
class Leftover:
    """The part that a hypothesis does not explain: a smooth residual, and roughness from row to row."""

    lengths: tuple[float, ...]
    residual: float
    roughness: float

    def covariance(self, smooth: Tensor, same: Tensor) -> Tensor:
        """Return level, residual and roughness between rows of this correlation that may be the same."""
        return LEVEL**2 + self.residual**2 * smooth + self.roughness**2 * same

    def alike(self, one: Tensor, other: Tensor) -> Tensor:
        """Return the correlation of the smooth residual between places."""
        lengths = torch.tensor(self.lengths, dtype=torch.float64)
        return matern(torch.cdist(one / lengths, other / lengths))


BESIDE_LAWS = tuple(
    Leftover((length,), residual, roughness)
    for length, residual, roughness in product(LENGTHS, SIZES[1:], SIZES[:-1])
)
"""The leftovers of a hypothesis about laws: all knobs have one length scale."""


@lru_cache(maxsize=2)
def without_laws(grid: Grid) -> tuple[Leftover, ...]:
    """Return the leftovers of a metric that no law covers: each knob has a length scale of its own."""
    source, knobs = torch.Generator().manual_seed(SEED), len(grid.names)
    draws = torch.randn(DRAWS, knobs, dtype=torch.float64, generator=source).exp()
    lengths = (math.sqrt(knobs) / 2.0 * draws)[:, list(grid.owners)].tolist()
    each = product(lengths, SCALES, ROUGH)
    return tuple(Leftover(tuple(own), scale, rough * scale) for own, scale, rough in each)


@dataclass(frozen=True, slots=True)
class Component:
    """One hypothesis with one residual, conditioned on the readings.

    `shares` are the probabilities of the `likely` ones of the hypothesis's laws. `solved` has one
    row per law: its misses times the inverse covariance.
    """

    prior: Hypothesis
    rest: Leftover
    factor: Tensor
    shares: Tensor
    likely: Tensor
    solved: Tensor

    @property
    def centres(self) -> Tensor:
        """The means under the likely laws, one row per law. Not cached, as they are large."""
        return self.prior.centres if self.likely.all() else self.prior.centres[self.likely]

    def disagreement(self, across: Tensor, homes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean over the laws, their variance, and their covariance with home.

        By moments: hundreds of laws over thousands of rows are passed twice, and not kept.
        """
        centres, shares, solved = self.centres, self.shares, self.solved
        weighed = shares[:, None] * solved
        mean = shares @ centres + weighed.sum(dim=0) @ across
        moved = 2.0 * (weighed.T @ centres) + (weighed.T @ solved) @ across
        second = (shares.sqrt()[:, None] * centres).square_().sum(dim=0)
        second = second + (moved * across).sum(dim=0)
        at_home = centres[:, homes] + solved @ across[:, homes]
        away = (shares[:, None] * (at_home - mean[homes])).T
        both = (away @ centres + (away @ solved) @ across).reshape(len(homes), len(homes), -1)
        together = both.diagonal(dim1=0, dim2=1).T.flatten()
        return mean, (second - mean.square()).clamp_min(0.0), together


class Mixture:
    """Gaussian processes over the rows of a grid, averaged by the probability of the readings.

    `weights` has the share of each component. `mean`, `variance` and `with_home`, the covariance of
    each row with `home`, have the shape `components x rows x metrics`. Each hypothesis is combined
    with each of `rests`. Deterministic for the same readings.
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
        self._at = self.metric * self.rows + self.row
        self.components, self.weights = self._conditioned_on_all(priors, rests)
        several = {c.rest.lengths: c.rest for c in self.components}
        self._smooth = {
            lengths: rest.alike(self.points[self.row], self.points)
            for lengths, rest in several.items()
        }
        self._products = {
            prior: prior.features[:, self._at].T @ prior.features
            for prior in dict.fromkeys(c.prior for c in self.components)
        }
        self.mean, self.variance, self.with_home = self._marginals()

    def joint(self, rows: Tensor, which: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return means `components x metrics x rows` and their covariances, flattened in that order."""
        flat = (torch.arange(self.metrics)[:, None] * self.rows + rows).flatten()
        same = (rows[:, None] == rows).double()
        blocks = torch.eye(self.metrics, dtype=torch.float64)
        means, covariances = [], []
        for place in which:
            component = self.components[place]
            smooth = component.rest.alike(self.points[rows], self.points[rows])
            block = component.rest.covariance(smooth, same)
            features = component.prior.features[:, flat]
            across = self._across(component)[:, flat]
            half = torch.linalg.solve_triangular(component.factor, across, upper=False)
            each = component.centres[:, flat] + component.solved @ across
            mean = component.shares @ each
            away = component.shares.sqrt()[:, None] * (each - mean)
            covariance = torch.kron(blocks, block) + features.T @ features - half.T @ half
            covariance += away.T @ away
            means.append(mean.reshape(self.metrics, -1))
            covariances.append(covariance)
        return torch.stack(means), torch.stack(covariances)

    def beside_home(self, rows: Sequence[int], most: int) -> tuple[Tensor, Tensor]:
        """Return mean and covariance of the metrics of `rows`, relative to those of home, the first.

        Over the `most` likeliest components, as the normal distribution of their moments: `metrics
        x rows`, flattened in that order.
        """
        best = self.weights.argsort(descending=True)[:most]
        shares = self.weights[best] / self.weights[best].sum()
        means, covariances = self.joint(torch.tensor(rows), best.tolist())
        contrast = torch.eye(len(rows), dtype=torch.float64)
        contrast[:, 0] -= 1.0
        form = torch.kron(torch.eye(self.metrics, dtype=torch.float64), contrast)
        each = means.flatten(1) @ form.T
        mean = shares @ each
        away = shares.sqrt()[:, None] * (each - mean)
        within = torch.einsum("c,cij->ij", shares, covariances)
        return mean, form @ within @ form.T + away.T @ away

    def _conditioned_on_all(
        self, priors: Sequence[Hypothesis], rests: Sequence[Leftover]
    ) -> tuple[list[Component], Tensor]:
        """Return the components that count, and the probability of each.

        All residuals of a hypothesis are computed together, in a third of the time.
        """
        same = (self.row[:, None] == self.row).double()
        read = self.points[self.row]
        several = {rest.lengths: rest for rest in rests}
        smooth = {lengths: rest.alike(read, read) for lengths, rest in several.items()}
        rough = torch.stack([rest.covariance(smooth[rest.lengths], same) for rest in rests])
        alike = (self.metric[:, None] == self.metric).double()
        between = alike * rough + (self.noise.square() + JITTER).diag()
        factors, fits = [], []
        for prior in priors:
            features = prior.features[:, self._at]
            factors.append(torch.linalg.cholesky(between + features.T @ features))
            fits.append(self._fits(prior, factors[-1]))
        logs = torch.stack([f.logsumexp(dim=1) - math.log(f.shape[1]) for f in fits], dim=1)
        weights = torch.softmax(logs.flatten(), dim=0)
        if len(rests) > MOST_COMPONENTS:
            ticks = (torch.arange(MOST_COMPONENTS) + 0.5) / MOST_COMPONENTS
            places = torch.searchsorted(weights.cumsum(dim=0), ticks.double())
            weights = torch.bincount(places, minlength=len(weights)).double() / MOST_COMPONENTS
        selected = torch.nonzero(weights >= min(NEGLIGIBLE, float(weights.max()))).flatten()
        components = []
        for rest, prior in (divmod(i, len(priors)) for i in selected.tolist()):
            factor, law_fits = factors[prior][rest].clone(), fits[prior][rest]
            components.append(self._component(priors[prior], rests[rest], factor, law_fits))
        return components, weights[selected] / weights[selected].sum()

    def _fits(self, prior: Hypothesis, factors: Tensor) -> Tensor:
        """Return the log probability of the readings, up to a common constant: `factors x laws`."""
        misses = (self.value - prior.centres[:, self._at]).T
        half: Tensor = torch.linalg.solve_triangular(factors, misses, upper=False)
        sizes = factors.diagonal(dim1=1, dim2=2).log().sum(dim=1)
        return -half.square().sum(dim=1) / 2.0 - sizes[:, None]

    def _component(
        self, prior: Hypothesis, rest: Leftover, factor: Tensor, fits: Tensor
    ) -> Component:
        """Return a component with its likely laws."""
        shares = torch.softmax(fits, dim=0)
        likely = shares > NEGLIGIBLE * shares.max()
        misses = (self.value - prior.centres[likely][:, self._at]).T
        solved = torch.cholesky_solve(misses, factor).T
        normalised = shares[likely] / shares[likely].sum()
        return Component(prior, rest, factor, normalised, likely, solved)

    def _across(self, component: Component) -> Tensor:
        """Return the covariance of the readings with every metric at every row, flattened in that order."""
        rest, each = component.rest, torch.arange(len(self.row))
        block = LEVEL**2 + rest.residual**2 * self._smooth[rest.lengths]
        block[each, self.row] += rest.roughness**2
        across = self._products[component.prior].clone()
        across.view(len(self.row), self.metrics, self.rows)[each, self.metric] += block
        return across

    def _marginals(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean, variance and covariance with home: `components x rows x metrics`."""
        rows, marginals = torch.arange(self.rows), []
        homes = torch.arange(self.metrics) * self.rows + self.home
        with_home = {prior: prior.with_row(self.home, self.metrics) for prior in self._products}
        for component in self.components:
            rest, prior = component.rest, component.prior
            across = self._across(component)
            half = torch.linalg.solve_triangular(component.factor, across, upper=False)
            smooth = rest.residual**2 * rest.alike(self.points[[self.home]], self.points)
            smooth = smooth + rest.roughness**2 * (rows == self.home)
            widths = (
                rest.residual**2 + rest.roughness**2 + prior.width,
                smooth.repeat(1, self.metrics)[0] + with_home[prior],
            )
            same = half[:, homes].repeat_interleave(self.rows, dim=1)
            own = half.square().sum(dim=0), (half * same).sum(dim=0)
            mean, *laws = component.disagreement(across, homes)
            parts = (LEVEL**2 + w - o + a for w, o, a in zip(widths, own, laws, strict=True))
            marginals.append(torch.stack([mean, *parts]).reshape(-1, self.metrics, self.rows))
        means, variance, covariance = torch.stack(marginals, dim=1).mT.contiguous()
        return means, variance.clamp_min(JITTER), covariance


def matern(distance: Tensor) -> Tensor:
    """Return the Matérn-5/2 correlation at a distance in length scales."""
    scaled = math.sqrt(5.0) * distance
    return (1.0 + scaled + scaled.square() / 3.0) * (-scaled).exp()
