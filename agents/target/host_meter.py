"""Meter of a device that is the host itself: a CPU, or a board with GPU and CPU on one chip."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from agents.host.machine import busy_seconds, required_text
from agents.load.window import OpenWindow
from agents.target.joules import Joules
from tuner.core import ActuationError, Clock, MeasurementError, Reading, reraised

T = TypeVar("T")

MOST_ASTRAY = 0.5
"""Share of readings that may find a clock above its ceiling before the window is void."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A ceiling that we set on a clock. `runs` is the file that reports the clock.

    `ceiling` is the highest allowed clock, `most` the highest accepted reading: the ceiling with the
    tolerance of the measurement. Both are in the file's unit.
    """

    runs: Path
    ceiling: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMeter:
    """Open windows over the host's busy time, its energy, its throttling, and its clocks.

    `joules` opens the energy counter; None if the host has no counter. `watch` starts to watch for
    throttling; the function that it returns reports whether there was any since its last call.
    `ceilings` returns the ceilings that we have set now; a clock without one is not checked.
    """

    stat: Path
    joules: Callable[[], Joules] | None
    watch: Callable[[], Callable[[], bool]]
    ceilings: Callable[[], Iterable[Ceiling]]
    clock: Clock

    def start(self) -> HostWindow:
        """Open a window. Raises MeasurementError if something cannot be read."""
        return HostWindow(self)


class HostWindow(OpenWindow):
    """One window. Read it at least once a minute: an energy counter may wrap within minutes."""

    def __init__(self, meter: HostMeter) -> None:
        self._meter = meter
        self._busy_s = busy_seconds(required_text(meter.stat))
        self._throttled = meter.watch()
        self._joules = _measuring(meter.joules) if meter.joules else None
        self._last_s = meter.clock.monotonic()
        self._throttled_s = 0.0
        self._looks = 0
        self._astray: list[str] = []

    def _ended(self) -> Reading:
        """Return the last totals. Raises MeasurementError, too, if clocks exceeded their ceilings."""
        try:
            shown = self._shown()
        finally:
            if self._joules is not None:
                self._joules.close()
        if len(self._astray) > MOST_ASTRAY * self._looks:
            raise MeasurementError(
                self._astray[-1],
                hint="the hardware ignores it; run `jouletune "
                "doctor` for other programs that set clocks",
            )
        return shown

    def _shown(self) -> Reading:
        """Return the busy CPU seconds of the whole host and, where metered, the energy so far.

        The clocks are compared with their ceilings. Raises MeasurementError if something cannot be read.
        """
        busy = max(0.0, busy_seconds(required_text(self._meter.stat)) - self._busy_s)
        now = self._meter.clock.monotonic()
        self._throttled_s += now - self._last_s if self._throttled() else 0.0
        self._last_s = now
        totals = {"busy_s": busy, "throttled_thermal_s": self._throttled_s}
        if self._joules is not None:
            totals["energy_j"] = _measuring(self._joules.read)
        self._look()
        return Reading(totals, facts=self._joules.facts() if self._joules else ())

    def _look(self) -> None:
        """Note a clock that exceeds its ceiling."""
        self._looks += 1
        for clock in self._meter.ceilings():
            try:
                shown = float(clock.runs.read_text())
            except (OSError, ValueError):  # a CPU that is off has no clock
                continue
            if shown > clock.most:
                self._astray.append(
                    f"{clock.runs} shows {shown:g}, above the ceiling of {clock.ceiling:g}"
                )
                return


def _measuring(ask: Callable[[], T]) -> T:
    """Return a device's answer; turn a missing one into a MeasurementError."""
    with reraised(MeasurementError, ActuationError):
        return ask()
