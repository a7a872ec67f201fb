"""The meter of a service that reports its own latency histogram, for requests of any sender."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from agents.load.exposition import Histogram
from agents.load.meter import Totals
from tuner.core import (
    Clock,
    CounterStep,
    Estimate,
    Metric,
    Reading,
    Scope,
    Window,
    demand,
    ratio_estimate,
)

QUANTILES = {"latency_p50_ms": 0.50, "latency_p99_ms": 0.99}
THROUGHPUT = Metric("throughput_per_s", scope=Scope.SERVICE)
ARRIVALS = Metric("arrival_rate_per_s", scope=Scope.SERVICE)


@dataclass(frozen=True, slots=True)
class Figures:
    """A service's totals since its start: latencies of good answers in ms, and failures."""

    good: Histogram
    failed: int


class PrometheusMeter:
    """Measures whatever requests arrive, by the service's own figures; sends none.

    `figures` reads them, and `report_s` is how far they lie back at most. `counting` begins to count
    further data of the service (`cpu_s`), for one window.
    """

    def __init__(
        self,
        figures: Callable[[], Figures],
        counting: Callable[[], Totals],
        clock: Clock,
        report_s: float,
    ) -> None:
        self._figures = figures
        self._counting = counting
        self._clock = clock
        self._report_s = report_s

    def start(self) -> Window:
        """Open a window. Raises MeasurementError."""
        return PrometheusWindow(self._figures, self._counting(), self._clock, self._report_s)


class PrometheusWindow:
    """A service's totals since the start of the window.

    Figures may be passed on in lumps, `report_s` apart: the rates are taken between readings at
    which something had arrived, not from the window's own beginning.
    """

    def __init__(
        self, figures: Callable[[], Figures], totals: Totals, clock: Clock, report_s: float
    ) -> None:
        self._figures = figures
        self._totals = totals
        self._clock = clock
        self._report_s = report_s
        self._before = figures()
        self._began = clock.monotonic()
        self._arrivals: list[tuple[float, float, float]] = []
        self._final: Reading | None = None

    def read(self) -> Reading:
        """Return what the window shows so far. Raises MeasurementError."""
        return self._look() if self._final is None else self._final

    def stop(self) -> Reading:
        """Close the window and return what it showed. Raises MeasurementError."""
        self._final = self.read()
        return self._final

    def _look(self) -> Reading:
        now, now_s = self._figures(), self._clock.monotonic()
        good = now.good.since(self._before.good)
        failed = now.failed - self._before.failed
        demand(CounterStep("the service's failures", self._before.failed, now.failed))
        last = self._arrivals[-1][1:] if self._arrivals else (0.0, 0.0)
        if (good.n, good.n + failed) != last:
            self._arrivals.append((now_s, float(good.n), float(good.n + failed)))
        totals = {"items": float(good.n), "failed": float(failed), **self._totals()}
        tails = {name: good.quantile(q) for name, q in QUANTILES.items() if good.n}
        return Reading(totals, tails | self._rates(now_s))

    def _rates(self, now_s: float) -> dict[str, Estimate]:
        """Return how many were answered and came per second; too few to tell: nothing."""
        if not self._arrivals or now_s <= self._began:
            return {}
        rates = {}
        for metric, column in ((THROUGHPUT, 1), (ARRIVALS, 2)):
            steps = [(b[column] - a[column], b[0] - a[0]) for a, b in pairwise(self._arrivals)]
            rate = ratio_estimate(steps, 1.0, metric)
            rates[metric.name] = rate or self._rate(self._arrivals[-1][column], now_s - self._began)
        return rates

    def _rate(self, count: float, seconds: float) -> Estimate:
        """Return a rate over a whole window, as uncertain as what may be held back at its ends."""
        mean = count / seconds
        doubt = mean * min(1.0, self._report_s / seconds)
        return Estimate(mean, doubt / 2.0, 1, mean - doubt, mean + doubt, scope=Scope.SERVICE)
