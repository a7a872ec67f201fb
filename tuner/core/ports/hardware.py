"""Ports of drivers: an actuator and a meter for each part, and a clock if the driver simulates time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from tuner.core.knobs import Setting
from tuner.core.readings import Reading

__all__ = ["Actuator", "Clock", "Meter", "Now", "Window"]


Now = Callable[[], datetime]
"""Wall time in UTC, for display and for the tuner's own leases."""


class Clock(Protocol):
    """A monotonic clock in seconds that can sleep. Simulated devices provide their own."""

    def monotonic(self) -> float:
        """Return the seconds since some fixed moment; they never decrease."""

    def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed on this clock."""


class Actuator(Protocol):
    """Sets one part of a setting."""

    def read(self) -> Setting:
        """Return the setting in force, with every knob of the part.

        Raises:
            ActuationError: the setting cannot be read.
        """

    def apply(self, setting: Setting) -> None:
        """Put the setting in force, so that `read()` then agrees with it.

        Knobs that the setting does not name keep their values. Applying the setting in force again changes
        nothing.

        Raises:
            UnknownKnob, OutOfRange: the setting does not fit the knobs; nothing was changed.
            ActuationError: the setting could not be put in force; `read()` returns the actual one.
        """


class Window(Protocol):
    """An open measuring window."""

    def read(self) -> Reading:
        """Return the reading of the window so far."""

    def stop(self) -> Reading:
        """Close the window and return its reading; a second call returns the same reading.

        Raises:
            MeasurementError: the meter failed, or one of its counters decreased.
        """


class Meter(Protocol):
    """Measures one part, without the permissions that setting it requires."""

    def start(self) -> Window:
        """Open a window now.

        Raises:
            MeasurementError: the meter does not answer.
        """
