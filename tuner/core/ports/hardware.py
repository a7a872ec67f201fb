"""What a driver brings: an actuator and a meter for each part, and a clock where time is simulated."""

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
    """Monotonic time in seconds and waiting on it. Simulated devices bring their own."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment; never goes back."""

    def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed on this clock."""


class Actuator(Protocol):
    """Sets one part of a setting."""

    def read(self) -> Setting:
        """Return what is in force now, every knob of the part.

        Raises:
            ActuationError: it is unknown.
        """

    def apply(self, setting: Setting) -> None:
        """Put the setting in force; afterwards `read()` agrees with it.

        Knobs the setting does not name stay as they are. Applying what is in force changes nothing.

        Raises:
            UnknownKnob, OutOfRange: the setting does not fit; nothing was changed.
            ActuationError: it could not be put in force; what `read()` says is true.
        """


class Window(Protocol):
    """An open measuring window."""

    def read(self) -> Reading:
        """Return what the window shows so far."""

    def stop(self) -> Reading:
        """Close the window and return what it showed. Closing twice returns the same.

        Raises:
            MeasurementError: the meter failed, or jumped backwards.
        """


class Meter(Protocol):
    """Measures one part. Never needs the rights that setting it needs."""

    def start(self) -> Window:
        """Open a window now.

        Raises:
            MeasurementError: the meter does not answer.
        """
