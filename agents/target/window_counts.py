"""Totals over the windows of one target since its agent was started."""

from __future__ import annotations

import threading
from collections import defaultdict

from tuner.core import Measurement, Origin, Quantities, window_energy


class WindowCounts:
    """Count windows, and the joules that they measured; thread-safe.

    `cut_s` is the length in s of the last window if a broken limit cut it short, else 0. `spoilt`
    windows were measured, but do not count as evidence; `failed` ones have no result.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.measured = self.spoilt = self.failed = self.throttled = 0
        self.seconds = self.cut_s = 0.0
        self._joules: defaultdict[Origin, float] = defaultdict(float)

    @property
    def joules(self) -> dict[Origin, float]:
        """The joules so far, by their origin."""
        with self._lock:
            return dict(self._joules)

    def add(
        self, window: Measurement, declared: Quantities, *, spoilt: bool, cut: bool = False
    ) -> None:
        """Count a window."""
        shown = window_energy(window, declared)
        with self._lock:
            self.measured += 1
            self.spoilt += spoilt
            self.throttled += bool(window.throttled)
            self.seconds += window.seconds
            self.cut_s = window.seconds if cut else 0.0
            if shown is not None:
                joules, origin = shown
                self._joules[origin] += joules

    def fail(self) -> None:
        """Count a window that a meter did not finish."""
        with self._lock:
            self.failed += 1
