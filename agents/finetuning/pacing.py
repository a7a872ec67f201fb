"""When a fine-tuning job may run: by the latency that the inference beside it shows meanwhile.

No model of how the two disturb each other: whether a request waits for a step, shares the cores or loses a
cache, the tail of the window so far says so. A share of the time above the one that has kept the limit is
tried only while few enough windows were above it. A noisy host breaks the limit without fine-tuning, too:
windows in which it is stopped tell how often, and only what goes beyond that is held against it. Ours, and
its constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LEAST, RISE = 0.02, 0.1
"""The least share of the time that is tried, and by how much more than what kept the limit."""
CLOSE = 0.9
"""Within a window it is paused while the tail so far is above this part of the limit."""
ALLOWED = 0.04
"""The share of windows that may be above the limit because of fine-tuning; also the error of blaming it."""
PROVEN = 2
"""Windows within the limit that prove a share."""
STOPPED_TURN = 4
"""One of this many windows may be a stopped one. Its turn does not depend on the window before: noise comes
in bursts, and a stopped window right after one above the limit would overstate the noise."""


@dataclass(slots=True)
class FineTuningPacer:
    """Decides look by look, and window by window, whether fine-tuning runs.

    `share` is the share of the time that it may run, `proven` the largest that has kept the limit. There
    are as many stopped windows as windows above the limit with fine-tuning.
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

    def look(self, tail: float | None) -> bool:
        """Return whether it may run until the next look, by the tail of the window so far, if any."""
        if self._stops or (tail is not None and tail > CLOSE * self.limit):
            return False
        self._owed = min(self._owed + self.share, 1.0)
        if self._owed < 1.0:
            return False
        self._owed -= 1.0
        return True

    def window(self, tail: float | None, *, ran: bool) -> None:
        """Take in the tail of a whole window, and whether fine-tuning ran in it."""
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

    def _judge(self, above: bool) -> None:
        """Lower the share once windows above the limit are too many for the host's noise alone.

        Page's cumulative sum test of the background rate b against (1 + b) / 2, as odds. Without noise
        the first window above the limit is enough.
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
        """The share of windows above the limit without fine-tuning, as if one more had kept it."""
        return self._stopped_above / (self._stopped + 1)

    @property
    def _may_try(self) -> bool:
        caused = self._above - self.background * self._running
        return caused < ALLOWED * (self._running + self._stopped)
