"""Detect the end of a queue after a load has risen. Until then a change to a lower row makes it longer.

At the end of a spike the rate of arrivals is low again, while most of its requests still wait. By
Little's law the number of requests in a service is its rate × the time of a request. So the queue is
served once that number is at most the present rate × the time of a request before the rise.
"""

from __future__ import annotations

import math

USUAL_S = 60.0
"""Time constant in s of the usual rate and number of requests, like that of a plan's slowest level."""
NOW_S = 10.0
"""Time constant in s of the present rate."""
LEFT = 1.25
"""A queue up to this multiple of the usual number of requests counts as served: our choice."""
LONGEST_S = 900.0
"""A queue that lasts more seconds has another cause: our choice."""


class Backlog:
    """Track the requests in a service and their rate; times in seconds.

    Without a signal of the number of requests, a queue counts as served once the load has been low for as
    many seconds as it was high.
    """

    def __init__(self) -> None:
        self._at: float | None = None
        self._rate = self._usual_rate = self._usual_inside = self._inside = 0.0
        self._seen_s = 0.0
        self._risen_at: float | None = None
        self._high_at = self._before = self._request_s = 0.0

    def see(self, now: float, rate: float, inside: float | None) -> None:
        """Record the rate of arrivals since the last reading, and the requests in the service."""
        seconds = 0.0 if self._at is None else max(0.0, now - self._at)
        self._at, self._seen_s = now, self._seen_s + seconds
        self._inside = math.nan if inside is None else inside
        if seconds == 0.0:
            return
        usual = min(1.0, seconds / min(USUAL_S, self._seen_s))
        self._rate += min(1.0, seconds / min(NOW_S, self._seen_s)) * (rate - self._rate)
        self._usual_rate += usual * (rate - self._usual_rate)
        if inside is not None:
            self._usual_inside += usual * (inside - self._usual_inside)
        if self._usual_rate > LEFT * self._before:
            self._high_at = now

    def rise(self, now: float) -> None:
        """Note a change to a higher row; without `USUAL_S` seconds of readings it is ignored."""
        if self._risen_at is None and self._seen_s >= USUAL_S and self._usual_rate > 0.0:
            self._risen_at, self._high_at, self._before = now, now, self._usual_rate
            self._request_s = self._usual_inside / self._usual_rate

    def served(self, now: float) -> bool:
        """Return whether a lower row may be taken."""
        if self._risen_at is None or now - self._high_at >= LONGEST_S:
            self._risen_at = None
            return True
        if math.isnan(self._inside):
            done = now - self._high_at >= self._high_at - self._risen_at
        else:
            usual = self._rate * self._request_s
            done = self._inside <= LEFT * usual + math.sqrt(usual) + 1.0
        if done:
            self._risen_at = None
        return done
