"""What a token costs at every batch, length and draft, with its doubt, from few windows.

A step costs t_verify(b, s) + s · t_draft(b) and brings l(s) + 1 tokens (Su et al., arXiv 2310.18813;
Yan et al., arXiv 2402.01528). Here that is one model of all cells at once, in logarithms:

- t_verify(b, s) = t(b) · (1 + c(b) · s^g): what each batch takes without drafting, and how much more
  a longer step takes there. One g for all batches: a machine bends alike everywhere;
- t_draft(b) = t(b) · d(draft) · e(b); l(s) = p + p² + … + p^s for each draft;
- what these forms miss: a little for each cell, alike in neighbouring ones.

The parameters have a wide normal prior and those of neighbouring batches and like drafts go
together. The posterior is that of the linearised model about its most likely parameters (iterated
Gauss–Newton), so that the costs of all cells are jointly normal. Energy per step is modelled the same way as
time. Form and prior are our own choice; they were chosen on made-up machines, never on the sweep that
`tuner.bench.speculation` replays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from policies.speculation.grid import Cell, Choice, Draft

ItemT = TypeVar("ItemT")
Array = NDArray[np.float64]
Terms = dict[Hashable, float]
"""A function's slope along some parameters, by their names."""

BASE_SD = 3.0
SLOPE, SLOPE_SD = -2.0, 1.2
"""Each drafted token makes a pass longer by e^-2, about an eighth, at the prior's middle."""
RISE, RISE_SD = 0.4, 0.35
"""By how much the logarithm of that share rises with every doubling of the batch."""
BEND_SD = 0.25
DRAFTING, DRAFTING_SD = -2.5, 1.2
"""One drafted token takes e^-2.5, a twelfth, of a plain step."""
ACCEPTS, ACCEPTS_SD = 0.8, 1.2
"""Log-odds of a drafted token to be accepted."""
SCATTER_SD, SCATTER_REACH = 0.04, 2.0
MISS_SD, MISS_REACH, MISS_DOUBLINGS = 0.03, 2.0, 1.5
REACH_DOUBLINGS = 1.5
DRAFT_REACH = 2.0
STEPS = 40
CONVERGED = 1e-6

What = Literal["cost", "step", "tokens", "drafting"]


@dataclass(frozen=True, slots=True)
class Observation:
    """The logarithm of something measured at a cell, and its standard error.

    `cost`: of a token. `step`: of a step. `tokens`: of the tokens of a sequence in a step. `drafting`:
    of all drafting over the verifying pass.
    """

    what: What
    cell: Cell
    value: float
    sd: float


@dataclass(frozen=True)
class Outlook:
    """The joint normal distribution of the logarithm of each cell's cost per token."""

    cells: tuple[Cell, ...]
    mean: Array
    cov: Array

    @cached_property
    def index(self) -> dict[Cell, int]:
        """The place of each cell."""
        return {cell: i for i, cell in enumerate(self.cells)}


