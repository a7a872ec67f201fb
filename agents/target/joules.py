"""Energy since a window began: a counter's, checked for plausibility; without one, integrated power.

Counters go back when a host resumes or a driver is reloaded (mlco2/codecarbon 1321,
joular/powerjoular 87), which no wrap explains. More energy than a device can draw in a time is
rejected.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tuner.core import Clock, CounterAndPower, Fact, MeasurementError, TuningError

SAMPLE_S = 0.05
"""As often as PolyThrottle samples (appendix A)."""
LONGEST_GAP_S = 1.0
"""The draw between samples further apart is unknown."""
SLACK_S = 1.0
"""A counter may step this late: its growth covers the time since the last reading and this time."""

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


@dataclass(frozen=True, slots=True)
class EnergySource:
    """The source of a device's energy, for messages, and how to open it; `why_not` if there is none."""

    open: Callable[[], Joules] | None
    source: str = ""
    why_not: str = ""


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


def unread(meter: object, seconds: float, longest_s: float) -> None:
    """Raise MeasurementError if a meter was not read for longer than it may be."""
    if seconds > longest_s:
        raise MeasurementError(
            f"{meter} was not read for {seconds:.3g} s, at most {longest_s:.3g} s",
            hint="the host is too busy, or was suspended; measure again",
        )


class CountedJoules:
    """Energy of one counter, which starts again at 0 after `span` steps of `step_j` joules.

    `count` reads it; a step in a time is at most what `most_w` draws. Unread for `patience_s` it may
    have wrapped unseen: then there is no figure.
    """

    def __init__(
        self,
        count: Callable[[], int],
        clock: Clock,
        *,
        step_j: float,
        span: int,
        most_w: float,
        patience_s: float,
        meter: str,
    ) -> None:
        self._count, self._clock, self._step_j, self._span = count, clock, step_j, span
        self._most_w, self._patience_s, self._meter = most_w, patience_s, meter
        self._joules = self._still_s = 0.0
        self._wrong: MeasurementError | None = None
        self._last, self._last_s = count(), clock.monotonic()
        self._moved_s = self._last_s

    def read(self) -> float:
        """Return joules so far. Raises MeasurementError, then at every later call, too."""
        try:
            if self._wrong is None:
                self._add()
        except MeasurementError as error:
            self._wrong = error
        if self._wrong is not None:
            raise self._wrong
        return self._joules

    def _add(self) -> None:
        """Add the energy since the last reading. Raises MeasurementError."""
        now, now_s = self._count(), self._clock.monotonic()
        seconds = now_s - self._last_s
        unread(self._meter, seconds, self._patience_s)
        counted = (now - self._last) % self._span
        back = counted > self._span // 2
        step_j = (counted - self._span * back) * self._step_j
        self._joules += drawn(step_j, seconds, self._most_w, self._meter)
        self._moved_s = now_s if counted else self._moved_s
        self._still_s = max(self._still_s, now_s - self._moved_s)
        self._last, self._last_s = now, now_s

    def close(self) -> None:
        """Do nothing: there is no background work."""

    def facts(self) -> tuple[Fact, ...]:
        """Return the longest time that it stood still."""
        return (
            CounterAndPower(
                meter=self._meter,
                counted_j=self._joules,
                still_s=self._still_s,
                why="no power is beside it",
            ),
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
                seconds = now[0] - self._last[0]
                unread("the power", seconds, self._longest_gap_s)
            except TuningError as error:
                self._wrong = self._wrong or error  # what follows is its consequence
                return
            self.gap_s = max(self.gap_s, seconds)
            self.least_w, self.greatest_w = min(self.least_w, now[1]), max(self.greatest_w, now[1])
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
