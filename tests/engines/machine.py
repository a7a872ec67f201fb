"""A simulated machine of two cores whose times a test sets."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.turns import TimedBatches
from tests.engines.packings import Shapes


def seconds(shapes: Shapes) -> float:
    """Return the seconds on a machine of two cores: threads help, but less than ideally."""
    slowest: float = max(0.004 + 0.01 * items / threads**0.6 for threads, items in shapes)
    return slowest * (1.05 if len(shapes) > 1 else 1.0)


class Machine:
    """Takes about the time of `seconds`; `foreign` has the foreign load of each window.

    Several instances together take `luck` times as long, window by window; then the usual time.
    """

    def __init__(self, foreign: Sequence[float] = (), luck: Sequence[float] = ()) -> None:
        self.asked: list[list[tuple[int, int]]] = []
        self._foreign = iter(foreign)
        self._luck = iter(luck)

    def window(self, shapes: Shapes) -> TimedBatches:
        self.asked.append(list(shapes))
        off = 1.0 + 0.002 * (len(self.asked) % 3 - 1)
        if len(shapes) > 1:
            off *= next(self._luck, 1.0)
        return TimedBatches(seconds(shapes) * off, 0.00001, next(self._foreign, 0.0))
