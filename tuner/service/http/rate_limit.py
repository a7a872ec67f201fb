"""A rate limit per caller: a token bucket each (https://www.rfc-editor.org/rfc/rfc2697)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MOST_CALLERS = 10_000
"""The most callers with a bucket; the caller idle for longest is forgotten first."""


@dataclass(slots=True)
class Bucket:
    """A caller's remaining amount `left`, as of the time `at`."""

    left: float
    at: float


class RateLimit:
    """Lets every caller make `per_s` requests a second on average, and `burst` at once.

    Safe from many threads.
    """

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float]) -> None:
        self._per_s, self._burst, self._clock = per_s, burst, clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, caller: str, amount: float = 1.0) -> float:
        """Take an amount from a caller's bucket; return 0, or after how many seconds to retry."""
        with self._lock:
            bucket = self._filled(caller)
            if bucket.left < amount:
                return (amount - bucket.left) / self._per_s
            bucket.left -= amount
            return 0.0

    def _filled(self, caller: str) -> Bucket:
        """Return the caller's bucket, refilled up to now."""
        now = self._clock()
        bucket = self._buckets.pop(caller, None) or Bucket(self._burst, now)
        bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._per_s)
        bucket.at = now
        self._buckets[caller] = bucket
        if len(self._buckets) > MOST_CALLERS:
            self._buckets.popitem(last=False)
        return bucket
