"""Energy since a window began: checked for plausibility, or integrated from power without a counter.

Counters go back when a host resumes or a driver is reloaded (mlco2/codecarbon 1321,
joular/powerjoular 87), which no wrap explains. More energy than a device can draw in a time is
rejected.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from tuner.core import Clock, CounterAndPower, Fact, MeasurementError, TuningError

SAMPLE_S = 0.05
"""As often as PolyThrottle samples (appendix A)."""
LONGEST_GAP_S = 1.0
"""The draw between samples further apart is unknown."""
SLACK_S = 1.0
"""A counter may step this late: its growth was drawn in the time since its last reading, and this."""

Every = Callable[[float, Callable[[], None]], Callable[[], None]]
"""Calls a function every `seconds` until the returned function is called."""


class Joules(Protocol):
    """Energy since it was opened."""

    def read(self) -> float:
        """Return joules so far. Raises MeasurementError, ActuationError."""
        ...

    def close(self) -> None:
        """Stop counting."""
        ...

    def facts(self) -> tuple[Fact, ...]:
        """Return the facts that the rules of `tuner.core.witnesses` compare with it."""
        ...


def drawn(joules: float, seconds: float, most_w: float, counter: object) -> float:
    """Return the joules counted in a time, if a device can have drawn them.

    Raises:
        MeasurementError: they are below 0, or above `most_w` times the seconds.
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

    `power_w` returns the present power in W; it raises ActuationError or MeasurementError. A sample
    above `most_w` is rejected, and so is a gap of more than `longest_gap_s` between two. `least_w`,
    `greatest_w` and `gap_s` are the range of the samples and the longest gap.
    """

    def __init__(
        self,
        power_w: Callable[[], float],
        clock: Clock,
        every: Every,
        most_w: float,
        longest_gap_s: float = LONGEST_GAP_S,
    ) -> None:
        self._power_w = power_w
        self._most_w = most_w
        self._clock = clock
        self._lock = threading.Lock()
        self._joules = self.gap_s = 0.0
        self._longest_gap_s = longest_gap_s
        self._last = (clock.monotonic(), self._believed())
        self.least_w = self.greatest_w = self._last[1]
        self._wrong: TuningError | None = None
        self.close = every(SAMPLE_S, self._sample)

    def read(self) -> float:
        """Return joules so far. Raises the error of a failed sample."""
        self._sample()
        if self._wrong is not None:
            raise self._wrong
        return self._joules

    def facts(self) -> tuple[Fact, ...]:
        """Return that its power has no second witness."""
        return (
            CounterAndPower(meter="the power", counted_j=self._joules, why="no energy counter"),
        )

    def _sample(self) -> None:
        """Integrate up to the present power; keep an error for `read`."""
        with self._lock:
            try:
                now = (self._clock.monotonic(), self._believed())
            except TuningError as error:
                self._wrong = error
                return
            seconds = now[0] - self._last[0]
            self.gap_s = max(self.gap_s, seconds)
            self.least_w, self.greatest_w = min(self.least_w, now[1]), max(self.greatest_w, now[1])
            if seconds > self._longest_gap_s:
                self._wrong = MeasurementError(
                    f"the power was not sampled for {seconds:.3g} s",
                    hint="the host is too busy, or was suspended; measure again",
                )
            self._joules += seconds * (now[1] + self._last[1]) / 2.0
            self._last = now

    def _believed(self) -> float:
        """Return the present power. Raises MeasurementError if a device cannot draw it."""
        power_w = self._power_w()
        if abs(power_w) <= self._most_w:
            return power_w
        raise MeasurementError(
            f"a power of {power_w:.6g} W was read, at most {self._most_w:g} W can be drawn",
            hint="the sensor is broken or uses another unit; run `jouletune doctor`",
        )


def in_background(period_s: float, job: Callable[[], None]) -> Callable[[], None]:
    """Run a job every `period_s` in a thread until the returned function is called."""
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
