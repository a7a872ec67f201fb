"""Mean of a signal over a window, reported as the window's load."""

from __future__ import annotations

import math

from agents.load.prometheus import ARRIVALS
from agents.target.side import LiveSignal, SignalSample
from tuner.core import Clock, Context, peak_name

SPAN_S = 1.0
"""The shortest time between two glances."""
PEAK_S = 30.0
"""Time constant in s of the level whose highest value is the window's peak: our choice."""


class SignalMean:
    """Average a signal from repeated readings, starting with the first.

    If the signal reports an integral the mean is exact. Otherwise it is that of the readings, each
    weighted by the time since the one before. A restart within the window makes the mean None. Raises as
    the signal's `read`.
    """

    def __init__(self, live: LiveSignal, clock: Clock) -> None:
        self._live, self._clock = live, clock
        self._first = self._last = clock.monotonic(), live.read()
        self._sum = self._peak = 0.0
        self._smoothed: float | None = None
        self._restarted = False

    def glance(self) -> None:
        """Read the signal if its last reading is a span old."""
        if self._clock.monotonic() - self._last[0] >= SPAN_S:
            self.look()

    def look(self) -> None:
        """Read the signal once."""
        now, sample = self._clock.monotonic(), self._live.read()
        before, last = self._last
        self._restarted |= sample.incarnation != last.incarnation
        if sample.present is not None:
            self._sum += sample.present * (now - before)
        if now > before:
            grown = (sample.present or 0.0) * (now - before)
            mean = _mean(last, sample, grown, now - before)
            if mean is not None and math.isfinite(mean):
                self._smooth(mean, now - before)
        self._last = now, sample

    def _smooth(self, mean: float, seconds: float) -> None:
        """Add a mean over `seconds` to the smoothed value and its peak."""
        share = min(1.0, seconds / min(PEAK_S, self._last[0] - self._first[0] + seconds))
        self._smoothed = mean if self._smoothed is None else self._smoothed
        self._smoothed += share * (mean - self._smoothed)
        if self._last[0] + seconds - self._first[0] >= PEAK_S:
            self._peak = max(self._peak, self._smoothed)

    @property
    def counts_requests(self) -> bool:
        """Whether the signal is the rate of arriving requests."""
        return self._live.signal.name == ARRIVALS.name

    @property
    def mean(self) -> float | None:
        """The mean so far; None if it is unknown."""
        seconds = self._last[0] - self._first[0]
        mean = _mean(self._first[1], self._last[1], self._sum, seconds) if seconds > 0.0 else None
        return None if mean is None or self._restarted or not math.isfinite(mean) else mean

    @property
    def context(self) -> Context:
        """The mean by the signal's name, with its peak; empty if the mean is unknown."""
        mean, name = self.mean, self._live.signal.name
        return {} if mean is None else {name: mean, peak_name(name): max(mean, self._peak)}


def _mean(first: SignalSample, last: SignalSample, total: float, seconds: float) -> float | None:
    """Return the mean between two samples, by the integral if both have one."""
    if first.integral is not None and last.integral is not None:
        grown = last.integral - first.integral
        return grown / seconds if grown >= 0.0 else None
    return None if last.present is None else total / seconds
