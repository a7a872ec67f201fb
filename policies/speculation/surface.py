"""Model the cost of a token at every batch, length and draft, with its error, from few windows.

A step costs t_verify(b, s) + s · t_draft(b) and brings l(s) + 1 tokens (Su et al., arXiv
2310.18813; Yan et al., arXiv 2402.01528). Here that is one model of all cells together, in
logarithms:

- t_verify(b, s) depends on the tokens of the pass, b · (s + 1), or on the whole tiles that they fill,
  on the requests, and on whether it verifies at all: so a plain step at 16 requests informs about a
  longer one at 2;
- t_draft(b) = t_verify(b, 0) · d(draft) · e(b); l(s) = p + p² + … + p^s for each draft;
- the misfit of these forms: a small one for each cell, similar in neighbouring ones.

The parameters have a wide normal prior; those of neighbouring batches and similar drafts are
correlated. The posterior is that of the linearised model about its most likely parameters (iterated
Gauss–Newton), so that the costs of all cells are jointly normal. Energy per step is modelled the
same way as time. Form and prior are our own choice; the constants were chosen on synthetic
machines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from policies.speculation.grid import Cell, Choice, Draft

ItemT = TypeVar("ItemT")
Array = NDArray[np.float64]
Terms = dict[Hashable, float]
"""A function's slope along some parameters, by their names."""

LEVEL_SD = 3.0
RISE, RISE_SD = 0.4, 0.35
"""The rise of the logarithm of a pass's time with every doubling of its tokens: 0 while memory
is the limit, log 2 once computing is."""
BENDS_SD, BENDS_REACH = 0.5, 2.5
"""The deviation from that line, and its length scale in doublings."""
REQUESTS_RISE_SD, REQUESTS_SD = 0.1, 0.05
JUMP, JUMP_SD, JUMPS_SD = 0.05, 0.15, 0.05
"""The extra time of verifying over a plain pass of as many tokens, and its deviation by batch."""
DRAFTING, DRAFTING_SD = -2.5, 1.2
"""One drafted token takes e^-2.5, a twelfth, of a plain step."""
PACE_RISE_SD, PACE_SD = 0.15, 0.2
ACCEPTS, ACCEPTS_SD = 0.8, 1.2
"""Log-odds that a drafted token is accepted."""
SCATTER_SD, SCATTER_REACH = 0.04, 2.0
MISS_SD, MISS_REACH, MISS_DOUBLINGS = 0.03, 2.0, 1.5
ROUGHNESS = (0.5, 1.0, 2.0, 4.0)
"""The possible roughness of a machine: multiples of the usual misfit."""
TILES, ROUGHNESS_OF_TILES = (8, 16, 32, 64, 128), (0.5, 1.0)
"""The possible tiles of a machine, in tokens: matrix kernels compute whole tiles, so that a pass takes
as long as the tiles that its tokens fill."""
REQUESTS_REACH = 1.5
DRAFT_REACH = 2.0
STEPS = 40
CONVERGED = 1e-6

Block = tuple[list[Hashable], float | Array, Array]
What = Literal["cost", "step", "tokens", "drafting"]


@dataclass(frozen=True, slots=True)
class CellObservation:
    """The logarithm of a measured quantity at a cell, and its standard error.

    `cost`: of a token. `step`: of a step. `tokens`: of the tokens of a sequence in a step.
    `drafting`: of all drafting over the verifying pass.
    """

    what: What
    cell: Cell
    value: float
    sd: float


@dataclass(frozen=True)
class CostSurface:
    """The joint normal distribution of the logarithm of each cell's cost per token."""

    cells: tuple[Cell, ...]
    mean: Array
    cov: Array

    @cached_property
    def index(self) -> dict[Cell, int]:
        """The index of each cell."""
        return {cell: i for i, cell in enumerate(self.cells)}


def outlook(cells: Sequence[Cell], observed: Sequence[CellObservation]) -> CostSurface:
    """Return the predicted cost of every cell after these observations; without any, the prior.

    The roughness of the machine, the deviation of single cells from the forms, and its tiles are
    unknown beforehand: the most likely of a few values are used.
    """
    misses = _misses(tuple(cells))
    if not observed:
        return _Surface(cells, misses, 1.0).outlook()
    forms = [(roughness, 1) for roughness in ROUGHNESS]
    forms += [(roughness, tile) for roughness in ROUGHNESS_OF_TILES for tile in TILES]
    surfaces = [_Surface(cells, misses, *form) for form in forms]
    return max(surfaces, key=lambda surface: surface.fit(observed)).outlook()


