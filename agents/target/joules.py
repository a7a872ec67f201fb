"""Energy since a window began, and power integrated where there is no counter of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from tuner.core import Clock, MeasurementError, TuningError

SAMPLE_S = 0.05
"""As often as PolyThrottle samples (appendix A)."""
LONGEST_GAP_S = 1.0
"""Nobody knows what was drawn between samples that lie further apart."""

Every = Callable[[float, Callable[[], None]], Callable[[], None]]
"""Does something every so many seconds until what it returned is called."""


class Joules(Protocol):
    """Energy since it was opened."""

    def read(self) -> float:
        """Return joules so far. Raises MeasurementError, ActuationError."""
        ...

    def close(self) -> None:
        """Stop counting."""
        ...


class IntegratedJoules:
    """Power integrated by the trapezium rule over samples taken every 50 ms in the background.

    `power_w` tells it now; it raises ActuationError or MeasurementError.
    """

    def __init__(self, power_w: Callable[[], float], clock: Clock, every: Every) -> None:
        self._power_w = power_w
        self._clock = clock
        self._lock = threading.Lock()
        self._joules = 0.0
        self._last = (clock.monotonic(), power_w())
        self._wrong: TuningError | None = None
        self.close = every(SAMPLE_S, self._sample)

    def read(self) -> float:
        """Return joules so far. Raises what a sample raised."""
        self._sample()
        if self._wrong is not None:
            raise self._wrong
        return self._joules

    def _sample(self) -> None:
        with self._lock:
            try:
                now = (self._clock.monotonic(), self._power_w())
            except TuningError as error:
                self._wrong = error
                return
            seconds = now[0] - self._last[0]
            if seconds > LONGEST_GAP_S:
                self._wrong = MeasurementError(
                    f"the power was not sampled for {seconds:.3g} s",
                    hint="the host is too busy, or was suspended; measure again",
                )
            self._joules += seconds * (now[1] + self._last[1]) / 2.0
            self._last = now


def in_background(period_s: float, job: Callable[[], None]) -> Callable[[], None]:
    """Run a job every `period_s` in a thread until what is returned is called."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(period_s):
            job()

    thread = threading.Thread(target=work, name="power", daemon=True)
    thread.start()

    def end() -> None:
        ended.set()
        thread.join()

    return end