class Surface:
    """The model of some cells, to be told observations of them."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._cells = tuple(cells)
        self._place: dict[Hashable, int] = {}
        self._mean, self._prior = self._parameters()

    def outlook(self, seen: Sequence[Observation]) -> Outlook:
        """Return what is expected of every cell once these were seen; without any, the prior."""
        at, cov = self._mean.copy(), self._prior
        if seen:
            # The level of costs is nobody's guess: the prior's is that of what was seen.
            level = math.fsum(o.value for o in seen if o.what in ("cost", "step"))
            count = sum(o.what in ("cost", "step") for o in seen)
            at, cov = self._fit(self._levelled(level / count if count else 0.0), seen)
        values, slopes = self._linear([Observation("cost", c, 0.0, 1.0) for c in self._cells], at)
        return Outlook(self._cells, values, slopes @ cov @ slopes.T)

    def _fit(self, prior: Array, seen: Sequence[Observation]) -> tuple[Array, Array]:
        """Return the most likely parameters and their covariance about them."""
        values = np.array([o.value for o in seen])
        noise = np.array([o.sd**2 for o in seen])
        precision = np.linalg.inv(self._prior)

        def loss(at: Array) -> float:
            misses, away = values - self._linear(seen, at)[0], at - prior
            return float(misses**2 @ (1.0 / noise) + away @ precision @ away)

        at, best = prior, loss(prior)
        for _ in range(STEPS):
            found, slopes = self._linear(seen, at)
            gain = self._gain(slopes, noise)
            step = prior + gain @ (values - found + slopes @ (at - prior)) - at
            at, before, best = *_downhill(loss, at, step, best), best
            if before - best < CONVERGED * (1.0 + best):
                break
        slopes = self._linear(seen, at)[1]
        cov = self._prior - self._gain(slopes, noise) @ slopes @ self._prior
        return at, (cov + cov.T) / 2.0

    def _gain(self, slopes: Array, noise: Array) -> Array:
        between = slopes @ self._prior
        inner = between @ slopes.T + np.diag(noise)
        return np.asarray(np.linalg.solve(inner, between).T, dtype=np.float64)

    def _levelled(self, level: float) -> Array:
        mean = self._mean.copy()
        for name, place in self._place.items():
            if isinstance(name, tuple) and name[0] == "base":
                mean[place] = level
        return mean

    def _linear(self, wanted: Sequence[Observation], at: Array) -> tuple[Array, Array]:
        """Return the values of some functions at these parameters, and their slopes."""
        values, slopes = np.zeros(len(wanted)), np.zeros((len(wanted), len(at)))

        def read(*name: Hashable) -> float:
            return float(at[self._place[name]])

        for row, one in enumerate(wanted):
            values[row], terms = _function(one.what, one.cell, read)
            for name, slope in terms.items():
                slopes[row, self._place[name]] += slope
        return values, slopes

    def _parameters(self) -> tuple[Array, Array]:
        """Return the prior's mean and covariance, and note the place of each parameter."""
        batches = sorted({c.batch for c in self._cells})
        drafted = [c for c in self._cells if c.choice.length]
        drafts = list(dict.fromkeys(c.choice.draft for c in drafted))
        choices = list(dict.fromkeys(c.choice for c in drafted))
        doublings = [math.log2(b) for b in batches]
        middle = (doublings[0] + doublings[-1]) / 2.0
        rises = [RISE * (u - middle) for u in doublings]
        like = _likeness(drafts)
        near = _matrix(doublings, lambda u, v: _near(u - v, REACH_DOUBLINGS))
        tilt = np.outer(*(2 * (np.array([u - middle for u in doublings]),)))
        once = np.ones((len(batches), len(batches)))
        blocks: list[tuple[list[Hashable], Sequence[float], Array]] = [
            ([("base", b) for b in batches], [0.0] * len(batches), BASE_SD**2 * np.eye(len(batches))),
            (
                [("slope", b) for b in batches],
                [SLOPE + rise for rise in rises],
                SLOPE_SD**2 * once + RISE_SD**2 * tilt + 0.5**2 * near,
            ),
            ([("bend",)], [0.0], BEND_SD**2 * np.eye(1)),
            (
                [("pace", b) for b in batches],
                [0.0] * len(batches),
                0.2**2 * tilt + 0.3**2 * near,
            ),
            ([("draft", d) for d in drafts], [DRAFTING] * len(drafts), DRAFTING_SD**2 * like),
            ([("accepts", d) for d in drafts], [ACCEPTS] * len(drafts), ACCEPTS_SD**2 * like),
            (
                [("scatter", c) for c in choices],
                [0.0] * len(choices),
                SCATTER_SD**2 * _matrix(choices, _scattered(drafts, like)),
            ),
            (
                [("miss", c) for c in self._cells],
                [0.0] * len(self._cells),
                MISS_SD**2 * _matrix(self._cells, _missed),
            ),
        ]  # fmt: skip
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


def _function(what: What, cell: Cell, read: Callable[..., float]) -> tuple[float, Terms]:
    """Return one function's value, and its slopes along the parameters."""
    if what == "tokens":
        return _tokens(cell.choice, read)
    if what == "drafting":
        return _drafting(cell, read)
    value, terms = _step(cell, read)
    if what == "step" or not cell.choice.length:
        return value, terms
    tokens, less = _tokens(cell.choice, read)
    return value - tokens, {**terms, **{name: -slope for name, slope in less.items()}}


