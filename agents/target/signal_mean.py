"""Mean of a signal over a window, reported as the window's load."""

from __future__ import annotations

import math

from agents.target.side import LiveSignal, SignalSample
from tuner.core import PEAK, STEADY_S, Clock, Context, sure_rate

PEAK_SHARE = 0.1
"""The share of a window's time at its peak or above: ten times the share of requests that a p99 may
leave out, so that a p99 covers them. Ours."""
PER_SECOND = "1/s"


class SignalMean:
    """Average a signal from repeated readings, starting with the first.

    If the signal reports an integral the mean is exact. Otherwise it is that of the readings, each
    weighted by the time since the one before. After a restart within the window there is no mean.
    The peak is a level that is smoothed as a plan's: a setting that kept its limits in this window
    kept them at loads up to there. Raises as the signal's `read`.
    """

    def __init__(self, live: LiveSignal, clock: Clock) -> None:
        self._live, self._clock = live, clock
        self._first = self._last = clock.monotonic(), live.read()
        self._sum = 0.0
        self._restarted = False
        self._level: float | None = None
        self._levels: list[tuple[float, float]] = []

    def look(self) -> None:
        """Read the signal once."""
        now, sample = self._clock.monotonic(), self._live.read()
        before, last = self._last
        self._restarted |= sample.incarnation != last.incarnation
        if sample.present is not None:
            self._sum += sample.present * (now - before)
        self._smooth(last, sample, now - before)
        self._last = now, sample

    def _smooth(self, last: SignalSample, sample: SignalSample, seconds: float) -> None:
        mean = (
            _mean(last, sample, (sample.present or 0.0) * seconds, seconds)
            if seconds > 0.0
            else None
        )
        if mean is None or not math.isfinite(mean):
            return
        level = mean if self._level is None else self._level
        self._level = level + (mean - level) * (1.0 - math.exp(-seconds / STEADY_S))
        counted = self._live.signal.unit == PER_SECOND
        sure = sure_rate(self._level, STEADY_S) if counted else self._level
        self._levels.append((sure, seconds))

    def _peak(self, seconds: float) -> float:
        """Return the level for the highest tenth of the time."""
        above_s = 0.0
        for level, lasted_s in sorted(self._levels, reverse=True):
            above_s += lasted_s
            if above_s >= PEAK_SHARE * seconds:
                return level
        return -math.inf

    @property
    def context(self) -> Context:
        """The mean by the signal's name; empty while there is none."""
        seconds = self._last[0] - self._first[0]
        mean = _mean(self._first[1], self._last[1], self._sum, seconds) if seconds > 0.0 else None
        if mean is None or self._restarted or not math.isfinite(mean):
            return {}
        name, peak = self._live.signal.name, self._peak(seconds)
        return {name: mean, **({f"{name}{PEAK}": peak} if peak > mean else {})}


def _mean(first: SignalSample, last: SignalSample, total: float, seconds: float) -> float | None:
    if first.integral is not None and last.integral is not None:
        grown = last.integral - first.integral
        return grown / seconds if grown >= 0.0 else None
    return None if last.present is None else total / seconds
