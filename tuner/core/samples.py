"""The raw values of a window, bounded: a stranger computes its figures again from them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuner.core.units import Count, Finite, Span

__all__ = ["ABSENT", "Latencies", "MOST_LATENCIES", "MOST_VALUES", "WindowSamples"]

MOST_LATENCIES = 4_096
"""More latencies become a histogram."""
BUCKETS = 255
MOST_VALUES = 6_144
"""The most numbers of a window. As JSON they need less than half of a request, compressed 64 kB at most."""
ABSENT = -1.0
"""A total that a reading lacks; every total is at least 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """The latencies of a window in ms: each one in `each_ms`, or a histogram.

    `edges_ms` are the upper edges of the buckets but the last, which is open; `counts` are those of all
    buckets. `binned` is set if we made the histogram of single values, after computing the quantiles.
    `together` is as in `quantile_estimate`.
    """

    each_ms: tuple[Finite, ...] = ()
    together: Finite = 1.0
    edges_ms: tuple[Finite, ...] = ()
    counts: tuple[Count, ...] = ()
    binned: bool = False

    @classmethod
    def of(cls, each_ms: Sequence[float], together: float = 1.0) -> Latencies:
        """Return single latencies, as a histogram of equal ratios if there are more than 4,096."""
        if len(each_ms) <= MOST_LATENCIES:
            return cls(each_ms=tuple(each_ms), together=together)
        least, most = max(min(each_ms), 1e-6), max(max(each_ms), 2e-6)
        ratio = math.log(most / least) / BUCKETS
        edges = tuple(dict.fromkeys(least * math.exp(k * ratio) for k in range(BUCKETS)))
        counts = [0] * (len(edges) + 1)
        for one in each_ms:
            counts[bisect_left(edges, one)] += 1
        return cls(together=together, edges_ms=edges, counts=tuple(counts), binned=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSamples:
    """The readings of one window on one device.

    `clock_s` and `wall_s` are the start and the end on the monotonic clock, and in seconds since 1970.
    `seconds` is the time of each reading since the start, `totals` has each total at each reading, `ABSENT`
    where a reading lacks it. `ratios` names the metrics that are a ratio of two totals over the batches
    between readings: the totals, and their factor. Meters finished the other metrics. `runs` is whether a
    reading ends with a run of a program, at any time.
    """

    clock_s: tuple[Finite, Finite]
    wall_s: tuple[Finite, Finite]
    seconds: tuple[Span, ...]
    totals: Mapping[str, tuple[Finite, ...]]
    runs: bool = False
    ratios: Mapping[str, tuple[str, str, Finite]] = field(default_factory=dict)
    latencies: Latencies | None = None

    def bounded(self) -> WindowSamples:
        """Return the samples; of more than `MOST_VALUES` the last reading, if need be without latencies.

        The metrics of a single reading count as finished by their meter.
        """
        if self._values() <= MOST_VALUES:
            return self
        totals = {name: values[-1:] for name, values in self.totals.items()}
        last = replace(self, seconds=self.seconds[-1:], totals=totals, ratios={})
        return last if last._values() <= MOST_VALUES else replace(last, latencies=None)

    def _values(self) -> int:
        """Return the count of numbers."""
        own = self.latencies or Latencies()
        return (
            len(self.seconds) * (1 + len(self.totals))
            + len(own.each_ms)
            + len(own.edges_ms)
            + len(own.counts)
        )
