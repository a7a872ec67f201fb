"""Whether more requests wait than is usual at the baseline: a plan then holds its highest row.

A rate tells of a burst after seconds, the queue at once. The usual queue is learnt while the baseline is
in force and no burst keeps it there, so that no limit has to be set for a service.
"""

from __future__ import annotations

import math

SELDOM = 0.95
"""The number that waits at the baseline for this share of the time is usual. Ours, as what follows."""
LEAST = 2
"""So many are no queue anywhere: a request waits for a moment before it is served."""
SERVED = 0.85
"""A queue is served once this share of the most requests since its begin is left in the service."""
BURST_S = 60.0
"""A queue that lasts longer at the baseline is usual there."""
LEARNT_S = 600.0
"""Until the baseline was seen for so long, `LEAST` is usual."""
FORGET_S = 86_400.0
"""Time constant of what is learnt."""


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
        """The most that wait without a queue."""
        total, left = math.fsum(self._lasted.values()), 0.0
        if total < LEARNT_S:
            return LEAST
        for count in sorted(self._lasted, reverse=True):
            left += self._lasted[count]
            if left > (1.0 - SELDOM) * total:
                return max(LEAST, count)
        return LEAST

    def _learn(self, waiting: int, seconds: float) -> None:
        keep = math.exp(-seconds / FORGET_S)
        self._lasted = {count: lasted * keep for count, lasted in self._lasted.items()}
        self._lasted[waiting] = self._lasted.get(waiting, 0.0) + seconds
