"""Real time, for tests with real processes."""

from __future__ import annotations

import time


class Wall:
    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
