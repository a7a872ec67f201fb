"""Which setting to measure next: what is worth most, what it may break, and what it would teach."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from tuner.bo.acquisition import argmax, information_gain
from tuner.bo.search import Search
from tuner.bo.surrogate import MOST_EXPONENT
from tuner.core import Z95, Try, render_setting

WORTH = 0.002
"""An expected gain, net of its risk, below this share of the baseline is not worth a trial. Our
choice, as is every number here; the benchmark on measured surfaces decided."""

PROBE_GAIN = 0.004
"""A row that may save so much is worth a safe window elsewhere that tells whether it keeps the limits."""

SMALL_GAIN = 0.0005
"""What surely keeps the limits is tried for as little as this."""

SURE, SAFE, EVEN, OPEN = 0.9, 0.9, 0.5, 0.3
"""Chances to keep every limit: for small gains, for probes, for a first look around, to be of interest."""

AGAIN = 0.7
"""What a further window of a measured row is worth, as a share of what the row may save."""

STEP_WORTH, STEP_RISK, STEP_INFORMATION = 0.6, 0.2, 0.6
"""A step on the way to a row is worth at least this share of what the row is, at this share at most of
its expected overshoot, and tells at least this share of what the row's own window would tell."""

FIRM_CHANCE = 0.95
FIRM_WINDOWS = 4
"""Before a search ends, its best setting is measured until it is so likely to keep its limits."""

FIRST_LOOKS = 6
"""So many trials are spent whatever they promise, while something is likely enough to keep its limits:
early models are too sure."""

FIRST_LEAST_GAIN, LEAST_GAIN = 1e-12, 1e-4
"""What an early look around must promise, so that it is none at what surely costs more, and a later one."""

MOST_SD = 0.45
"""A limited metric less certain than this (log units) is no place to go, unless surely kept."""

AMPLE, AMPLE_FACTOR = 0.15, 4.0
"""Within a limit that leaves more room than this (log units) much can be saved far from it: so many
times dearer it is to go far beyond."""

LEAST_LEFT = 0.4
"""While what runs should leave less of a row's uncertainty (its variance), the row is worth no trial beside
it. On the made-up surfaces that it was chosen on, four devices broke limits as often as one by this, and
half as often again without; on others 1.4 times as often."""

LEAST_INFORMATION = 1e-5

UNMOVED = "changes a knob that no window has changed yet"

NOT_ALONE = "changes a knob alone that was only changed together with others"

BASELINE_WINDOWS = 3
"""Before a search gives up, the baseline has been measured so often: every chance rests on it."""


def explore(search: Search) -> Try | None:
    """Return the setting that is most worth measuring, None where nothing is.

    The likeliest to keep the limits while nothing does. Then, in this order: the greatest expected
    gain net of its risk, or a step on the way where that is a leap; a safe window that tells about
    a promising row; a look around while little was tried; small gains that are safe; a knob not moved
    yet, or not alone; the baseline again where nothing beats it; a promising risk; a knob not moved
    yet, though not safely; the best setting again until it is firm.
    """
    return _Rules(search).made()


def worth(search: Search) -> Tensor:
    """Return how much each row is worth trying: its expected gain, net of its risk.

    While nothing is likely to keep the limits: how likely it is to.
    """
    choice = _Rules(search)
    return search.chance if choice.nothing_keeps() else choice.net


