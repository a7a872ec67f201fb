"""What the windows of most meters have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from tuner.core import Reading, Window


class OpenWindow(ABC):
    """An open window; once it is stopped, it returns its last reading."""

    _final: Reading | None = None

    def read(self) -> Reading:
        """Return the metrics so far. Raises MeasurementError."""
        return self._shown() if self._final is None else self._final

    def stop(self) -> Reading:
        """Close the window and return its metrics. Raises MeasurementError."""
        if self._final is None:
            self._final = self._ended()
        return self._final

    @abstractmethod
    def _shown(self) -> Reading:
        """Return the metrics so far. Raises MeasurementError."""

    def _ended(self) -> Reading:
        """Return the last reading, and release what the window holds. Raises MeasurementError."""
        return self._shown()


@dataclass(frozen=True)
class WindowMeter:
    """A meter that only opens windows: `start` does, and raises MeasurementError."""

    start: Callable[[], Window]
