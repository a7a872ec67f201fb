"""Oracles: one setting for all loads, one setting for each load, and one that knows the future.

Each is chosen on the requests on which it is judged: the table with the least energy that breaks the limits
as rarely as required. The per-load oracle knows the true load, not a measured one; the clairvoyant one uses
the tokens that are still to come.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from jouletune_bench.llm import Request, ServedRequest, ServesRequests
from tests.bench.load.governors import clocks
from tests.bench.load.servers import quantile
from tuner.core import Setting

BANDS = 5
"""The number of bands of a load, each with an equal part of the time. Our choice."""
AHEAD_S = 4.0
"""The clairvoyant oracle's horizon in s: longer than a change of the clock, shorter than a burst."""
DECODE_WEIGHT = 6.0
"""An output token counts as this many prompt tokens: about the ratio in a board's table at a batch of 16.
"""

Foresight = Callable[[Sequence[Request]], Callable[[float], float]]
"""From requests, a function that returns the true load at a time."""
Table = tuple[int, ...]
"""The index of a clock for each band of the load."""


def rate_now(requests: Sequence[Request]) -> Callable[[float], float]:
    """Return the arrivals per second in the five seconds around a time."""
    at = [r.arrival_s for r in requests]
    return lambda now: (bisect_right(at, now + 2.5) - bisect_left(at, now - 2.5)) / 5.0


def work_ahead(requests: Sequence[Request]) -> Callable[[float], float]:
    """Return the tokens per second from a second ago until `AHEAD_S` from now."""
    at = [r.arrival_s for r in requests]
    sums = [0.0, *accumulate(r.prompt_tokens + DECODE_WEIGHT * r.output_tokens for r in requests)]

    def told(now: float) -> float:
        low, high = bisect_left(at, now - 1.0), bisect_right(at, now + AHEAD_S)
        return (sums[high] - sums[low]) / (AHEAD_S + 1.0)

    return told


class ByLoad:
    """Sets the clock of a table for the foreseen load, in steps of half a second.

    It knows when the clock will change, and acts only then.
    """

    STEP_S = 0.5

    def __init__(
        self, load: Callable[[float], float], edges: Sequence[float], table: Table
    ) -> None:
        """Follow a load by a table of indices of clocks."""
        self._load, self._edges, self._table = load, edges, table

    def begin(self, server: ServesRequests) -> None:
        """Set the first clock."""
        self._clocks: list[Setting] = clocks(server)
        self._step, self._place = 0, self._place_at(0)
        self._ahead()
        server.apply(self._clocks[self._place])

    @property
    def tick_s(self) -> float:
        """The seconds until the next change, at most a minute."""
        return self.STEP_S * (self._next - self._step)

    def tick(self, server: ServesRequests, served: Sequence[ServedRequest]) -> None:
        """Set the clock for the present load."""
        self._step = round(server.monotonic() / self.STEP_S)
        if self._step < self._next:  # the run was cut short between two steps
            return
        place = self._place_at(self._step)
        self._ahead()
        if place != self._place:
            self._place = place
            server.apply(self._clocks[place])

    def _ahead(self) -> None:
        """Find the next change."""
        now = self._place_at(self._step)
        coming = range(self._step + 1, self._step + 121)
        self._next = next((k for k in coming if self._place_at(k) != now), coming[-1])

    def _place_at(self, step: int) -> int:
        return self._table[bisect_right(self._edges, self._load(self.STEP_S * step))]


def edges_of(load: Callable[[float], float], begin_s: float, end_s: float) -> list[float]:
    """Return the lower bounds of a load's bands, which have equal parts of the time."""
    seen = [load(begin_s + s) for s in range(int(end_s - begin_s))]
    found = sorted({quantile(seen, k / BANDS) for k in range(1, BANDS)})
    return [edge for edge in found if edge > min(seen)]


@dataclass(frozen=True, slots=True)
class Score:
    """The result of a table: joules, and the excess share of windows above a limit (0: kept)."""

    energy_j: float
    excess: float

    def better(self, other: Score) -> bool:
        """Return whether it is preferable: limits first, then energy."""
        if (self.excess > 0.0) or (other.excess > 0.0):
            return self.excess < other.excess
        return self.energy_j < other.energy_j


def descend(
    bands: int, start: int, places: int, score: Callable[[Table], Score]
) -> tuple[Table, Score]:
    """Return the best table found by changing one band at a time, starting with one clock for all bands."""
    table: Table = (start,) * bands
    best = score(table)
    step = max(1, places // 6)
    while step:
        moved = False
        for band in range(bands):
            for place in (table[band] - step, table[band] + step):
                if 0 <= place < places:
                    tried = (*table[:band], place, *table[band + 1 :])
                    scored = score(tried)
                    if scored.better(best):
                        table, best, moved = tried, scored, True
        if not moved or step > 1:
            step //= 2
    return table, best


def excess(ratios: Sequence[float], most_above: float, most_over: float) -> float:
    """Return the excess of the share of windows above 1, or of the largest window; 0 without an excess."""
    if not ratios:
        return math.inf
    above = sum(r > 1.0 for r in ratios) / len(ratios)
    return max(0.0, above - most_above) + max(0.0, max(ratios) - most_over)
