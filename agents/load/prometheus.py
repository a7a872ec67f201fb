"""The meter of a service that reports its own latency histogram, for requests of any sender."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from agents.load.exposition import Histogram
from agents.load.meter import Totals
from agents.load.window import OpenWindow
from tuner.core import (
    Clock,
    CounterStep,
    Estimate,
    Latencies,
    Metric,
    Reading,
    Scope,
    demand,
    ratio_estimate,
)

QUANTILES = {"latency_p50_ms": 0.50, "latency_p99_ms": 0.99}
THROUGHPUT = Metric("throughput_per_s", scope=Scope.SERVICE)
ARRIVALS = Metric("arrival_rate_per_s", scope=Scope.SERVICE)


@dataclass(frozen=True, slots=True)
class Figures:
    """A service's totals since its start: latencies of successful answers in ms, and failures."""

    good: Histogram
    failed: int


class PrometheusWindow(OpenWindow):
    """An open window over a service's totals, for the requests of any sender; it sends none.

    `figures` reads what the service reports; `counting` starts to count further totals (`cpu_s`).

    The service may update its metrics only every `report_s` seconds. Rates are therefore taken between
    readings at which the counts had changed, not from the start of the window.
    """

    def __init__(
        self,
        figures: Callable[[], Figures],
        counting: Callable[[], Totals],
        clock: Clock,
        report_s: float,
    ) -> None:
        self._figures = figures
        self._totals = counting()
        self._clock = clock
        self._report_s = report_s
        self._before = figures()
        self._began = clock.monotonic()
        self._arrivals: list[tuple[float, float, float]] = []

    def _shown(self) -> Reading:
        """Read the service's metrics and return the window's reading."""
        now, now_s = self._figures(), self._clock.monotonic()
        good = now.good.since(self._before.good)
        failed = now.failed - self._before.failed
        demand(CounterStep("the service's failures", self._before.failed, now.failed))
        last = self._arrivals[-1][1:] if self._arrivals else (0.0, 0.0)
        if (good.n, good.n + failed) != last:
            self._arrivals.append((now_s, float(good.n), float(good.n + failed)))
        totals = {"items": float(good.n), "failed": float(failed), **self._totals()}
        tails = {name: good.quantile(q) for name, q in QUANTILES.items() if good.n}
        edges, counts = good.edges[:-1], good.counts
        latencies = Latencies(edges_ms=edges, counts=counts) if tails else None
        return Reading(totals, tails | self._rates(now_s), latencies=latencies)

    def _rates(self, now_s: float) -> dict[str, Estimate]:
        """Return the rates of answers and of arrivals per second; empty before any request."""
        if not self._arrivals or now_s <= self._began:
            return {}
        rates = {}
        for metric, column in ((THROUGHPUT, 1), (ARRIVALS, 2)):
            steps = [(b[column] - a[column], b[0] - a[0]) for a, b in pairwise(self._arrivals)]
            rate = ratio_estimate(steps, 1.0, metric)
            rates[metric.name] = rate or self._rate(self._arrivals[-1][column], now_s - self._began)
        return rates

    def _rate(self, count: float, seconds: float) -> Estimate:
        """Return the mean rate over a window of `seconds`.

        Its bounds allow for the requests of up to `report_s` seconds that are not reported yet.
        """
        mean = count / seconds
        doubt = mean * min(1.0, self._report_s / seconds)
        return Estimate(mean, doubt / 2.0, 1, mean - doubt, mean + doubt, scope=Scope.SERVICE)
