"""The baseline over time: its first measurement, and every later window of it.

Between two windows the baseline is interpolated linearly; after the last one it is assumed constant. Both
are our choice: of a step between two windows, half is credited too early and half too late.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tuner.core.decisions import Past
from tuner.core.measurements import Estimate
from tuner.core.plans import Context
from tuner.core.selection import Worth, is_at, windows
from tuner.core.studies import Study
from tuner.core.trials import Trial
from tuner.moments import when

__all__ = ["BaselineCourse", "BaselinePart", "BaselineShift", "FIRST"]

FIRST = 0
"""The number of the first baseline; later measurements have the numbers of their trials."""


@dataclass(frozen=True, slots=True)
class BaselinePart:
    """One measurement of the baseline as it applies to a moment: its estimate, and its weight `share`.

    `number` is its trial's, or `FIRST`. `at` is the time of the measurement, None if unknown.
    """

    number: int
    at: datetime | None
    estimate: Estimate
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class BaselineShift:
    """A lasting shift of the baseline from its first measurement, proven by later windows of it.

    `change` is relative to the first measurement: −0.1 ± 0.01 if the metric has fallen by a tenth.
    `windows` is the number of windows, from `since` on, that prove it.
    """

    since: datetime
    change: Estimate
    windows: int

    def now(self, first: Estimate) -> Estimate:
        """Return the baseline's present estimate of the metric from its first one."""
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
    """The baseline's metrics at a time and a load, from the control windows near that time.

    `first` returns the baseline's estimates at a load from before the first control window; `first_at` is
    the time of the last of those measurements. `again` are the baseline's complete windows from the first
    control window on. `past` is the past that `first` reads, if any.
    """

    def __init__(
        self,
        first: Callable[[Context], Mapping[str, Estimate]],
        first_at: datetime | None = None,
        again: Sequence[Trial] = (),
        past: Past | None = None,
    ) -> None:
        self.first, self.past = first, past
        self._first_at = first_at
        self.again = tuple(sorted(again, key=_began))
        self._starts = [_began(trial) for trial in self.again]

    @classmethod
    def of(cls, study: Study, trials: Iterable[Trial]) -> BaselineCourse:
        """Return the course of a study's baseline from its trials since `since_trial`."""
        solid = windows(trials, study.baseline, since=study.since_trial, least=Worth.SOLID)
        solid.sort(key=lambda t: t.number)
        since = next((k for k, t in enumerate(solid) if t.control), len(solid))
        first = solid[:since]
        # As measured, at the loads that arrived: a bill compares windows at like loads.
        raw = replace(study, terms=replace(study.terms, plan_by=""))
        past = Past(study=raw, trials=tuple(first))
        last = max(map(_began, first), default=None)
        return cls(past.baseline_at, last, solid[since:], past)

    def around(self, metric: str, at: datetime, load: Context) -> tuple[BaselinePart, ...]:
        """Return the baseline's measurements of a metric just before and after a time, at a like load.

        Their shares add up to 1. Empty if the baseline was never measured at such a load.
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
        """Return the first of these windows that has the metric at a comparable load, None if none has."""
        for trial in map(self.again.__getitem__, windows):
            if metric in trial.shown and is_at(trial.ran_at, load):
                return BaselinePart(trial.number, _began(trial), trial.shown[metric])
        return None


def _began(trial: Trial) -> datetime:
    """Return the start of a trial's window, of the trial itself if it has no window."""
    return trial.started_at if trial.measurement is None else trial.measurement.started_at
