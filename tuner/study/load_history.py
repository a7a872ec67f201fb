"""The loads that a study has seen, hour by hour: a plan's expectation covers every hour of the week."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tuner.core import LoadHistory, MetricSample, Study, Trial, load_band

KEPT = timedelta(weeks=4)
"""Older windows no longer count, so that a changed load prevails within a month: our choice."""

TWO_WEEKS = timedelta(weeks=2)
"""From this much data on, every hour of the week counts the same: each was then seen twice."""

HOUR_S = 3600.0

Hours = dict[datetime, Counter[int]]
"""Seconds in each band of the load, by the beginning of the hour."""


@dataclass
class HourlyLoads:
    """The loads of a study's held windows. The store has the windows; this only adds them up."""

    latest: datetime | None = None
    _hours: Hours = field(default_factory=lambda: defaultdict(Counter))
    _newest: set[datetime] = field(default_factory=set)

    def add(self, study: Study, held: Sequence[MetricSample]) -> None:
        """Add windows begun since `latest`, in order; those at that time are in the history."""
        by = study.terms.plan_by
        for sample in held:
            if sample.started_at in self._newest:
                continue
            if self.latest is None or sample.started_at > self.latest:
                self.latest, self._newest = sample.started_at, set()
            self._newest.add(sample.started_at)
            if by in sample.context:
                _count(self._hours, sample.started_at, sample.context[by], sample.seconds)
        if self.latest is not None:
            self._hours = defaultdict(
                Counter, {at: c for at, c in self._hours.items() if at > self.latest - KEPT}
            )

    def history(self, study: Study, trials: Sequence[Trial]) -> LoadHistory:
        """Return for how long each load was seen: in held windows, and in trials that requested none.

        From two weeks on as the mean week: the same time for each hour of the week.
        """
        by, hours = (
            study.terms.plan_by,
            defaultdict(Counter, {at: c.copy() for at, c in self._hours.items()}),
        )
        for trial in trials:
            if trial.measurement is not None and not trial.context and by in trial.ran_at:
                window = trial.measurement
                _count(hours, window.started_at, trial.ran_at[by], window.seconds)
        if not hours:
            return LoadHistory()
        weekly = max(hours) - min(hours) >= TWO_WEEKS
        slots: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
        for at, seconds in hours.items():
            slots[(at.weekday(), at.hour) if weekly else (0, 0)].update(seconds)
        total: dict[int, float] = defaultdict(float)
        for seconds in slots.values():
            share = HOUR_S / sum(seconds.values()) if weekly else 1.0
            for band, lasted_s in seconds.items():
                total[band] += share * lasted_s
        return LoadHistory(dict(total))


def _count(hours: Hours, at: datetime, load: float, seconds: float) -> None:
    begin = at.replace(minute=0, second=0, microsecond=0)
    if seconds > 0.0:
        hours[begin][load_band(load)] += seconds  # type: ignore[assignment]
