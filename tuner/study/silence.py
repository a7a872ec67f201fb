"""Whether agents are still there, whatever the wall clock does meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from tuner.core import Lease, TrialCare

AWAY_S = 60.0
"""After so long without a look at all trials, due every 10 s, it was the tuner that did not listen."""


class Silence:
    """How long leases and trials have stayed as they are stored, on a monotonic clock in seconds.

    What is stored bears wall time, which may step, and may have been instructed to another tuner on the
    same database: only that it changes counts. What is seen for the first time has just changed.
    """

    def __init__(self, monotonic: Callable[[], float], lease_s: float, abandon_s: float) -> None:
        self._monotonic = monotonic
        self._lease_s, self._abandon_s = lease_s, abandon_s
        self._looked_at = monotonic()
        self._seen: dict[Hashable, tuple[object, float]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Surround a look at all trials; what fails was none.

        Who did not look for long (suspended, without its database) counts everything again.
        """
        if self._monotonic() - self._looked_at > AWAY_S:
            with self._lock:
                self._seen.clear()
        yield
        self._looked_at = self._monotonic()

    def in_time(self, lease: Lease) -> bool:
        """Return whether a lease has not run out."""
        return self._seconds(lease.device, (lease.token, lease.expires_at)) < self._lease_s

    def abandoned(self, care: TrialCare) -> bool:
        """Return whether a trial had no contact for long, under any lease on its devices."""
        own = care.study, care.trial
        return self._seconds(own, care) > self._lease_s + self._abandon_s

    def _seconds(self, of: Hashable, stored: object) -> float:
        now = self._monotonic()
        with self._lock:
            previous, since = self._seen.get(of, (None, now))
            if previous != stored:
                self._seen[of] = stored, now
                return 0.0
            return now - since