class _Surface:
    """The model of some cells at one roughness and tile; `misses` correlates the cells' misfits."""

    def __init__(
        self, cells: Sequence[Cell], misses: Array, roughness: float, tile: int = 1
    ) -> None:
        self._cells, self._tile = tuple(cells), tile
        self._misses = (roughness * MISS_SD) ** 2 * misses
        self._place: dict[Hashable, int] = {}
        self._mean, self._prior = self._at, self._cov = self._parameters()

    def outlook(self) -> CostSurface:
        """Return the predicted cost of every cell."""
        cost = [CellObservation("cost", c, 0.0, 1.0) for c in self._cells]
        values, slopes = self._linear(cost, self._at)
        return CostSurface(self._cells, values, slopes @ self._cov @ slopes.T)

    def fit(self, observed: Sequence[CellObservation]) -> float:
        """Find the most likely parameters and their covariance; return the log evidence.

        The parameters are `prior + P w`: the prior's covariance P is nearly singular.
        """
        # The level of costs is unknown beforehand: the prior's is that of the observations.
        costs = [o.value for o in observed if o.what in ("cost", "step")]
        prior = self._levelled(math.fsum(costs) / len(costs) if costs else 0.0)
        values = np.array([o.value for o in observed])
        noise = np.array([o.sd**2 for o in observed])

        @cache
        def linear(w: bytes) -> tuple[Array, Array]:
            return self._linear(observed, prior + self._prior @ np.frombuffer(w))

        def loss(w: Array) -> float:
            misses = values - linear(w.tobytes())[0]
            return float(misses**2 @ (1.0 / noise) + w @ (self._prior @ w))

        w = np.zeros(len(prior))
        best = loss(w)
        for _ in range(STEPS):
            away = self._prior @ w
            predicted, slopes = linear(w.tobytes())
            inner = slopes @ self._prior @ slopes.T + np.diag(noise)
            aim = slopes.T @ np.linalg.solve(inner, values - predicted + slopes @ away)
            before = best
            w, best = _downhill(loss, w, aim - w, best)
            if before - best < CONVERGED * (1.0 + best):
                break
        slopes = linear(w.tobytes())[1]
        between = slopes @ self._prior
        inner = between @ slopes.T + np.diag(noise)
        cov = self._prior - between.T @ np.linalg.solve(inner, between)
        self._at, self._cov = prior + self._prior @ w, (cov + cov.T) / 2.0
        return -0.5 * (best + float(np.linalg.slogdet(inner)[1]))

    def _levelled(self, level: float) -> Array:
        """Return the prior mean of the weights with another level."""
        mean = self._mean.copy()
        mean[self._place[("level",)]] = level
        return mean

    def _linear(self, observations: Sequence[CellObservation], at: Array) -> tuple[Array, Array]:
        """Return the values of some functions at these parameters, and their slopes."""
        values, slopes = np.zeros(len(observations)), np.zeros((len(observations), len(at)))

        def read(*name: Hashable) -> float:
            return float(at[self._place[name]])

        for row, one in enumerate(observations):
            values[row], terms = _function(one.what, one.cell, read, self._tile)
            for name, slope in terms.items():
                slopes[row, self._place[name]] += slope
        return values, slopes

    def _parameters(self) -> tuple[Array, Array]:
        """Return the prior's mean and covariance, and store the index of each parameter."""
        blocks: list[Block] = [([("level",)], 0.0, LEVEL_SD**2 * np.eye(1))]
        blocks += _timing(self._cells, self._tile)
        blocks += _proposing([c for c in self._cells if c.choice.length])
        misses: list[Hashable] = [("miss", c) for c in self._cells]
        blocks.append((misses, 0.0, self._misses))
        size = sum(len(names) for names, _, _ in blocks)
        mean, cov = np.zeros(size), 1e-9 * np.eye(size)
        start = 0
        for names, means, block in blocks:
            span = slice(start, start + len(names))
            self._place.update((name, start + i) for i, name in enumerate(names))
            mean[span] = means
            cov[span, span] += block
            start = span.stop
        return mean, cov


