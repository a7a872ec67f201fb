"""Choose the setting to measure next: the largest gain net of risk, by a table of four rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from functools import cached_property

import torch
from torch import Tensor

from tuner.bo.beliefs import WILDEST
from tuner.bo.caution import even_chance, last_chance
from tuner.bo.search import Search
from tuner.core import Kind, Safety, Try, Verdict, quantity_of

PRICE = 0.08
"""The price of breaking a limit per unit of `Caution.violation`, as a share of the study's possible
saving: about one of the dozen windows that a study takes."""

FIRST = 6
"""During the first `FIRST` trials, while models are over-confident, a setting that is likely enough to
keep its limits is tried at any gain."""

LEAST_GAIN = 1e-4
"""A setting that promises no more than this share of the baseline is never tried: a trial costs
more."""

MOSTLY_NARROWED = 4.0
"""A row is not worth a trial if trials that run on other devices should divide its variance by
this factor."""

SURE = 0.95
"""A setting that keeps its limits with this probability is tried early for its gain alone. After
the first trials some setting must beat the baseline with this probability."""

FLAT = "flat"
"""The name in `without` that disables the end of a search that finds no gain."""

LEAST_WORTH = 1e-5
"""A window is not measured if it is worth no more than this share of the baseline to the
deployed setting. Delaying a day's hold that saves a tenth by one window of ten seconds loses
as much, and by a longer one more (`Search.longer`)."""

AGAIN = 0.7
"""The worth of a further window of a measured row, as a share of the row's possible saving."""


def explore(search: Search, without: Set[str] = frozenset()) -> Try | None:
    """Return the setting that is most worth measuring; None if no trial is worth it.

    While no measured setting is likely to keep the limits, this is the row most likely to keep them.
    Else it is the choice of the first of `RULES` that has one, or None if windows of the most promising
    settings showed no gain. Rules named in `without` are skipped.
    """
    rules = Rules(search)
    if rules.nothing_keeps():
        row = rules.argmax(search.chance, rules.unmeasured & search.allowed)
        why = "no setting meets every limit yet; this one is the most likely"
        return None if row is None else search.attempt(row, f"{why} ({search.percent(row)})")
    if FLAT not in without and rules.flat():
        return None
    answers = (rule(rules) for name, rule in RULES.items() if name not in without)
    return next((attempt for attempt in answers if attempt is not None), None)


def worth(search: Search) -> Tensor:
    """Return each row's expected gain net of its risk.

    While no measured setting is likely to keep the limits: each row's chance to keep them.
    """
    rules = Rules(search)
    return search.chance if rules.nothing_keeps() else rules.priced