class _Rules:
    """One decision: the rows' promises and risks, worked out once."""

    def __init__(self, search: Search) -> None:
        self.search, self.belief, self.ahead = search, search.view.belief, search.view.ahead
        self.best = search.incumbent
        self.chance, self.seed = search.chance, search.study.seed

    def made(self) -> Try | None:
        """Return the decision."""
        if self.nothing_keeps():
            row = argmax(self.chance, self._unmeasured & self.search.allowed, self.seed)
            why = "no setting keeps every limit yet; this one is the most likely to"
            return None if row is None else self._try(row, f"{why} ({self.search.percent(row)})")
        return (
            self._worthwhile()
            or self._safety_probe()
            or self._look_around()
            or self._small_gain()
            or self._unmoved()
            or self._baseline_again()
            or self._risky_gain()
            or self._likeliest_unmoved()
            or self._best_again()
        )

    def nothing_keeps(self) -> bool:
        """Return whether no measured setting, the baseline included, is likely to keep its limits."""
        rows = list(self.search.view.measured)
        return bool((self.chance[rows] < EVEN).all())

    @cached_property
    def _unmeasured(self) -> Tensor:
        unmeasured = torch.ones(len(self.chance), dtype=torch.bool)
        unmeasured[list(self.search.view.measured)] = False
        return unmeasured

    @cached_property
    def gain(self) -> Tensor:
        """What each row may save, its chance to keep the limits and its duration counted in.

        For a measured row: what it would save were it trusted. Either beside what runs, as that should
        turn out: what is like it promises little more.
        """
        value = self.ahead.sign * self.ahead.mean[:, 0]
        rivals = [self.best, *(r for r in self.search.view.running if self.chance[r] >= EVEN)]
        best = value[rivals].min()
        fresh = self.ahead.gain(self.ahead.sign * float(best))
        fresh = fresh * self.chance / self.ahead.chance.clamp_min(1e-300)
        fresh = torch.where(self._told_soon, 0.0, fresh)
        again = AGAIN * (best - value).clamp_min(0.0) * self.chance
        gain = torch.where(self._unmeasured, fresh, again) / self.search.effort
        wild = torch.zeros_like(self._unmeasured)
        for edge in self.belief.edges:
            wild |= self.belief.sd[:, edge.column] > MOST_SD
        lost = wild & (self.chance < FIRM_CHANCE)
        return torch.where(self.search.allowed & ~lost, gain, 0.0)

    @cached_property
    def _told_soon(self) -> Tensor:
        """Which rows' objective the running trials will mostly tell: a window of their own can wait."""
        return (self.ahead.sd[:, 0] / self.belief.sd[:, 0]).square() < LEAST_LEFT

    @cached_property
    def priced(self) -> Tensor:
        """What each row may save, less the price of breaking a limit."""
        caution = self.search.caution
        early = self.search.ended < caution.first_trials
        price = caution.overshoot_price * (caution.first_factor if early else 1.0)
        far = price * self.belief.overshoot
        ample = tuple(edge for edge in self.belief.edges if edge.sign * edge.at > AMPLE)
        extra = (AMPLE_FACTOR - 1.0) * replace(self.belief, edges=ample).squared_overshoot
        farther = caution.square_price * (self.belief.squared_overshoot + extra)
        return self.gain - caution.price * (1.0 - self.chance) - far - farther

    @cached_property
    def net(self) -> Tensor:
        """The same; -inf where a row is too likely to break a limit, or too far beyond what is known."""
        likely = self.chance >= self.search.caution.least_chance
        return torch.where(
            likely & (self.gain > 0.0) & self._within_stride(), self.priced, -math.inf
        )

    def _within_stride(self) -> Tensor:
        """Return which rows' 95 % bound uses no more of the remaining slack than one step may."""
        kept = torch.ones_like(self._unmeasured)
        stride = self.search.caution.stride
        if math.isinf(stride):
            return kept
        safe = [row for row in self.search.view.measured if self.chance[row] >= SURE]
        for edge in self.belief.edges:
            mean = edge.sign * self.belief.mean[:, edge.column]
            bound = mean + Z95 * (self.belief.sd[:, edge.column] ** 2 + edge.doubt**2).sqrt()
            limit = edge.sign * edge.at
            reached = max([float(mean[row]) for row in safe] or [limit])
            kept &= bound <= reached + stride * max(0.0, limit - reached)
        return kept

    def _worthwhile(self) -> Try | None:
        row = argmax(self.net, torch.ones_like(self._unmeasured), self.seed)
        if row is None or not float(self.net[row]) > WORTH:
            return None
        step = self._safer_step(row)
        if step is None:
            return self._attempt(row)
        return self._attempt(step, "; a safer step towards a better setting")

    def _safer_step(self, row: int) -> int | None:
        """Return the step on the way towards a row that may break a limit, None where none is needed.

        It saves nearly as much, risks a fraction, and tells most of what is to be known of the row.
        """
        leap = bool(self._unmeasured[row] & (self.chance[row] < self.search.caution.step_chance))
        if not leap or not self._teachable:
            return None
        information, risk = (
            information_gain(self.ahead, row, self._usual_noise()),
            self.belief.overshoot,
        )
        steps = self._unmeasured & (self.net >= STEP_WORTH * self.net[row])
        steps &= (risk <= STEP_RISK * risk[row]) & (
            information >= STEP_INFORMATION * information[row]
        )
        return argmax(self.net, steps, self.seed)

    @property
    def _teachable(self) -> bool:
        """Whether a window may tell anything of another row's limits."""
        return bool(self.belief.edges) and len(self.belief.components) > 1

    def _safety_probe(self) -> Try | None:
        """Return the safe window that tells most about the row that promises most.

        For what it costs: where it takes more of the objective than the baseline, so many times more.
        """
        if not self._teachable:
            return None
        target = argmax(self.gain, self.search.allowed & (self.chance >= OPEN), self.seed)
        if target is None or float(self.gain[target]) <= PROBE_GAIN:
            return None
        value = self.belief.sign * self.belief.mean[:, 0]
        dearer = (value - value[self.search.baseline]).clamp(0.0, MOST_EXPONENT).exp()
        information = information_gain(self.ahead, target, self._usual_noise()) / dearer
        few = torch.ones_like(self._unmeasured)
        few[[row for row, count in self.search.windows.items() if count > 1]] = False
        row = argmax(information, self.search.allowed & few & (self.chance >= SAFE), self.seed)
        if row is None or float(information[row]) <= LEAST_INFORMATION:
            return None
        promise = self.search.outlook(target)
        setting = render_setting(self.search.grid.settings[target])
        whose = "" if row == target else f" for {setting}"
        return self._try(row, f"safety probe{whose}: {promise}")

    @property
    def _stuck(self) -> bool:
        """Whether nothing was found yet that beats the baseline, which keeps its limits."""
        return self.best == self.search.baseline and self.search.evidence.broken is None

    def _look_around(self) -> Try | None:
        caution, spent = self.search.caution, self.search.past.spent
        late = spent >= caution.looks
        if late and not (self._stuck and spent < caution.stuck_looks):
            return None
        promising = self.gain > (FIRST_LEAST_GAIN if spent < FIRST_LOOKS else LEAST_GAIN)
        sure = promising & (self.chance >= caution.sure_chance)
        look = min(EVEN, caution.look_chance) if late else caution.look_chance
        asked = torch.where(self._moving, min(look, caution.first_chance), look)
        likely = promising & (self.chance >= asked)
        early = "; few trials so far"
        return self._first(self.gain, sure, 0.0, early) or self._first(
            self.priced, likely, -math.inf, early
        )

    def _small_gain(self) -> Try | None:
        return self._first(self.gain, self.search.allowed & (self.chance >= SURE), SMALL_GAIN)

    @cached_property
    def _moved(self) -> Tensor:
        """Which knobs some measured row has moved."""
        seen = self.search.grid.points[self.search.looked_at]
        return (seen != seen[0]).any(dim=0)

    @cached_property
    def _news(self) -> Tensor:
        """How many knobs each row moves for the first time."""
        points, row = self.search.grid.points, self.search.baseline
        return ((points != points[row]) & ~self._moved).sum(dim=1)

    @cached_property
    def _moving(self) -> Tensor:
        """Which rows move a knob for the first time."""
        return self._news > 0

    @cached_property
    def _fresh(self) -> Tensor:
        """Which rows move a knob for the first time and are else like some measured row.

        Where there is no such row, as some combinations are forbidden, whatever moves one.
        """
        points = self.search.grid.points
        seen = points[self.search.looked_at]
        like = ((points[:, None] == seen) | ~self._moved).all(dim=2).any(dim=1)
        free = self.search.allowed & self._unmeasured
        fresh = like & free
        return fresh if fresh.any() else self._moving & free

    @cached_property
    def _alone(self) -> Tensor:
        """Which rows move a knob alone that measured rows moved that way only with others."""
        points, row = self.search.grid.points, self.search.baseline
        rows = self.search.looked_at
        between, steps = points[rows][:, None] != points[rows], points[:, None] != points[rows]
        alone, single = between.sum(dim=2) == 1, steps.sum(dim=2) == 1
        open_moves = torch.zeros_like(self._unmeasured)
        for way in (points > points[row], points < points[row]):
            moved = between & alone[..., None] & (way[rows][:, None] | way[rows])
            not_alone = way[rows].any(dim=0) & ~moved.any(dim=1).any(dim=0)
            open_moves |= (
                (steps & single[..., None] & (way & not_alone)[:, None]).any(dim=2).any(dim=1)
            )
        return open_moves & self.search.allowed & self._unmeasured

    def _unmoved(self) -> Try | None:
        """Return a safe row that moves a knob for the first time, or for the first time alone.

        What a model says of it is a guess. Of such rows the one that could be best.
        """
        value = self.belief.sign * self.belief.mean[:, 0] - Z95 * self.belief.sd[:, 0]
        for rows, what in ((self._fresh, UNMOVED), (self._alone, NOT_ALONE)):
            row = argmax(-value, rows & (self.chance >= SAFE), self.seed)
            if row is not None:
                return self._try(row, f"{what}; {self.search.outlook(row)}")
        return None

    def _likeliest_unmoved(self) -> Try | None:
        """Return the likeliest to keep the limits of such rows, where none was safe.

        One that moves a single new knob, if there is any: of several nothing tells which one it was.
        """
        likely = self.chance >= self.search.caution.unmoved_chance
        for rows, what in (
            (self._fresh & (self._news == 1), UNMOVED),
            (self._fresh, UNMOVED),
            (self._alone, NOT_ALONE),
        ):
            row = argmax(self.chance, rows & likely, self.seed)
            if row is not None:
                return self._try(row, f"{what}; {self.search.outlook(row)}")
        return None

    def _baseline_again(self) -> Try | None:
        """Return the baseline once more where nothing measured beats it and few windows show it."""
        row = self.search.baseline
        few = self.search.windows[row] < BASELINE_WINDOWS
        if not self.belief.edges or self.best != row or not few or not self.search.allowed[row]:
            return None
        return self._try(row, "the baseline again: every expected limit depends on it")

    def _risky_gain(self) -> Try | None:
        caution = self.search.caution
        promising = torch.isfinite(self.net) & (self.gain > caution.risky_gain)
        paying = (self.chance >= caution.risky_chance) & (self.priced > WORTH)
        return self._first(self.priced, promising | paying, -math.inf, "; a risk worth taking")

    def _best_again(self) -> Try | None:
        """Return the best setting once more while a few windows do not make it firm."""
        measured = self.search.windows[self.best]
        firm = float(self.chance[self.best]) >= FIRM_CHANCE or measured >= FIRM_WINDOWS
        if firm or self.best == self.search.baseline or not self.search.allowed[self.best]:
            return None
        outlook = self.search.outlook(self.best)
        return self._try(self.best, f"{outlook}; measured again, to prove its limits")

    def _first(self, score: Tensor, rows: Tensor, least: float, also: str = "") -> Try | None:
        row = argmax(score, rows, self.seed)
        if row is None or not float(score[row]) > least:
            return None
        return self._attempt(row, also)

    def _attempt(self, row: int, also: str = "") -> Try:
        again = "" if self._unmeasured[row] else "; measured again, to narrow its error"
        return self._try(row, f"{self.search.outlook(row)}{again}{also}")

    def _try(self, row: int, why: str) -> Try:
        return self.search.attempt(row, why)

    def _usual_noise(self) -> list[float]:
        """Return the largest deviation of what was measured, metric by metric, in the models' units."""
        view = self.search.view
        return [
            max(
                scale.width(c.estimates[metric])
                for c in view.measured.values()
                if metric in c.estimates
            )
            for metric, scale in view.scales.items()
        ]