def _timing(cells: Sequence[Cell], tile: int) -> list[Block]:
    """Return the prior of the times of passes: by their tokens, by requests, by verifying."""
    filled = sorted({n for c in cells for n in (_plain(c, tile), _verified(c, tile))})
    batches = sorted({c.batch for c in cells})
    sizes, doublings = [math.log2(n) for n in filled], [math.log2(b) for b in batches]
    near = _matrix(doublings, lambda u, v: _near(u - v, REQUESTS_REACH))
    rising = np.outer(doublings, doublings)
    return [
        (
            [("pass", n) for n in filled],
            RISE * np.array(sizes),
            RISE_SD**2 * np.outer(sizes, sizes)
            + BENDS_SD**2 * _matrix(sizes, lambda u, v: _bent(u - v, BENDS_REACH)),
        ),
        (
            [("requests", b) for b in batches],
            0.0,
            REQUESTS_RISE_SD**2 * rising + REQUESTS_SD**2 * near,
        ),
        ([("jump", b) for b in batches], JUMP, JUMP_SD**2 + JUMPS_SD**2 * near),
        ([("pace", b) for b in batches], 0.0, PACE_RISE_SD**2 * rising + PACE_SD**2 * near),
    ]


def _proposing(drafted: Sequence[Cell]) -> list[Block]:
    """Return the prior of the drafts: their times, and the acceptance of their tokens."""
    drafts = list(dict.fromkeys(c.choice.draft for c in drafted))
    choices = list(dict.fromkeys(c.choice for c in drafted))
    like = _likeness(drafts)
    return [
        ([("draft", d) for d in drafts], DRAFTING, DRAFTING_SD**2 * like),
        ([("accepts", d) for d in drafts], ACCEPTS, ACCEPTS_SD**2 * like),
        (
            [("scatter", c) for c in choices],
            0.0,
            SCATTER_SD**2 * _matrix(choices, _scattered(drafts, like)),
        ),
    ]


