"""Checks the power of a device that only clock ceilings cap, because a clock does not limit its watts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from agents.target.measured import lists
from agents.target.target import Target
from tuner.core import ENERGY, CapStep, Clock, MeasurementError, TuningError, Window

LOOK_S = 2.0
"""The time over which power is averaged, in seconds: sensors show a change within one or two."""


class PowerGuard:
    """Measures power continuously, independent of the windows of trials and holds; used by one thread."""

    def __init__(self, target: Target, clock: Clock) -> None:
        self._target, self._clock = target, clock
        self._at: tuple[float, Mapping[str, float]] | None = None
        self._windows: list[Window] = []
        self._from_s = self._from_j = 0.0

    def above_w(self, step: CapStep | None) -> float:
        """Return the mean power in watts if it exceeds the step's `cap_w`; else 0.

        A new step, or None, restarts the measurement.

        Raises:
            TuningError: power cannot be measured.
        """
        now_s = self._clock.monotonic()
        at = None if step is None else (step.cap_w, step.at_most)
        if at != self._at:
            self._at = at
            self._close()
            self._from_s = now_s + self._target.settle_s
        if step is None or now_s < self._from_s:
            return 0.0
        if not self._windows:
            self._open()
            return 0.0
        if now_s < self._from_s + LOOK_S:
            return 0.0
        try:
            energy_j = self._energy_j()
        except TuningError:
            self._close()
            raise
        watts = (energy_j - self._from_j) / (now_s - self._from_s)
        self._from_s, self._from_j = now_s, energy_j
        return watts if watts > step.cap_w else 0.0

    def _open(self) -> None:
        """Start a window on each energy meter. Raises MeasurementError without a meter, or TuningError."""
        target = self._target
        metered = [d for d in target.devices if lists(d, ENERGY) and not target.covers(d)]
        if not metered:
            raise MeasurementError(
                "no energy meter answers, so the watts under a clock ceiling are not watched",
                hint="`jouletune doctor` gives the reason; until then release the device",
            )
        try:
            for side in metered:
                self._windows.append(side.meter.start())
            self._from_j = self._energy_j()
        except TuningError:
            self._close()
            raise
        self._from_s = self._clock.monotonic()

    def _energy_j(self) -> float:
        """Return the energy since the windows began, in joules."""
        return sum(window.read().totals.get(ENERGY, 0.0) for window in self._windows)

    def _close(self) -> None:
        """End the windows; an error in one does not matter."""
        for window in self._windows:
            with suppress(TuningError):  # its result is not needed
                window.stop()
        self._windows = []
