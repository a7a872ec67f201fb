"""Detect a queue that is longer than usual at the baseline: a plan then holds its highest row.

A rate shows a burst after seconds, the queue immediately. The usual queue is learned while the baseline is
in force for another reason than a burst, so that an operator need not set a limit for each service.
"""

from __future__ import annotations

import math

SELDOM = 0.95
"""The usual queue is not exceeded for this share of the time. Our choice, like the values below."""
LEAST = 2
"""The least usual queue: a request waits for a moment before it is served."""
SERVED = 0.85
"""A queue is served once the number of requests in the service falls to this share of its maximum."""
BURST_S = 60.0
"""A queue that lasts more seconds at the baseline is usual there."""
LEARNT_S = 600.0
"""Before this many seconds of readings at the baseline the usual queue is `LEAST`."""
FORGET_S = 86_400.0
"""Time constant in s of the weights of past readings."""


class WaitingQueue:
    """Track the requests that wait; times in seconds. `long` is whether they are unusually many."""

    def __init__(self) -> None:
        self.long = False
        self._at = self._began = -math.inf
        self._most = 0.0
        self._lasted: dict[int, float] = {}

    def see(self, now: float, waiting: float, inside: float, *, baseline: bool) -> None:
        """Record the requests that wait and those in the service; `baseline`: whether it is in force."""
        seconds, self._at = min(1.0, max(0.0, now - self._at)), now
        if baseline and not (self.long and now - self._began < BURST_S):
            self._learn(math.ceil(waiting), seconds)
        if waiting > self.usual:
            self._began = self._began if self.long else now
            self.long, self._most = True, max(self._most, inside)
        elif inside <= SERVED * self._most or now - self._began >= BURST_S:
            self.long, self._most = False, 0.0

    @property
    def usual(self) -> int:
        """The usual number of waiting requests; more are a queue."""
        total, left = math.fsum(self._lasted.values()), 0.0
        if total < LEARNT_S:
            return LEAST
        for count in sorted(self._lasted, reverse=True):
            left += self._lasted[count]
            if left > (1.0 - SELDOM) * total:
                return max(LEAST, count)
        return LEAST

    def _learn(self, waiting: int, seconds: float) -> None:
        """Add `seconds` with this many waiting requests; older seconds decay."""
        keep = math.exp(-seconds / FORGET_S)
        self._lasted = {count: lasted * keep for count, lasted in self._lasted.items()}
        self._lasted[waiting] = self._lasted.get(waiting, 0.0) + seconds
