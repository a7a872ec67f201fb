"""Which setting to measure next: what is worth most net of what it may break, by a table of four rules."""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import cached_property
from types import MappingProxyType

import torch
from torch import Tensor

from tuner.bo.beliefs import WILDEST
from tuner.bo.caution import Caution, even_chance
from tuner.bo.search import Search
from tuner.core import Safety, Try

PRICE, AS_MUCH_AGAIN = 0.08, 0.13
"""What breaking a limit costs for each unit of the violation's dial, as a share of what the study can win:
about one of the dozen windows that a study takes; and how far beyond it costs as much again."""

FIRST, EARLY = 6, 3.0
"""In so many trials, when models are too sure of themselves, going beyond a limit counts so many times, and
a setting likely enough to keep its limits is tried whatever it promises."""

LATE = 25.0
"""Before a search ends a violation counts as the square of its dial over this: what is left to try is else
never known, and who fears violations much lowers the bar less."""

LEAST_GAIN = 1e-4
"""What promises no more, as a share of the baseline, is looked at never: it surely costs more."""

MOSTLY_NARROWED = 4.0
"""What runs on other devices should narrow a row's variance so many times for it to be worth no trial."""

SURE = 0.95
"""What keeps the limits so likely is looked at early by what it may save alone; after the first trials some
setting is to be so likely to beat the baseline."""

FLAT = "flat"
"""The name by which the end of a search that finds nothing is left out, as a rule is."""

LEAST_WORTH = 1e-5
"""A window that is worth no more to what is deployed, as a share of the baseline, is not measured: a saving
of a tenth loses as much where it is held for a day, one window of ten seconds later."""

AGAIN = 0.7
"""What a further window of a measured row is worth, as a share of what the row may save."""


def explore(search: Search, without: Set[str] = frozenset()) -> Try | None:
    """Return the setting that is most worth measuring, None where nothing is.

    The likeliest to keep the limits while nothing does; else what the first of `RULES` says that says
    anything, but for those it is to do `without`. Nothing where what was worth most is no gain.
    """
    rules = Rules(search)
    if rules.nothing_keeps():
        row = argmax(search.chance, rules.unmeasured & search.allowed, search.study.seed)
        why = "no setting meets every limit yet; this one is the most likely"
        return None if row is None else search.attempt(row, f"{why} ({search.percent(row)})")
    if FLAT not in without and rules.flat():
        return None
    answers = (rule(rules) for name, rule in RULES.items() if name not in without)
    return next((attempt for attempt in answers if attempt is not None), None)


