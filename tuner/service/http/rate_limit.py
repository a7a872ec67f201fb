"""How much one caller may ask: a token bucket each (https://www.rfc-editor.org/rfc/rfc2697)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MOST_CALLERS = 10_000
"""How many callers are remembered; the one idle for longest is forgotten first."""


@dataclass(slots=True)
class Bucket:
    """What a caller may still ask, and as of when."""

    left: float
    at: float


class RateLimit:
    """Lets every caller ask `per_s` a second on average, and `burst` at once. Safe from many threads."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float]) -> None:
        self._per_s, self._burst, self._clock = per_s, burst, clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, caller: str, amount: float = 1.0) -> float:
        """Count one request or more; return 0, or after how many seconds it may come again."""
        with self._lock:
            bucket = self._filled(caller)
            if bucket.left < amount:
                return (amount - bucket.left) / self._per_s
            bucket.left -= amount
            return 0.0

    def _filled(self, caller: str) -> Bucket:
        now = self._clock()
        bucket = self._buckets.pop(caller, None) or Bucket(self._burst, now)
        bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._per_s)
        bucket.at = now
        self._buckets[caller] = bucket
        if len(self._buckets) > MOST_CALLERS:
            self._buckets.popitem(last=False)
        return bucket
