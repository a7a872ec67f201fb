"""The baseline over time: what it first showed, and what every window of it has shown since.

Between two windows of it the baseline is taken to go straight from one to the other; after the last one
it is taken to stay. Both are our choice: of a step in between, half is seen too early and half too late.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tuner.core.decisions import Past
from tuner.core.evidence import is_at
from tuner.core.measurements import Estimate
from tuner.core.plans import Context
from tuner.core.studies import Study
from tuner.core.trials import Trial
from tuner.moments import when

__all__ = ["BaselineCourse", "BaselinePart", "BaselineShift", "FIRST"]

FIRST = 0
"""Represents the first baseline where others are named by the number of their trial."""


@dataclass(frozen=True, slots=True)
class BaselinePart:
    """What one measurement of the baseline has to say of a moment: an estimate, and the share it counts.

    `number` is its trial's, or `FIRST`; `at` when it was measured, None where unknown.
    """

    number: int
    at: datetime | None
    estimate: Estimate
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class BaselineShift:
    """A lasting shift of the baseline from what it first showed, proven by windows of it since.

    `change` is by what share of the first: −0.1 ± 0.01 where it takes a tenth less. `windows` have shown
    that from `since` on.
    """

    since: datetime
    change: Estimate
    windows: int

    def now(self, first: Estimate) -> Estimate:
        """Return what the baseline shows now of what it first showed so."""
        ratio = 1.0 + self.change.mean
        doubt = math.hypot(ratio * first.stderr, first.mean * self.change.stderr)
        return Estimate.of_mean(
            ratio * first.mean, doubt, first.n, origin=first.origin, scope=first.scope
        )

    def in_words(self, metric: str) -> str:
        """Return the shift as a sentence."""
        percent, doubt = 100.0 * self.change.mean, 100.0 * self.change.stderr
        way = "higher" if percent >= 0.0 else "lower"
        return (
            f"the baseline has drifted: its {metric} is {abs(percent):.1f} ± {doubt:.1f} % {way} than "
            f"the study's first baseline ({self.windows} windows since {when(self.since)})"
        )


class BaselineCourse:
    """What the baseline showed at a time and a load, from the control windows near it.

    `first` reports what it showed at a load before the first control window, and `first_at` when that was
    last measured. `again` are its windows since, measured to the end.
    """

    def __init__(
        self,
        first: Callable[[Context], Mapping[str, Estimate]],
        first_at: datetime | None = None,
        again: Sequence[Trial] = (),
    ) -> None:
        self.first = first
        self._first_at = first_at
        self.again = tuple(sorted(again, key=_began))
        self._starts = [_began(trial) for trial in self.again]

    @classmethod
    def of(cls, study: Study, trials: Iterable[Trial]) -> BaselineCourse:
        """Return the course of a study's baseline, from those trials that still count."""
        own = sorted((t for t in trials if t.number >= study.since_trial), key=lambda t: t.number)
        solid = [t for t in own if t.solid and t.tries(study.baseline)]
        since = next((k for k, t in enumerate(solid) if t.control), len(solid))
        first = solid[:since]
        return cls(
            Past(study=study, trials=tuple(first)).baseline_at,
            max(map(_began, first), default=None),
            solid[since:],
        )

    def around(self, metric: str, at: datetime, load: Context) -> tuple[BaselinePart, ...]:
        """Return what the baseline showed of a metric just before and after a time, at such a load.

        Their shares sum up to 1; nothing where it was never measured at such a load.
        """
        here = bisect_right(self._starts, at)
        after = self._nearest(metric, load, range(here, len(self.again)))
        before = self._nearest(metric, load, reversed(range(here)))
        if before is None and (first := self.first(load).get(metric)) is not None:
            before = BaselinePart(FIRST, self._first_at, first)
        if before is None or after is None:
            return tuple(part for part in (before, after) if part is not None)
        if before.at is None or after.at is None or at <= before.at:
            return (before,)
        share = (at - before.at) / (after.at - before.at)
        return replace(before, share=1.0 - share), replace(after, share=share)

    def _nearest(self, metric: str, load: Context, windows: Iterable[int]) -> BaselinePart | None:
        """Return the first of these windows since that was measured at such a load."""
        for trial in map(self.again.__getitem__, windows):
            if metric in trial.shown and is_at(trial.ran_at, load):
                return BaselinePart(trial.number, _began(trial), trial.shown[metric])
        return None


def _began(trial: Trial) -> datetime:
    return trial.started_at if trial.measurement is None else trial.measurement.started_at
