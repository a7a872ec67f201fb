"""When a fine-tuning job may run: by the latency that the inference beside it shows meanwhile.

No model of how the two disturb each other: whether a request waits for a step, shares the cores or loses a
cache, the tail of the window so far says so. A share of the time above the one that has kept the limit is
tried only while few enough windows were above it. Ours, and its constants.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST, RISE = 0.02, 0.1
"""The least share of the time that is tried, and by how much more than what kept the limit."""
CLOSE = 0.9
"""Within a window it is paused while the tail so far is above this part of the limit."""
ALLOWED = 0.04
"""The share of windows that may be above the limit with fine-tuning in them."""
PROVEN = 2
"""Windows within the limit that prove a share."""


@dataclass(slots=True)
class FineTuningPacer:
    """Decides look by look, and window by window, whether fine-tuning runs.

    `share` is the share of the time that it may run, `proven` the largest that has kept the limit.
    """

    limit: float
    share: float = LEAST
    proven: float = 0.0
    _owed: float = 0.0
    _within: int = 0
    _windows: int = 0
    _above: int = 0

    def look(self, tail: float | None) -> bool:
        """Return whether it may run until the next look, by the tail of the window so far, if any."""
        if tail is not None and tail > CLOSE * self.limit:
            return False
        self._owed = min(self._owed + self.share, 1.0)
        if self._owed < 1.0:
            return False
        self._owed -= 1.0
        return True

    def window(self, tail: float | None, *, ran: bool) -> None:
        """Take in the tail of a whole window, and whether fine-tuning ran in it."""
        self._windows += 1
        if ran and tail is not None and tail > self.limit:
            self._above += 1
            self._within = 0
            if self.share <= self.proven:
                self.proven = self.proven / 2.0 if self.proven > LEAST else 0.0
            self.share = self.proven
        elif ran:
            self._within += 1
            if self._within >= PROVEN:
                self.proven = max(self.proven, self.share)
        if self._may_try and (self._within >= PROVEN or not self.share):
            self.share = min(1.0, max(LEAST, self.proven + min(RISE, max(self.proven, LEAST))))
            self._within = 0

    @property
    def _may_try(self) -> bool:
        return self._above < ALLOWED * self._windows or not self._above
