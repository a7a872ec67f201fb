"""Where a search stands: everything that a decision rests on, derived from the past."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from tuner.bo.acquisition import log_feasible
from tuner.bo.beliefs import View
from tuner.bo.encoding import Grid
from tuner.core import (
    Evidence,
    Limit,
    Phase,
    Study,
    Trial,
    TrialState,
    Try,
    setting_key,
)

WORTH = 0.001
"""An expected gain below this share of the baseline is not worth a window."""


@dataclass(frozen=True)
class Search:
    """A study's counted trials, what they show, and what is believed of every row of the grid.

    `within` says of every row whether it may be tried next.
    """

    study: Study
    trials: tuple[Trial, ...]
    evidence: Evidence
    limits: tuple[Limit, ...]
    grid: Grid
    view: View
    within: Tensor

    @cached_property
    def chance(self) -> Tensor:
        """Logarithm of each row's probability to keep every limit so well that it can be proven."""
        return log_feasible(self.view.belief)

    @property
    def spent(self) -> int:
        """How many tuning trials were spent; those ended from outside do not count."""
        return trials_spent(self.trials)

    @property
    def left(self) -> int:
        """How many tuning trials may still be spent."""
        return self.study.terms.trials - self.spent

    @property
    def baseline(self) -> int:
        """The row of the baseline."""
        return self.grid.rows[setting_key(self.study.baseline)]

    def attempt(self, row: int, why: str) -> Try:
        """Return the suggestion to measure a row."""
        return Try(self.grid.settings[row], why, self.view.predicted(row))

    def outlook(self, row: int) -> str:
        """Return in words what is expected of a row."""
        metric = self.study.objective.metric
        start = self.evidence.baseline[metric].mean
        change = self.view.predicted(row)[metric].mean / start - 1.0 if start else 0.0
        side = "below" if change < 0.0 else "above"
        return (
            f"{metric} should be {abs(change):.1%} {side} the baseline, "
            f"with a chance of {self.percent(row)} to keep every limit"
        )

    def percent(self, row: int) -> str:
        """Return in words how likely a row keeps every limit."""
        return f"{math.exp(float(self.chance[row])):.0%}"


def trials_spent(trials: tuple[Trial, ...]) -> int:
    """Return how many of the counted trials were spent on tuning."""
    tuning = [t for t in trials if t.phase is Phase.TUNING]
    return sum(t.state is not TrialState.ABORTED for t in tuning)
