"""The state of a search: everything that a decision uses, derived from the past."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from statistics import median

import torch
from torch import Tensor

from tuner.bo.beliefs import View
from tuner.bo.caution import CAUTION, Caution, even_chance
from tuner.bo.encoding import Grid
from tuner.bo.scale import MOST_EXPONENT, Scale
from tuner.core import Z95, Evidence, Past, Setting, Study, TrialState, Try, Verdict, setting_key
from tuner.guard import MOST_FAILURES, silencing

MOST_WINDOWS = 4
"""The most windows of a setting while tuning."""

MOST_CONTAMINATED = 3
"""A setting with this number of contaminated windows more than clean ones is not tried again:
contaminated windows cost trials, too."""


@dataclass(frozen=True)
class Search:
    """A study's past, and the prediction for every row of the grid.

    `within` limits the settings that may be tried; measurements outside of it remain evidence.
    """

    past: Past
    grid: Grid
    view: View
    within: Callable[[Setting], bool] | None = None

    @property
    def study(self) -> Study:
        """The study."""
        return self.past.study

    @property
    def evidence(self) -> Evidence:
        """The evidence from the trials."""
        return self.past.evidence

    @property
    def caution(self) -> Caution:
        """The prices of the study's level of safety."""
        return CAUTION[self.study.terms.safety]

    @property
    def baseline(self) -> int:
        """The row of the baseline."""
        return self.grid.rows[setting_key(self.study.baseline)]

    @cached_property
    def windows(self) -> Counter[int]:
        """The number of valid windows of each row, aborted ones included."""
        return Counter({row: len(c.trials) for row, c in self.view.measured.items()})

    @property
    def looked_at(self) -> list[int]:
        """The measured and running rows."""
        return list(dict.fromkeys([*self.view.measured, *self.view.running]))

    @property
    def ended(self) -> int:
        """The number of tuning trials with a result."""
        return self.past.spent - sum(t.state is TrialState.RUNNING for t in self.past.trials)

    @cached_property
    def allowed(self) -> Tensor:
        """The rows that may be tried.

        Excluded are rows that run, failed `MOST_FAILURES` times, have a value with which the workload
        did not start, broke a limit, were mostly contaminated, or have `MOST_WINDOWS` windows.
        """
        allowed = torch.tensor([self.within is None or self.within(s) for s in self.grid.settings])
        for row, count in Counter(self._rows(TrialState.FAILED)).items():
            allowed[row] &= count < MOST_FAILURES
        for row, count in Counter(self._rows(TrialState.CONTAMINATED)).items():
            allowed[row] &= count < MOST_CONTAMINATED + self.windows[row]
        allowed[self._rows(TrialState.RUNNING)] = False
        if silent := silencing(self.study, self.past.trials):
            allowed &= torch.tensor([not silent & s.items() for s in self.grid.settings])
        for row, candidate in self.view.measured.items():
            often = self.windows[row] >= MOST_WINDOWS
            allowed[row] &= candidate.verdict is not Verdict.INFEASIBLE and not often
        return allowed

    @cached_property
    def works(self) -> Tensor:
        """Each row's probability not to fail: one half if it failed once and never worked."""
        works = torch.ones(len(self.grid.settings), dtype=torch.float64)
        works[list(set(self._rows(TrialState.FAILED)) - self.windows.keys())] /= 2.0
        return works

    @cached_property
    def chance(self) -> Tensor:
        """Each row's probability of success: to keep every limit, and not to fail again."""
        return self.view.chance * self.works

    @cached_property
    def deployable(self) -> tuple[int, ...]:
        """The measured rows that could be held, best predicted objective first, and last the baseline.

        Such a row was measured in a complete window, is likely enough to keep its limits, has not
        proven the contrary, and is predicted to beat the baseline, unless the baseline breaks a
        limit.
        """
        cost, broken = self.view.cost, self.evidence.broken is not None
        cheaper = cost < cost[self.baseline]
        rows = [
            row
            for row, c in self.view.measured.items()
            if c.deployable
            and c.verdict is not Verdict.INFEASIBLE
            and self.view.scales.keys() <= c.estimates.keys()
            and (cheaper[row] or broken)
            and row != self.baseline
        ]
        likely = (row for row in rows if self.chance[row] >= even_chance(self.caution.wrong))
        return (*sorted(likely, key=lambda row: float(cost[row])), self.baseline)

    @cached_property
    def incumbent(self) -> int:
        """The measured row to beat: the best deployable one.

        If the baseline breaks a limit and no row is deployable yet, it is the row most likely to keep
        the limits.
        """
        if self.deployable[0] != self.baseline or self.evidence.broken is None:
            return self.deployable[0]
        return max(self.view.measured, key=lambda row: float(self.chance[row]))

    @cached_property
    def effort(self) -> Tensor:
        """The effort of a trial of each row, relative to the cheapest: its window and changing the knobs.

        Between trials a device is at its baseline or a hold, so every changed knob costs its time.
        The square root of the seconds is used: they are the main cost, but not the only one.
        """
        seconds = torch.full((len(self.grid.settings),), self.study.terms.window_s).double()
        for name, places in zip(self.grid.names, self.grid.points.T, strict=True):
            changed = places != places[self.baseline]
            seconds += self.study.space.knob(name).cost.seconds * changed
        return (seconds / self.study.terms.window_s).sqrt()

    @cached_property
    def longer(self) -> float:
        """The median length of a window over ten seconds, at least 1; 1 where no load is followed.

        At a low rate a window lasts up to an hour, and a further one delays the hold by as much.
        """
        if not self.study.terms.plan_by:
            return 1.0
        lasted_s = [t.measurement.seconds for t in self.past.trials if t.measurement and t.solid]
        return max(1.0, median(lasted_s) / 10.0) if lasted_s else 1.0

    def attempt(self, row: int, why: str) -> Try:
        """Return the suggestion to measure a row."""
        return Try(self.grid.settings[row], why, self.view.predicted(row))

    def outlook(self, row: int) -> str:
        """Return a text with the prediction for a row."""
        metric = self.study.objective.metric
        cost, sd = float(self.view.cost[row]), float(self.view.cost_sd[row])
        sign, scale = self.study.objective.sign, self.view.scales[metric]
        text = f"{metric} should be {_beside(sign * cost, scale)} the baseline"
        if cost > 0.0 > cost - Z95 * sd:
            text += f", at best {_beside(sign * (cost - Z95 * sd), scale)} it"
        if self.evidence.limits:
            text += f", with a chance of {self.percent(row)} to meet every limit"
        return text

    def percent(self, row: int) -> str:
        """Return a text with a row's chance to keep every limit."""
        chance = f"{float(self.view.chance[row]):.0%}".replace("%", " %")
        return "over 99 %" if chance == "100 %" else chance

    def _rows(self, state: TrialState) -> list[int]:
        """Return the row of every trial in a state."""
        rows = [self.grid.row(t.setting) for t in self.past.trials if t.state is state]
        return [row for row in rows if row is not None]


def _beside(away: float, scale: Scale) -> str:
    """Return a text with the distance below or above the baseline, given as a share of it."""
    way = "below" if away < 0.0 else "above"
    if not scale.log:
        return f"{abs(away) * scale.unit / scale.share:.3g} {way}"
    return f"{abs(math.expm1(min(away, MOST_EXPONENT))):.1%} {way}".replace("%", " %")
