"""What a Ray Serve application shows: its own HTTP figures, or what our load saw, and its CPU time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from weakref import WeakSet

import psutil

from agents.load import Caller, LoadRun, LoadShape
from agents.scrape import Histogram, histogram, scrape
from agents.tally import shown_by
from agents.windows import ratio_estimate
from agents.workloads.ray_serve.dashboard import Dashboard
from tuner.core import (
    Clock,
    Estimate,
    MeasurementError,
    Metric,
    Reading,
    Scope,
    TuningError,
    Window,
)

HTTP_LATENCY = "ray_serve_http_request_latency_ms"
"""Per request, as Ray's HTTP proxy sees it: waiting, routing and every deployment on its way."""
QUANTILES = {"latency_p50_ms": 0.50, "latency_p99_ms": 0.99}
THROUGHPUT = Metric("throughput_per_s", scope=Scope.SERVICE)
ARRIVALS = Metric("arrival_rate_per_s", scope=Scope.SERVICE)
REPORT_S = 10.0
"""How far Ray's metrics lie back at most: it sends them on every 10 s unless told otherwise
(`RAY_metrics_report_interval_ms`); measured on Ray 2.60, 2 to 10 s after the requests."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What Ray has told since it was started: latencies of good answers, and how many were not."""

    good: Histogram
    failed: int


class RayFigures:
    """Reads an application's figures from every machine of the cluster."""

    def __init__(self, dashboard: Dashboard, application: str) -> None:
        self._dashboard = dashboard
        self._application = application

    def read(self) -> Figures:
        """Return what is told now. Raises MeasurementError."""
        try:
            urls = self._dashboard.metrics_urls()
        except TuningError as error:
            raise MeasurementError(error.message, hint=error.hint) from error
        samples = [s for url in urls for s in scrape(self._dashboard.client, url, (HTTP_LATENCY,))]

        def ours(labels: Mapping[str, str], *, good: bool) -> bool:
            answered = labels.get("status_code", "")[:1] in ("1", "2", "3")
            return labels.get("application") == self._application and answered is good

        good = histogram(samples, HTTP_LATENCY, lambda labels: ours(labels, good=True))
        bad = histogram(samples, HTTP_LATENCY, lambda labels: ours(labels, good=False))
        return Figures(good, bad.n)


class RayProcesses:
    """The CPU time of everything that Ray runs on this host: its raylet and all that it started.

    Replicas, proxy and controller are the raylet's children; Ray's own work for them belongs to what
    serving costs. The control store and the dashboard are not among them.
    """

    def __init__(self, replica: int) -> None:
        """Find the raylet from one of its replicas. Raises MeasurementError where it is not here."""
        try:
            parent = psutil.Process(replica).parent()
        except psutil.Error as error:
            raise MeasurementError(f"the replica {replica} is not on this host: {error}") from None
        if parent is None or parent.name() != "raylet":
            raise MeasurementError(f"the process {replica} of this host is not a Ray replica")
        self._raylet = parent

    def cpu_s(self) -> float:
        """Return the CPU seconds so far, of ended processes too. Raises MeasurementError."""
        try:
            own = self._raylet.cpu_times()
            total = own.user + own.system + own.children_user + own.children_system
            children = self._raylet.children(recursive=True)
        except psutil.Error as error:
            raise MeasurementError(
                f"Ray has ended on this host: {error}", hint="start it again"
            ) from None
        for child in children:
            try:
                times = child.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return float(total)


class CpuTotal:
    """The CPU time since a start; a process that ends while it is counted takes nothing back."""

    def __init__(self, processes: RayProcesses | None) -> None:
        self._processes = processes
        self._before = processes.cpu_s() if processes else 0.0
        self._most = 0.0

    def totals(self) -> Mapping[str, float]:
        """Return the total; nothing where it cannot be told. Raises MeasurementError."""
        if self._processes is None:
            return {}
        self._most = max(self._most, self._processes.cpu_s() - self._before)
        return {"cpu_s": self._most}


class FiguresMeter:
    """Measures whatever requests arrive, by Ray's own metrics; sends none."""

    def __init__(self, figures: RayFigures, processes: RayProcesses | None, clock: Clock) -> None:
        self._figures = figures
        self._processes = processes
        self._clock = clock

    def start(self) -> Window:
        """Open a window. Raises MeasurementError."""
        return FiguresWindow(self._figures, CpuTotal(self._processes), self._clock)


class FiguresWindow:
    """What Ray has told since the window was opened.

    Ray passes its metrics on in lumps, `REPORT_S` apart: the rates are taken between readings at
    which something had arrived, not from the window's own beginning.
    """

    def __init__(self, figures: RayFigures, cpu: CpuTotal, clock: Clock) -> None:
        self._figures = figures
        self._cpu = cpu
        self._clock = clock
        self._before = figures.read()
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
        now, now_s = self._figures.read(), self._clock.monotonic()
        good = now.good.since(self._before.good)
        failed = now.failed - self._before.failed
        if failed < 0:
            raise MeasurementError("Ray's metrics went backwards", hint="measure again")
        last = self._arrivals[-1][1:] if self._arrivals else (0.0, 0.0)
        if (good.n, good.n + failed) != last:
            self._arrivals.append((now_s, float(good.n), float(good.n + failed)))
        totals = {"items": float(good.n), "failed": float(failed), **self._cpu.totals()}
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
            rates[metric.name] = rate or _rate(self._arrivals[-1][column], now_s - self._began)
        return rates


def _rate(count: float, seconds: float) -> Estimate:
    """Return a rate over a whole window, as uncertain as what Ray may hold back at its ends."""
    mean = count / seconds
    doubt = mean * min(1.0, REPORT_S / seconds)
    return Estimate(mean, doubt / 2.0, 1, mean - doubt, mean + doubt, scope=Scope.SERVICE)


class LoadMeter:
    """Measures the application under our load; every window sends the same."""

    def __init__(
        self,
        connect: Callable[[], Caller],
        shape: LoadShape,
        processes: RayProcesses | None,
        clock: Clock,
        seed: int,
    ) -> None:
        self._connect = connect
        self._shape = shape
        self._processes = processes
        self._clock = clock
        self._seed = seed
        self._runs: WeakSet[LoadRun] = WeakSet()

    def start(self) -> Window:
        """Start the load. Raises MeasurementError."""
        cpu = CpuTotal(self._processes)
        run = LoadRun(self._connect, self._shape, clock=self._clock, seed=self._seed)
        self._runs.add(run)
        return LoadWindow(run, cpu)

    def close(self) -> None:
        """End the load of every window that is still open."""
        for run in list(self._runs):
            run.stop(grace_s=0.0)


class LoadWindow:
    """An open window: the load is on until it is stopped. Items are those our callers saw answered."""

    def __init__(self, run: LoadRun, cpu: CpuTotal) -> None:
        self._run = run
        self._cpu = cpu
        self._final: Reading | None = None

    def read(self) -> Reading:
        """Return what the window shows so far. Raises MeasurementError."""
        return self._shown(ended=False) if self._final is None else self._final

    def stop(self) -> Reading:
        """End the load and return what it showed. Raises MeasurementError."""
        if self._final is None:
            self._final = self._shown(ended=True)
        return self._final

    def _shown(self, *, ended: bool) -> Reading:
        tally = self._run.stop() if ended else self._run.read()
        totals = {"items": float(len(tally.latencies_s)), "failed": float(tally.failed)}
        return Reading({**totals, **self._cpu.totals()}, shown_by(tally))