def _verified(cell: Cell, tile: int) -> int:
    """Return the number of tiles that the tokens of a verifying pass fill."""
    return -(-cell.batch * (cell.choice.length + 1) // tile)


def _plain(cell: Cell, tile: int) -> int:
    """Return the number of tiles that the tokens of a plain pass fill."""
    return -(-cell.batch // tile)


def _function(what: What, cell: Cell, read: Callable[..., float], tile: int) -> tuple[float, Terms]:
    """Return one function's value, and its slopes along the parameters."""
    if what == "tokens":
        return _tokens(cell.choice, read)
    if what == "drafting":
        return _drafting(cell, read, tile)
    value, terms = _step(cell, read, tile)
    if what == "step" or not cell.choice.length:
        return value, terms
    tokens, less = _tokens(cell.choice, read)
    return value - tokens, {**terms, **{name: -slope for name, slope in less.items()}}


def _step(cell: Cell, read: Callable[..., float], tile: int) -> tuple[float, Terms]:
    """Return the logarithm of the cost of a step: t_verify(b, s) + s · t_draft(b)."""
    batch, length = cell.batch, cell.choice.length
    rest = read("level") + read("requests", batch) + read("miss", cell)
    terms: Terms = {("level",): 1.0, ("requests", batch): 1.0, ("miss", cell): 1.0}
    if not length:
        plain = ("pass", _plain(cell, tile))
        return rest + read(*plain), {**terms, plain: 1.0}
    longer, parts = _drafting(cell, read, tile)
    share = 1.0 / (1.0 + math.exp(-longer))
    terms |= {name: share * slope for name, slope in parts.items()}
    size = ("pass", _verified(cell, tile))
    terms[size] = terms.get(size, 0.0) + 1.0
    terms[("jump", batch)] = terms.get(("jump", batch), 0.0) + 1.0
    verify = read(*size) + read("jump", batch)
    return rest + verify + math.log1p(math.exp(longer)), terms


def _drafting(cell: Cell, read: Callable[..., float], tile: int) -> tuple[float, Terms]:
    """Return the logarithm of drafting over verifying."""
    batch, draft = cell.batch, cell.choice.draft
    plain, size = ("pass", _plain(cell, tile)), ("pass", _verified(cell, tile))
    value = math.log(cell.choice.length) + read("draft", draft) + read("pace", batch)
    value += read(*plain) - read(*size) - read("jump", batch)
    terms: Terms = {("draft", draft): 1.0, ("pace", batch): 1.0, ("jump", batch): -1.0}
    if plain != size:
        terms |= {plain: 1.0, size: -1.0}
    return min(value, 20.0), terms


def _tokens(choice: Choice, read: Callable[..., float]) -> tuple[float, Terms]:
    """Return the logarithm of the tokens that a sequence gets in a step."""
    rate = 1.0 / (1.0 + math.exp(-min(30.0, max(-30.0, read("accepts", choice.draft)))))
    powers = [rate**i for i in range(1, choice.length + 1)]
    tokens = 1.0 + math.fsum(powers)
    slope = (1.0 - rate) * math.fsum(i * power for i, power in enumerate(powers, start=1)) / tokens
    value = math.log(tokens) + read("scatter", choice)
    return value, {("accepts", choice.draft): slope, ("scatter", choice): 1.0}


def _downhill(
    loss: Callable[[Array], float], at: Array, step: Array, best: float
) -> tuple[Array, float]:
    """Return the next point along a step, shortened until it is better; else the same."""
    for shorter in (1.0, 0.5, 0.25, 0.1, 0.02):
        further = at + shorter * step
        further_loss = loss(further)
        if further_loss < best:
            return further, further_loss
    return at, best


def _near(apart: float, reach: float) -> float:
    """Return the correlation at a distance: a Gaussian kernel of width `reach`."""
    return math.exp(-0.5 * (apart / reach) ** 2)


def _bent(apart: float, reach: float) -> float:
    """Return a correlation that allows for kinks (Matérn 3/2)."""
    far = math.sqrt(3.0) * abs(apart) / reach
    return (1.0 + far) * math.exp(-far)


def _matrix(items: Sequence[ItemT], likeness: Callable[[ItemT, ItemT], float]) -> Array:
    """Return the correlations of all pairs of items as a square matrix."""
    return np.array([[likeness(a, b) for b in items] for a in items], dtype=np.float64).reshape(
        len(items), len(items)
    )


def _likeness(drafts: Sequence[Draft]) -> Array:
    """Return the correlation of drafts: a common part, a part for each knob, and one for all knobs.

    Two numbers are more alike if fewer other values lie between them; two names are alike only if equal.
    """
    knobs = list(zip(*drafts, strict=True))
    if not knobs:
        return np.ones((len(drafts), len(drafts)))
    ones = [_matrix(column, _alike(column)) for column in knobs]
    whole = np.prod(ones, axis=0)
    return np.asarray(0.25 + 0.6 * np.mean(ones, axis=0) + 0.15 * whole, dtype=np.float64)


def _alike(column: Iterable[object]) -> Callable[[object, object], float]:
    """Return the correlation of two values of a knob: by rank for numbers, else 1 if they are equal."""
    values = set(column)
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return lambda a, b: float(a == b)
    rank = {value: i for i, value in enumerate(sorted(values, key=lambda v: float(str(v))))}
    return lambda a, b: _near(rank[a] - rank[b], DRAFT_REACH)


def _scattered(drafts: Sequence[Draft], like: Array) -> Callable[[Choice, Choice], float]:
    """Return the correlation of the scatter of two choices, by their drafts and lengths."""
    place = {draft: i for i, draft in enumerate(drafts)}
    return lambda a, b: (
        float(like[place[a.draft], place[b.draft]]) * _near(a.length - b.length, SCATTER_REACH)
    )


@lru_cache(maxsize=4)
def _misses(cells: tuple[Cell, ...]) -> Array:
    """Return the correlations of the forms' misfit at two cells; a plain cell has none with others."""
    drafts = list(dict.fromkeys(c.choice.draft for c in cells))
    like, place = _likeness(drafts), {draft: i for i, draft in enumerate(drafts)}

    def alike(a: Cell, b: Cell) -> float:
        if not (a.choice.length and b.choice.length):
            return float(a == b)
        doublings = _near(math.log2(a.batch / b.batch), MISS_DOUBLINGS)
        lengths = _near(a.choice.length - b.choice.length, MISS_REACH)
        both = float(like[place[a.choice.draft], place[b.choice.draft]])
        return 0.7 * doublings * lengths * both + 0.3 * float(a == b)

    return _matrix(cells, alike)
