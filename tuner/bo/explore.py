"""Which setting to measure next: what is worth most net of what it may break, by a table of five rules."""

from __future__ import annotations

from collections.abc import Set
from functools import cached_property
from types import MappingProxyType

import torch
from torch import Tensor

from tuner.bo.caution import Caution, even_chance
from tuner.bo.search import Search
from tuner.core import Try

PRICE, AS_MUCH_AGAIN = 0.016, 0.13
"""What breaking a limit costs, as a share of the baseline, for each unit of the violation's dial, and how
far beyond it costs as much again."""

FIRST, EARLY = 6, 3.0
"""In so many trials, when models are too sure of themselves, going beyond a limit counts so many times, and
a setting likely enough to keep its limits is tried whatever it promises."""

LATE = 25.0
"""Before a search ends a violation counts as the square of its dial over this: what is left to try is else
never known, and who fears violations much lowers the bar less."""

SURE = 0.95
"""What keeps the limits so likely is looked at early by what it may save alone, and the best setting is
measured again until it is."""

LEAST_GAIN = 1e-4
"""What promises no more, as a share of the baseline, is looked at never: it surely costs more."""

MOSTLY_TOLD = 4.0
"""What runs on other devices should narrow a row's variance so many times for it to be worth no trial."""

AGAIN = 0.7
"""What a further window of a measured row is worth, as a share of what the row may save."""


def explore(search: Search, without: Set[str] = frozenset()) -> Try | None:
    """Return the setting that is most worth measuring, None where nothing is.

    The likeliest to keep the limits while nothing does; else what the first of `RULES` says that says
    anything, but for those it is to do `without`.
    """
    rules = Rules(search)
    if rules.nothing_keeps():
        row = argmax(search.chance, rules.unmeasured & search.allowed, search.study.seed)
        why = "no setting keeps every limit yet; this one is the most likely to"
        return None if row is None else search.attempt(row, f"{why} ({search.percent(row)})")
    said = (rule(rules) for name, rule in RULES.items() if name not in without)
    return next((attempt for attempt in said if attempt is not None), None)


def worth(search: Search) -> Tensor:
    """Return how much each row is worth trying: its expected gain, net of its risk.

    While nothing is likely to keep the limits: how likely it is to.
    """
    rules = Rules(search)
    return search.chance if rules.nothing_keeps() else rules.priced


