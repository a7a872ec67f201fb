"""Energy since a window began, what of it cannot be true, and power integrated where no counter is.

Counters go back when a host resumes or a driver is loaded again (mlco2/codecarbon 1321, joular/powerjoular
87), which no wrap explains: what a device cannot draw in a time was not drawn in it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from tuner.core import Clock, MeasurementError, TuningError

SAMPLE_S = 0.05
"""As often as PolyThrottle samples (appendix A)."""
LONGEST_GAP_S = 1.0
"""The draw between samples further apart is unknown."""
SLACK_S = 1.0
"""A counter may step so late: what it counted was drawn in the time since it was read, and this."""

Every = Callable[[float, Callable[[], None]], Callable[[], None]]
"""Calls something every `seconds` until the returned function is called."""


class Joules(Protocol):
    """Energy since it was opened."""

    def read(self) -> float:
        """Return joules so far. Raises MeasurementError, ActuationError."""
        ...

    def close(self) -> None:
        """Stop counting."""
        ...


def drawn(joules: float, seconds: float, most_w: float, counter: object) -> float:
    """Return the joules that a counter has counted in a time, where a device can have drawn them.

    Raises:
        MeasurementError: they are below 0, or more than `most_w` can be in that time.
    """
    if 0.0 <= joules <= most_w * (seconds + SLACK_S):
        return joules
    how = f"jumped back by {-joules:.6g} J" if joules < 0.0 else f"moved by {joules:.6g} J"
    raise MeasurementError(
        f"{counter} {how} in {seconds:.3g} s; the device draws at most {most_w:g} W",
        hint="it was reset by a suspend of the host or a reload of its driver; measure again",
    )


class IntegratedJoules:
    """Power integrated by the trapezium rule over samples taken every 50 ms in the background.

    `power_w` reports it now; it raises ActuationError or MeasurementError. More than `most_w` is no power.
    """

    def __init__(
        self, power_w: Callable[[], float], clock: Clock, every: Every, most_w: float
    ) -> None:
        self._power_w = power_w
        self._most_w = most_w
        self._clock = clock
        self._lock = threading.Lock()
        self._joules = 0.0
        self._last = (clock.monotonic(), self._believed())
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
                now = (self._clock.monotonic(), self._believed())
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

    def _believed(self) -> float:
        """Return the power now. Raises MeasurementError where a device cannot draw it."""
        power_w = self._power_w()
        if abs(power_w) <= self._most_w:
            return power_w
        raise MeasurementError(
            f"a power of {power_w:.6g} W was read, at most {self._most_w:g} W can be drawn",
            hint="the sensor is broken or uses another unit; run `jouletune doctor`",
        )


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
