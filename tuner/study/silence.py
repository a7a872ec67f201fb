"""Detects lost agents independently of the wall clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from tuner.core import Lease, TrialCare

AWAY_S = 60.0
"""After this time without a check of all trials, due every 10 s, the tuner itself was not listening."""


class Silence:
    """Time since leases and trials last changed in the store, on a monotonic clock in seconds.

    Stored times are wall time, which may step, and may come from another tuner on the same
    database: only their change counts. A value seen for the first time counts as just changed.
    """

    def __init__(self, monotonic: Callable[[], float], lease_s: float, abandon_s: float) -> None:
        self._monotonic = monotonic
        self._lease_s, self._abandon_s = lease_s, abandon_s
        self._looked_at = monotonic()
        self._seen: dict[Hashable, tuple[object, float]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Wrap a check of all trials; a failed one does not count.

        After a long pause (suspended, without its database) all times start again.
        """
        if self._monotonic() - self._looked_at > AWAY_S:
            with self._lock:
                self._seen.clear()
        yield
        self._looked_at = self._monotonic()

    def in_time(self, lease: Lease) -> bool:
        """Return whether a lease is still valid."""
        return self._seconds(lease.device, (lease.token, lease.expires_at)) < self._lease_s

    def abandoned(self, care: TrialCare) -> bool:
        """Return whether a trial had no contact for long, under any lease on its devices."""
        own = care.study, care.trial
        return self._seconds(own, care) > self._lease_s + self._abandon_s

    def _seconds(self, of: Hashable, stored: object) -> float:
        """Return the seconds since the stored value last changed."""
        now = self._monotonic()
        with self._lock:
            previous, since = self._seen.get(of, (None, now))
            if previous != stored:
                self._seen[of] = stored, now
                return 0.0
            return now - since
