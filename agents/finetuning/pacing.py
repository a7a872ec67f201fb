"""Decides when a fine-tuning job may run, by the latency of the inference beside it.

There is no model of their interference: whether a request waits for a step, shares the cores or
loses a cache, the tail latency of the window so far shows it. A share of the time above the proven
one is tried only while few enough windows were above the limit. A noisy host also breaks the limit
without fine-tuning: windows with the job stopped measure how often, and only the excess is
attributed to the job. The method and its constants are our own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LEAST, RISE = 0.02, 0.1
"""The least share of the time that is tried, and the step above the proven share."""
CLOSE = 0.96
"""Within a window the job is paused while the tail so far is above this part of the limit."""
LONGEST, KEPT = 0.5, 0.9
"""The longest pause at the end of a window, and the part of it that is kept for the next window; both as
`CLOSE` chosen on made-up pairs and a queue (tests.bench.admission.made_up), not on the real pair."""
ALLOWED = 0.03
"""Share of windows that fine-tuning may push above the limit; also the error rate of attributing it."""
PROVEN = 2
"""Windows within the limit that prove a share."""
STOPPED_TURN = 4
"""One of this many windows may run with the job stopped.

Its turn does not depend on the window before: noise comes in bursts, and a stopped window right
after one above the limit would overstate the noise.
"""


@dataclass(slots=True)
class FineTuningPacer:
    """Decide at each look, and after each window, whether fine-tuning runs.

    `share` is the share of the time that the job may run, `proven` the largest share that has kept
    the limit. There are as many windows with the job stopped as windows above the limit with it
    running.
    """

    limit: float
    share: float = LEAST
    proven: float = 0.0
    _owed: float = 0.0
    _within: int = 0
    _running: int = 0
    _above: int = 0
    _stopped: int = 0
    _stopped_above: int = 0
    _stops: bool = False
    _odds: float = 1.0
    _high_since: float = math.inf
    _recovery: float = 0.0

    def look(self, tail: float | None, elapsed: float) -> bool:
        """Return whether the job may run for a turn; `tail` is the tail latency so far, if any.

        `elapsed` is the part of the window so far. Later requests bring a tail back below the limit, so
        that the job does not run when less of the window is left than that last took.
        """
        if self._stops:
            return False
        if tail is not None and tail > CLOSE * self.limit:
            self._high_since = min(self._high_since, elapsed)
            return False
        self._recovered(elapsed)
        if elapsed > 1.0 - self._recovery:
            return False
        self._owed = min(self._owed + self.share, 1.0)
        if self._owed < 1.0:
            return False
        self._owed -= 1.0
        return True

    def window(self, tail: float | None, *, ran: bool) -> None:
        """Record the tail latency of a whole window, and whether fine-tuning ran in it."""
        self._recovered(1.0)
        self._recovery *= KEPT if ran else 1.0
        above = tail is not None and tail > self.limit
        if self._stops or not self.share:
            self._stopped += 1
            self._stopped_above += above
        else:
            self._running += 1
            self._above += above
            if ran:
                self._judge(above)
        if self._may_try and (self._within >= PROVEN or not self.share):
            self.share = min(1.0, max(LEAST, self.proven + min(RISE, max(self.proven, LEAST))))
            self._within, self._odds = 0, 1.0
        windows = self._running + self._stopped
        self._stops = self._above > self._stopped and windows % STOPPED_TURN == 0

    def _recovered(self, elapsed: float) -> None:
        if self._high_since < elapsed:
            self._recovery = max(self._recovery, min(LONGEST, elapsed - self._high_since))
        self._high_since = math.inf

    def _judge(self, above: bool) -> None:
        """Lower the share once there are more windows above the limit than noise explains.

        Page's cumulative sum test of the background rate b against (1 + b) / 2, as odds. Without
        noise the first window above the limit is enough.
        """
        noise = self.background
        if above:
            self._odds *= (1.0 + noise) / (2.0 * noise) if noise else math.inf
        else:
            self._odds = max(1.0, self._odds / 2.0)
            self._within += 1
        if self._odds >= 1.0 / ALLOWED:
            if self.share <= self.proven:
                self.proven = self.proven / 2.0 if self.proven > LEAST else 0.0
            self.share, self._within, self._odds = self.proven, 0, 1.0
        elif self._within >= PROVEN:
            self.proven = max(self.proven, self.share)

    @property
    def background(self) -> float:
        """Share of windows above the limit without fine-tuning, counting one more window as within it."""
        return self._stopped_above / (self._stopped + 1)

    @property
    def _may_try(self) -> bool:
        caused = self._above - self.background * self._running
        return caused < ALLOWED * (self._running + self._stopped)
