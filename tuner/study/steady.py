"""A clock that a change of the wall clock does not move."""

from __future__ import annotations

import time
from collections.abc import Callable

from tuner.core import Now


def boot_s() -> float:
    """Return the seconds since this machine started, also those in which it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """Seconds since 1970 by the wall clock of this start, counted on the monotonic clock since then."""

    def __init__(self, now: Now, monotonic: Callable[[], float]) -> None:
        self._now, self._monotonic = now, monotonic
        self._began_s = now().timestamp() - monotonic()
        self._lead_s = 0.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self._began_s + self._monotonic()

    def lead_s(self) -> float:
        """Return the seconds by which the wall clock is ahead; work due at an hour is due by that clock."""
        return self._now().timestamp() - self()

    def stepped_s(self) -> float:
        """Return the seconds by which the wall clock was set since the last call."""
        before, self._lead_s = self._lead_s, self.lead_s()
        return self._lead_s - before