class Rules:
    """One decision: the rows' promises and risks, worked out once."""

    def __init__(self, search: Search) -> None:
        self.search, self.view = search, search.view
        self.best = search.incumbent
        self.early = search.ended < FIRST

    def nothing_keeps(self) -> bool:
        """Return whether no measured setting, the baseline included, is likely to keep its limits."""
        return bool((self.search.chance[list(self.view.measured)] < even_chance(1.0)).all())

    @cached_property
    def unmeasured(self) -> Tensor:
        """Which rows no window speaks of."""
        unmeasured = torch.ones(len(self.search.chance), dtype=torch.bool)
        unmeasured[list(self.view.measured)] = False
        return unmeasured

    @cached_property
    def gain(self) -> Tensor:
        """What each row may save, its chance to keep the limits and its duration counted in.

        For a measured row: what it would save were it trusted. Either beside what runs, as that should
        turn out: what is like it promises little more.
        """
        cost, chance, ahead = self.view.ahead.cost, self.search.chance, self.view.ahead
        likely = [row for row in self.view.running if chance[row] >= even_chance(1.0)]
        best = float(cost[[self.best, *likely]].min())
        fresh = torch.where(self._told_soon, 0.0, ahead.gain(best) * self.search.works)
        again = AGAIN * (best - cost).clamp_min(0.0) * chance
        gain = torch.where(self.unmeasured, fresh, again) / self.search.effort
        return torch.where(self.search.allowed, gain, 0.0)

    @property
    def _told_soon(self) -> Tensor:
        """Which rows' cost the running trials will mostly tell: a window of their own can wait."""
        return MOSTLY_TOLD * self.view.ahead.cost_sd.square() < self.view.cost_sd.square()

    @cached_property
    def priced(self) -> Tensor:
        """What each row may save, less the price of breaking a limit."""
        far = (EARLY if self.early else 1.0) * self.view.overshoot / AS_MUCH_AGAIN
        # What runs may break a limit, too.
        price = PRICE * self.search.caution.violation * (1 + len(self.view.running))
        return self.gain - price * (1.0 - self.search.chance + far)

    def likely(self, violation: float) -> Tensor:
        """Return which rows promise something and are likely enough where a violation costs so much."""
        bar = even_chance(violation)
        return (self.gain > LEAST_GAIN) & (self.search.chance >= bar)

    def worthwhile(self) -> Try | None:
        """Return what is expected to be worth most, net of what it risks."""
        likely = self.likely(self.search.caution.violation)
        return self._first(likely, self.search.caution.trial)

    def look_around(self) -> Try | None:
        """Return what may save most of what is safe, else the same, while little was tried or found."""
        stuck = self.best == self.search.baseline and self.search.evidence.broken is None
        if not self.early and not (stuck and self.search.past.spent < 2 * FIRST):
            return None
        also, violation = "; few trials so far", self.search.caution.violation
        safe = self.likely(violation) & (self.search.chance >= SURE)
        row = argmax(self.gain, safe, self.search.study.seed)
        if row is not None:
            return self._attempt(row, also)
        return self._first(self.likely(violation / 2.0), -torch.inf, also)

    def risk(self) -> Try | None:
        """Return a row that is worth what it risks although it is less likely to keep the limits."""
        also = "; a risk worth taking"
        likely = self.likely(late_violation(self.search.caution))
        return self._first(likely, self.search.caution.trial, also)

    def unmoved(self) -> Try | None:
        """Return the likeliest to keep the limits of what moves a knob that no window has shown moved.

        What a model says of it is a guess. One that moves a single new knob, if there is any: of
        several nothing tells which one it was.
        """
        likely = self.search.chance >= even_chance(late_violation(self.search.caution))
        for rows in (self._fresh & (self._news == 1), self._fresh):
            row = argmax(self.search.chance, rows & likely, self.search.study.seed)
            if row is not None:
                why = "changes a knob that no window has changed yet"
                return self.search.attempt(row, f"{why}; {self.search.outlook(row)}")
        return None

    def best_again(self) -> Try | None:
        """Return the best setting once more while its windows do not make it firm."""
        search, row = self.search, self.best
        firm = float(search.chance[row]) >= SURE
        if firm or row == search.baseline or not search.allowed[row]:
            return None
        return search.attempt(row, f"{search.outlook(row)}; measured again, to prove its limits")

    @cached_property
    def _news(self) -> Tensor:
        """How many knobs each row moves for the first time."""
        points, row = self.search.grid.points, self.search.baseline
        return ((points != points[row]) & ~self._moved).sum(dim=1)

    @cached_property
    def _moved(self) -> Tensor:
        """Which knobs some measured row has moved."""
        seen = self.search.grid.points[self.search.looked_at]
        return (seen != seen[0]).any(dim=0)

    @cached_property
    def _fresh(self) -> Tensor:
        """Which rows move a knob for the first time and are else like some measured row.

        Where there is no such row, as some combinations are forbidden, whatever moves one.
        """
        points = self.search.grid.points
        seen = points[self.search.looked_at]
        like = ((points[:, None] == seen) | ~self._moved).all(dim=2).any(dim=1)
        free = self.search.allowed & self.unmeasured & (self._news > 0)
        return like & free if (like & free).any() else free

    def _first(self, rows: Tensor, least: float, also: str = "") -> Try | None:
        row = argmax(self.priced, rows, self.search.study.seed)
        if row is None or not float(self.priced[row]) > least:
            return None
        return self._attempt(row, also)

    def _attempt(self, row: int, also: str) -> Try:
        again = "" if self.unmeasured[row] else "; measured again, to narrow its error"
        return self.search.attempt(row, f"{self.search.outlook(row)}{again}{also}")


RULES = MappingProxyType(
    {
        "worthwhile": Rules.worthwhile,
        "look-around": Rules.look_around,
        "risk": Rules.risk,
        "unmoved": Rules.unmoved,
        "best-again": Rules.best_again,
    }
)
"""In this order. Each pays more than its standard error on sources that nothing was chosen on."""


def late_violation(caution: Caution) -> float:
    """Return what a violation costs before a search ends."""
    return caution.violation**2 / LATE


def argmax(score: Tensor, allowed: Tensor, seed: int) -> int | None:
    """Return the allowed row of the highest score, None where none is; ties fall by the seed."""
    rows = torch.nonzero(allowed).flatten()
    if not len(rows):
        return None
    highest = rows[score[rows] == score[rows].max()]
    chance = torch.Generator().manual_seed(seed)
    return int(highest[torch.randint(len(highest), (1,), generator=chance)])