def rule_answers(search: Search) -> Mapping[str, Try | None]:
    """Return what each rule says by itself, in the order they are asked."""
    rules = Rules(search)
    return {name: rule(rules) for name, rule in RULES.items()}


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

    def flat(self) -> bool:
        """Return whether so many windows of what promised most surely beat the baseline with nothing.

        Then a model's further promises are its doubt, not a gain. A strict search has looked at what is
        safest instead, and may have found nothing for that.
        """
        search, model = self.search, self.view.models[0]
        windows = search.windows.total() - search.windows[search.baseline]
        strict = search.study.terms.safety is Safety.STRICT
        if strict or windows < FIRST or search.evidence.broken is not None:
            return False
        better = torch.special.ndtr(-model.mean[:, self.best, 0] / model.sd[:, self.best, 0])
        return self.best == search.baseline or float(model.weights @ better) < SURE

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
        fresh = torch.where(self._measured_soon, 0.0, ahead.gain(best) * self.search.works)
        again = AGAIN * (best - cost).clamp_min(0.0) * chance
        gain = torch.where(self.unmeasured, fresh, again) / self.search.effort
        return torch.where(self.search.allowed & ~self._dear, gain, 0.0)

    @cached_property
    def _dear(self) -> Tensor:
        """Which rows wait: the first trial is of none that is believed to cost more than the baseline.

        Only a hypothesis that knows nothing promises anything of them. Where every row that may keep the
        limits is one, the first is no dearer than it must be.
        """
        if len(self.search.looked_at) > 1:
            return torch.zeros_like(self.unmeasured)
        likely = self.unmeasured & self.search.allowed & (self.search.chance >= self._last_bar)
        least = self.view.cost[likely].min().clamp_min(0.0) if likely.any() else torch.inf
        return self.unmeasured & (self.view.cost > least + LEAST_GAIN)

    @property
    def _measured_soon(self) -> Tensor:
        """Which rows' cost the running trials will mostly tell: a window of their own can wait."""
        return MOSTLY_NARROWED * self.view.ahead.cost_sd.square() < self.view.cost_sd.square()

    @cached_property
    def priced(self) -> Tensor:
        """What each row may save, less the price of breaking a limit."""
        far = (EARLY if self.early else 1.0) * self.view.overshoot / AS_MUCH_AGAIN
        # What runs may break a limit, too.
        price = PRICE * self.search.caution.violation * self._winnable
        price *= 1 + len(self.view.running)
        return self.gain - price * (1.0 - self.search.chance + far)

    @property
    def _winnable(self) -> float:
        """What the study can win: the most that a row saves that keeps the limits as likely as not.

        No more than a wide guess's deviation counts, as that is no promise. Where the baseline itself
        breaks a limit there is more to win than the objective says.
        """
        if self.search.evidence.broken is not None:
            return WILDEST
        saved = -self.view.cost[self.search.chance >= even_chance(1.0)].min()
        return min(WILDEST, max(0.0, float(saved)))

    def likely(self, violation: float) -> Tensor:
        """Return which rows promise something and are likely enough where a violation costs so much."""
        bar = even_chance(violation)
        return (self.gain > LEAST_GAIN) & (self.search.chance >= bar)

    @property
    def _bold(self) -> float:
        """What a violation costs where little is known yet: odds half as good will do."""
        return self.search.caution.violation / 2.0

    @property
    def _dial(self) -> float:
        """What a violation costs: along a single ordered knob odds half as good will do.

        There a window tells of all that lies beyond it, and timid steps past what changes nothing are
        most of a search.
        """
        line = self.search.grid.named == (False,)
        return self._bold if line else self.search.caution.violation

    @property
    def _last_bar(self) -> float:
        """How likely to keep the limits what is tried before a search ends must be."""
        return even_chance(late_violation(self.search.caution))

    def worthwhile(self) -> Try | None:
        """Return what is expected to be worth most, net of what it risks."""
        return self._first(self.likely(self._dial), self.search.caution.trial)

    def look_around(self) -> Try | None:
        """Return what may save most of what is safe, else the same, while little was tried."""
        if not self.early:
            return None
        also = "; few trials so far"
        safe = self.likely(self.search.caution.violation) & (self.search.chance >= SURE)
        row = argmax(self.gain, safe, self.search.study.seed)
        if row is not None:
            return self._attempt(row, also)
        return self._first(self.likely(self._bold), -torch.inf, also)

    def unmoved(self) -> Try | None:
        """Return the likeliest to keep the limits of what moves a knob that no window has shown moved.

        What a model says of it is a guess. One that moves a single new knob, if there is any: of
        several nothing tells which one it was.
        """
        likely = self.search.chance >= self._last_bar
        for rows in (self._fresh & (self._news == 1), self._fresh):
            row = argmax(self.search.chance, rows & likely & ~self._dear, self.search.study.seed)
            if row is not None:
                why = "changes a knob that was not changed yet"
                return self.search.attempt(row, f"{why}; {self.search.outlook(row)}")
        return None

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

    @cached_property
    def window_gain(self) -> Tensor:
        """What a further window of each row is worth to what is deployed, as a share of the baseline.

        It may show the row better than what is best, and its limits kept. Of the best itself it may show
        that the second is better, or that it is not to be trusted and the second is to be deployed.
        """
        search, view, best = self.search, self.view, self.best
        sure, model = even_chance(search.caution.wrong), view.models[0]
        kept = model.trusted(sure) * search.works
        for other in view.models[1:]:
            kept = kept * (other.weights @ other.trusted(sure))
        expected_gain = model.weights @ (
            kept * model.expected_below(float(view.cost[best]), WILDEST)
        )
        second = next((row for row in search.deployable if row != best), search.baseline)
        worse = model.expected_below(float(view.cost[second]), WILDEST)[:, best]
        worse = worse - float(view.cost[second]) + model.mean[:, best, 0]
        lost = (view.cost[second] - view.cost[best]).clamp_min(0.0)
        sole = best == search.baseline
        expected_gain[best] = (
            0.0 if sole else model.weights @ (worse + lost * (1.0 - kept[:, best]))
        )
        return torch.where(search.allowed, expected_gain, 0.0) / search.effort

    def informative(self) -> Try | None:
        """Return the row, new or known, of which a window is worth most to what is deployed.

        Only where it is as likely to keep the limits as what is looked at early, but for the best itself.
        """
        likely = self.search.chance >= even_chance(self._bold)
        likely[self.best] = True
        row = argmax(
            self.window_gain, likely & (self.window_gain > LEAST_WORTH), self.search.study.seed
        )
        return None if row is None else self._attempt(row, "; to confirm the best setting")

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
        "unmoved": Rules.unmoved,
        "informative": Rules.informative,
    }
)
"""In this order. What each is worth on made-up surfaces: docs/policies/polythrottle.md."""


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
