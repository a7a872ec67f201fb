"""What a service tells of itself as Prometheus text: latencies, failures, CPU time."""

from __future__ import annotations

from collections.abc import Mapping

from agents.host.local_http import LocalHttp
from agents.load.exposition import Histogram, counter, declared, histogram, scrape
from agents.load.meter import Totals
from agents.load.prometheus import Figures
from agents.workloads.http.config import Series, ServiceConfig
from tuner.core import ActuationError, DeviceLost, InvalidInput, MeasurementError

CPU = "process_cpu_seconds_total"
STARTED = "process_start_time_seconds"
"""The names that Prometheus' own client libraries give them."""


class Exposition:
    """One service's text.

    Raises:
        InvalidInput: it has no such metric; the hint lists those it has.
        DeviceLost, ActuationError: it does not answer.
    """

    def __init__(self, http: LocalHttp, config: ServiceConfig) -> None:
        self.url = f"{http.url}{config.metrics}"
        self._http, self._path = http, config.metrics
        self._latency, self._failures = config.latency, config.failures
        try:
            text = http.call("GET", config.metrics).text
        except DeviceLost:
            raise
        except ActuationError:
            if config.latency.name:
                raise
            text = ""  # our own load needs no metrics
        if config.latency.name:
            self._demand(config.latency, "histogram", text)
        if config.failures.name:
            self._demand(config.failures, "counter", text)
        self.tells_cpu = CPU in declared(text, "counter")
        self.tells_start = STARTED in declared(text, "gauge")

    def figures(self) -> Figures:
        """Return what is told now. Raises MeasurementError."""
        good, failed = self._latency, self._failures
        names = [series.name for series in (good, failed) if series.name]
        samples = scrape(self._http.client, self.url, names)
        latencies = histogram(samples, good.name, good.keep)
        edges = tuple(edge * good.unit_ms for edge in latencies.edges)
        count = counter(samples, failed.name, failed.keep) if failed.name else 0.0
        return Figures(Histogram(edges, latencies.counts), round(count))

    def counting(self) -> Totals:
        """Begin to count the CPU time, where it is told. Raises MeasurementError."""
        if not self.tells_cpu:
            return dict
        before = self._cpu_s()

        def total() -> Mapping[str, float]:
            used = self._cpu_s() - before
            if used < 0.0:
                raise MeasurementError(
                    f"{CPU} of {self.url} went backwards",
                    hint="the service was restarted; measure again",
                )
            return {"cpu_s": used}

        return total

    def started(self) -> str:
        """Return when the service was started, in its own words. Raises ActuationError, DeviceLost."""
        text = self._http.call("GET", self._path).text
        return next(
            (
                line
                for line in text.splitlines()
                if line.startswith((f"{STARTED} ", f"{STARTED}{{"))
            ),
            "",
        )

    def _cpu_s(self) -> float:
        return counter(scrape(self._http.client, self.url, (CPU,)), CPU, lambda _: True)

    def _demand(self, series: Series, kind: str, text: str) -> None:
        there = declared(text, kind)
        if not {series.name, series.name.removesuffix("_total")} & {*there}:
            raise InvalidInput(
                f"{self.url} tells no {kind} {series.name!r}",
                hint=f"there are: {', '.join(there) or 'none'}",
            )