class Rules:
    """One decision: the gain and the risk of each row, computed once."""

    def __init__(self, search: Search) -> None:
        self.search, self.view, self.best = search, search.view, search.incumbent
        # The price of a violation during the first trials: half of the usual odds to keep the limits
        # are enough.
        self.bold = search.caution.violation / 2.0

    def nothing_keeps(self) -> bool:
        """Return whether no measured setting, the baseline included, is likely to keep its limits."""
        return bool((self.search.chance[list(self.view.measured)] < even_chance(1.0)).all())

    def flat(self) -> bool:
        """Return whether no setting surely beats the baseline after `FIRST` windows of the best ones.

        Then the model's further promises come from its uncertainty. Not while a knob was never
        changed, as the gain may be there. Not for a strict search: it measured the safest settings
        instead, and may have found no gain for that reason. Not while a window of the baseline is worth
        a trial. Not if no law covers the objective: a few windows say nothing about the other settings.
        """
        search, model = self.search, self.view.models[0]
        objective = search.study.objective.metric
        if quantity_of(objective, search.study.quantities).kind is Kind.OTHER:
            return False
        windows = search.windows.total() - search.windows[search.baseline]
        strict = search.study.terms.safety is Safety.STRICT
        broken = search.evidence.broken is not None
        if strict or windows < FIRST or broken or self.unmoved() is not None:
            return False
        if float(self.window_gain[search.baseline]) > search.caution.trial:
            return False
        better = torch.special.ndtr(-model.mean[:, self.best, 0] / model.sd[:, self.best, 0])
        return self.best == search.baseline or float(model.weights @ better) < SURE

    @cached_property
    def unmeasured(self) -> Tensor:
        """The rows without a window."""
        unmeasured = torch.ones(len(self.search.chance), dtype=torch.bool)
        unmeasured[list(self.view.measured)] = False
        return unmeasured

    @cached_property
    def gain(self) -> Tensor:
        """The possible saving of each row, weighted by its chance to keep the limits, over its effort.

        For a measured row: its saving if its prediction is right. Both are computed as if running
        trials had shown their expected values: rows similar to these promise little more.
        """
        cost, chance, ahead = self.view.ahead.cost, self.search.chance, self.view.ahead
        likely = [row for row in self.view.running if chance[row] >= even_chance(1.0)]
        best = float(cost[[self.best, *likely]].min())
        # The running trials should mostly determine the cost of these: their own window can wait.
        soon = MOSTLY_NARROWED * ahead.cost_sd.square() < self.view.cost_sd.square()
        fresh = torch.where(soon, 0.0, ahead.gain(best) * self.search.works)
        again = AGAIN * (best - cost).clamp_min(0.0) * chance
        gain = torch.where(self.unmeasured, fresh, again) / self.search.effort
        return torch.where(self.search.allowed & ~self._dear, gain, 0.0)

    @cached_property
    def _dear(self) -> Tensor:
        """The rows that may not be the first trial: those with an expected cost above the baseline's.

        Only an uninformed hypothesis promises a gain there. If every row that may keep the limits costs
        more than the baseline, only the cheapest of them may be first.
        """
        if len(self.search.looked_at) > 1:
            return torch.zeros_like(self.unmeasured)
        likely = self.search.chance >= last_chance(self.search.caution)
        likely &= self.unmeasured & self.search.allowed
        least = self.view.cost[likely].min().clamp_min(0.0) if likely.any() else torch.inf
        return self.unmeasured & (self.view.cost > least + LEAST_GAIN)

    @cached_property
    def priced(self) -> Tensor:
        """The possible saving of each row, less the price of breaking a limit.

        The price grows with the most that the study can save: the largest saving of rows that keep
        the limits with even odds. It is cut at `WILDEST`, as a wide guess promises nothing. If the
        baseline itself breaks a limit, it is `WILDEST`, as more can be won than the objective shows.
        """
        winnable = WILDEST
        if self.search.evidence.broken is None:
            saved = -self.view.cost[self.search.chance >= even_chance(1.0)].min()
            winnable = min(WILDEST, max(0.0, float(saved)))
        price = PRICE * self.search.caution.violation * winnable
        price *= 1 + len(self.view.running)  # these may break a limit, too
        return self.gain - price * (1.0 - self.search.chance)

    def likely(self, violation: float) -> Tensor:
        """Return the rows with a gain that keep the limits likely enough at this price of a violation."""
        return (self.gain > LEAST_GAIN) & (self.search.chance >= even_chance(violation))

    def worthwhile(self) -> Try | None:
        """Return the row with the largest expected gain net of risk.

        In a space of one ordered knob a quarter of the usual odds is enough: a window informs about all
        settings beyond it, and small steps across a flat part would take most of the search.
        """
        line = self.search.grid.named == (False,)
        violation = self.bold / 2.0 if line else self.search.caution.violation
        return self._first(self.likely(violation), self.search.caution.trial)

    def look_around(self) -> Try | None:
        """Return, in the first trials, the safe row with the largest gain, else the best net of risk."""
        if self.search.ended >= FIRST:
            return None
        also = "; few trials so far"
        safe = self.likely(self.search.caution.violation) & (self.search.chance >= SURE)
        row = self.argmax(self.gain, safe)
        if row is not None:
            return self._attempt(row, also)
        return self._first(self.likely(self.bold), -torch.inf, also)

    def unmoved(self) -> Try | None:
        """Return the row most likely to keep the limits among those that move a knob for the first time.

        The model can only guess the effect of such a knob. Rows that move a single new knob come
        first: with several, the window does not show which one had the effect.
        """
        likely = self.search.chance >= last_chance(self.search.caution)
        for rows in self._fresh:
            row = self.argmax(self.search.chance, rows & likely & ~self._dear)
            if row is not None:
                why = "changes a knob that was not changed yet"
                return self.search.attempt(row, f"{why}; {self.search.outlook(row)}")
        return None

    @cached_property
    def _fresh(self) -> tuple[Tensor, Tensor]:
        """The rows that move a single knob for the first time, and those that move one or several.

        In all other knobs they equal some measured row. If forbidden combinations leave no such row,
        all rows that move a new knob are taken.
        """
        points = self.search.grid.points
        seen = points[self.search.looked_at]
        moved = (seen != seen[0]).any(dim=0)
        news = ((points != points[self.search.baseline]) & ~moved).sum(dim=1)
        like = ((points[:, None] == seen) | ~moved).all(dim=2).any(dim=1)
        free = self.search.allowed & self.unmeasured & (news > 0)
        fresh = like & free if (like & free).any() else free
        return fresh & (news == 1), fresh

    @cached_property
    def window_gain(self) -> Tensor:
        """The worth of a further window of each row for the deployed setting, as a share of the baseline.

        The window may show that the row beats the best and keeps its limits. For the best row
        itself it may show that the second is better, or that the best cannot be trusted and the
        second is deployed; that of the baseline, that another setting keeps its limits.
        """
        search, view, best = self.search, self.view, self.best
        model, kept = view.models[0], self._trusted(home=False)
        below = model.expected_below(float(view.cost[best]), WILDEST)
        expected_gain = model.weights @ (kept * below)
        second = next((row for row in search.deployable if row != best), search.baseline)
        worse = model.expected_below(float(view.cost[second]), WILDEST)[:, best]
        worse = worse - float(view.cost[second]) + model.mean[:, best, 0]
        lost = (view.cost[second] - view.cost[best]).clamp_min(0.0)
        shown = model.weights @ (worse + lost * (1.0 - kept[:, best]))
        expected_gain[best] = shown
        expected_gain[search.baseline] = self._baseline_gain()
        return torch.where(search.allowed, expected_gain, 0.0) / search.effort

    def _trusted(self, *, home: bool) -> Tensor:
        """Return the chance that a window of each row, or of `home`, leaves it sure to keep the limits.

        By component of the objective's model.
        """
        sure, (model, *others) = even_chance(self.search.caution.wrong), self.view.models
        kept = model.trusted(sure, home=home) * self.search.works
        for other in others:
            kept = kept * (other.weights @ other.trusted(sure, home=home))
        return kept

    def _baseline_gain(self) -> float:
        """Return the worth of a window of the baseline: it moves the limits that are relative to it.

        The best of the settings that it may prove counts.
        """
        rows = [
            row
            for row, c in self.view.measured.items()
            if c.deployable and c.verdict is not Verdict.INFEASIBLE
        ]
        if not rows or len(self.search.study.devices) > 1:  # one measures it, scaled by itself
            return 0.0
        model = self.view.models[0]
        less = float(self.view.cost[self.best]) - model.mean[:, rows, 0]
        kept = self._trusted(home=True)[:, rows]
        return float((model.weights @ (kept * less.clamp_min(0.0))).max())

    def informative(self) -> Try | None:
        """Return the row, new or measured, whose window is worth most for the deployed setting.

        The row must be as likely to keep the limits as early trials must be; the best row is
        exempt.
        """
        likely = self.search.chance >= even_chance(self.bold)
        likely[self.best] = True
        worth = self.window_gain > LEAST_WORTH * self.search.longer
        row = self.argmax(self.window_gain, likely & worth)
        return None if row is None else self._attempt(row, "; to confirm the best setting")

    def argmax(self, score: Tensor, allowed: Tensor) -> int | None:
        """Return the allowed row of the highest score, ties broken by the seed; None without a row."""
        rows = torch.nonzero(allowed).flatten()
        if not len(rows):
            return None
        highest = rows[score[rows] == score[rows].max()]
        chance = torch.Generator().manual_seed(self.search.study.seed)
        return int(highest[torch.randint(len(highest), (1,), generator=chance)])

    def _first(self, rows: Tensor, least: float, also: str = "") -> Try | None:
        """Return the best of some rows net of risk, if it is worth more than `least`."""
        row = self.argmax(self.priced, rows)
        if row is not None and float(self.priced[row]) > least:
            return self._attempt(row, also)
        return None

    def _attempt(self, row: int, also: str) -> Try:
        """Return the suggestion to measure a row, with its outlook."""
        again = "" if self.unmeasured[row] else "; measured again, to narrow its error"
        return self.search.attempt(row, f"{self.search.outlook(row)}{again}{also}")


RULES: Mapping[str, Callable[[Rules], Try | None]] = {
    "worthwhile": Rules.worthwhile,
    "look-around": Rules.look_around,
    "unmoved": Rules.unmoved,
    "informative": Rules.informative,
}
"""The rules in their order. Their gains on synthetic surfaces: docs/policies/polythrottle.md."""
