"""Mean of a signal over a window, reported as the window's load."""

from __future__ import annotations

import math

from agents.load.prometheus import ARRIVALS
from agents.target.side import LiveSignal, SignalSample
from tuner.core import LOAD_REACH, Clock, Context, burst_names, bursts_of

SPAN_S = 1.0
"""The shortest time over which a burst is measured; a plan's runner chooses a row as often."""


class SignalMean:
    """Average a signal from repeated readings, starting with the first.

    If the signal reports an integral the mean is exact. Otherwise it is that of the readings, each
    weighted by the time since the one before. A restart within the window makes the mean None. Bursts
    are measured above the bound of a row that this window would confirm. Raises as the signal's `read`.
    """

    def __init__(self, live: LiveSignal, clock: Clock) -> None:
        self._live, self._clock = live, clock
        self._first = self._last = clock.monotonic(), live.read()
        self._sum = 0.0
        self._spans: list[tuple[float, float]] = []
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
                self._spans.append((mean, now - before))
        self._last = now, sample

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
        """The mean by the signal's name, with bursts; empty if the mean is unknown."""
        mean = self.mean
        if mean is None:
            return {}
        name, bound, requests = self._live.signal.name, LOAD_REACH * mean, self.counts_requests
        bursts = bursts_of(self._spans, bound, requests=requests) if mean > 0.0 else ()
        return {name: mean, **dict(zip(burst_names(name), bursts, strict=False))}


def _mean(first: SignalSample, last: SignalSample, total: float, seconds: float) -> float | None:
    """Return the mean between two samples, by the integral if both have one."""
    if first.integral is not None and last.integral is not None:
        grown = last.integral - first.integral
        return grown / seconds if grown >= 0.0 else None
    return None if last.present is None else total / seconds
