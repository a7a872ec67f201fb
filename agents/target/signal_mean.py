"""Mean of a signal over a window, reported as the window's load."""

from __future__ import annotations

import math

from agents.target.side import LiveSignal, SignalSample
from tuner.core import Clock, Context


class SignalMean:
    """Average a signal from repeated readings, starting with the first.

    If the signal reports an integral the mean is exact. Otherwise it is that of the readings, each
    weighted by the time since the one before. After a restart within the window there is no mean.
    Raises as the signal's `read`.
    """

    def __init__(self, live: LiveSignal, clock: Clock) -> None:
        self._live, self._clock = live, clock
        self._first = self._last = clock.monotonic(), live.read()
        self._sum = 0.0
        self._restarted = False

    def look(self) -> None:
        """Read the signal once."""
        now, sample = self._clock.monotonic(), self._live.read()
        before, last = self._last
        self._restarted |= sample.incarnation != last.incarnation
        if sample.present is not None:
            self._sum += sample.present * (now - before)
        self._last = now, sample

    @property
    def context(self) -> Context:
        """The mean by the signal's name; empty while there is none."""
        seconds = self._last[0] - self._first[0]
        mean = _mean(self._first[1], self._last[1], self._sum, seconds) if seconds > 0.0 else None
        if mean is None or self._restarted or not math.isfinite(mean):
            return {}
        return {self._live.signal.name: mean}


def _mean(first: SignalSample, last: SignalSample, total: float, seconds: float) -> float | None:
    if first.integral is not None and last.integral is not None:
        grown = last.integral - first.integral
        return grown / seconds if grown >= 0.0 else None
    return None if last.present is None else total / seconds
