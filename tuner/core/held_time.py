"""The time that the windows of a hold represent, and the time since which a study has been holding."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from tuner.core.devices import MetricSample
from tuner.core.studies import Revision
from tuner.core.trials import Phase, Trial

__all__ = ["GAP_S", "held_since", "spoken_for"]

GAP_S = 300.0
"""The longest time that one held window may represent."""


def held_since(revisions: Sequence[Revision]) -> datetime | None:
    """Return the time since which a study has been holding; None if it does not hold."""
    return _runs(revisions)[-1] if revisions else None


def spoken_for(
    held: Sequence[MetricSample], revisions: Sequence[Revision], controls: Sequence[Trial]
) -> Iterator[tuple[MetricSample, float]]:
    """Yield every held window, oldest first, with the seconds that it represents."""
    turns, runs = [r.at for r in revisions], _runs(revisions)
    away = _Away(controls)
    since = min((run for run in runs if run is not None), default=None)
    budget = _Budget(since, min(held[0].seconds, GAP_S) if held else 0.0)
    before, before_run, covered = None, None, None
    for window in sorted(held, key=lambda w: w.started_at):
        turn = bisect_right(turns, window.started_at)
        run = runs[turn - 1] if turn else None
        end = window.started_at + timedelta(seconds=window.seconds)
        overlaps = covered is not None and window.started_at < covered
        if overlaps and covered is not None:
            speaks_s = max(0.0, (end - covered).total_seconds())
        else:
            speaks_s = window.seconds
        covered = max(covered, end) if covered is not None else end
        if before is not None and run is not None and run == before_run and not overlaps:
            since_s = (window.started_at - before.started_at).total_seconds()
            since_s -= away.seconds(before.started_at, window.started_at)
            speaks_s = max(speaks_s, min(since_s, GAP_S))
        yield window, budget.spend(speaks_s, window.at)
        before, before_run = window, run


class _Budget:
    """Limits the represented time to the time on the tuner's clock since the first hold.

    The first window's length is allowed in addition, because a simulated device may have another clock.
    """

    def __init__(self, since: datetime | None, first_s: float) -> None:
        self._since, self._spent_s = since, -first_s

    def spend(self, seconds: float, at: datetime | None) -> float:
        """Return the part of a window's time that had passed when the tuner received it, and count it."""
        if self._since is not None and at is not None:
            passed_s = (at - self._since).total_seconds()
            seconds = min(seconds, max(0.0, passed_s - self._spent_s))
        self._spent_s += seconds
        return seconds


class _Away:
    """The times when a holding study was not at its held setting: its control windows."""

    def __init__(self, controls: Sequence[Trial]) -> None:
        self._spans = sorted((t.started_at, t.ended_at) for t in controls if t.ended_at is not None)

    def seconds(self, since: datetime, until: datetime) -> float:
        """Return the seconds of the control windows that began between two times.

        A held window never overlaps a control window, so no control window is cut.
        """
        first = bisect_right(self._spans, (since, since))
        last = bisect_right(self._spans, (until, until))
        return math.fsum((end - start).total_seconds() for start, end in self._spans[first:last])


def _runs(revisions: Sequence[Revision]) -> list[datetime | None]:
    """Return, for each revision, the time since which the study was holding; None if it was not."""
    runs: list[datetime | None] = []
    since = None
    for revision in revisions:
        since = (since or revision.at) if revision.study.phase is Phase.HOLDING else None
        runs.append(since)
    return runs