def _step(cell: Cell, read: Callable[..., float]) -> tuple[float, Terms]:
    """Return the logarithm of what a step costs."""
    batch, length, draft = cell.batch, cell.choice.length, cell.choice.draft
    value = read("base", batch) + read("miss", cell)
    terms: Terms = {("base", batch): 1.0, ("miss", cell): 1.0}
    if not length:
        return value, terms
    longer = _longer(cell, read)
    drafting = length * math.exp(read("draft", draft) + read("pace", batch))
    whole = 1.0 + longer + drafting
    terms[("slope", batch)] = longer / whole
    terms[("bend",)] = longer * math.log(length) / whole
    terms[("draft", draft)] = terms[("pace", batch)] = drafting / whole
    return value + math.log(whole), terms


def _longer(cell: Cell, read: Callable[..., float]) -> float:
    """Return by what share of a plain step verifying takes longer: c(b) · s^g."""
    bend = 1.0 + read("bend")
    return math.exp(min(20.0, read("slope", cell.batch) + bend * math.log(cell.choice.length)))


def _drafting(cell: Cell, read: Callable[..., float]) -> tuple[float, Terms]:
    """Return the logarithm of drafting over verifying."""
    batch, draft, longer = cell.batch, cell.choice.draft, _longer(cell, read)
    share = longer / (1.0 + longer)
    value = read("draft", draft) + read("pace", batch) + math.log(cell.choice.length)
    terms: Terms = {
        ("draft", draft): 1.0,
        ("pace", batch): 1.0,
        ("slope", batch): -share,
        ("bend",): -share * math.log(cell.choice.length),
    }
    return value - math.log1p(longer), terms


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
    """Return the next parameters along a step, shortened until they are better; else the same."""
    for shorter in (1.0, 0.5, 0.25, 0.1, 0.02):
        further = at + shorter * step
        found = loss(further)
        if found < best:
            return further, found
    return at, best


def _near(apart: float, reach: float) -> float:
    return math.exp(-0.5 * (apart / reach) ** 2)


def _matrix(items: Sequence[ItemT], likeness: Callable[[ItemT, ItemT], float]) -> Array:
    return np.array([[likeness(a, b) for b in items] for a in items], dtype=np.float64).reshape(
        len(items), len(items)
    )


def _likeness(drafts: Sequence[Draft]) -> Array:
    """Return how alike drafts are: in what all have in common, in each of their knobs, and in all.

    Numbers are the more alike the fewer other values lie between, names are alike or not.
    """
    knobs = list(zip(*drafts, strict=True))
    if not knobs:
        return np.ones((len(drafts), len(drafts)))
    ones = [_matrix(column, _alike(column)) for column in knobs]
    whole = np.prod(ones, axis=0)
    return np.asarray(0.25 + 0.6 * np.mean(ones, axis=0) + 0.15 * whole, dtype=np.float64)


def _alike(column: Iterable[object]) -> Callable[[object, object], float]:
    values = set(column)
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return lambda a, b: float(a == b)
    rank = {value: i for i, value in enumerate(sorted(values, key=lambda v: float(str(v))))}
    return lambda a, b: _near(rank[a] - rank[b], DRAFT_REACH)


def _scattered(drafts: Sequence[Draft], like: Array) -> Callable[[Choice, Choice], float]:
    place = {draft: i for i, draft in enumerate(drafts)}
    return lambda a, b: (
        float(like[place[a.draft], place[b.draft]]) * _near(a.length - b.length, SCATTER_REACH)
    )


def _missed(a: Cell, b: Cell) -> float:
    """Return how alike the forms miss at two cells: plain steps have nothing in common with drafted."""
    if not (a.choice.length and b.choice.length):
        return float(a == b)
    doublings = math.log2(a.batch) - math.log2(b.batch)
    lengths = _near(a.choice.length - b.choice.length, MISS_REACH)
    drafts = 1.0 if a.choice.draft == b.choice.draft else 0.7
    return 0.7 * _near(doublings, MISS_DOUBLINGS) * lengths * drafts + 0.3 * float(a == b)
