"""Metrics of a Ray Serve application: its HTTP figures, and its CPU time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import psutil

from agents.load.exposition import histogram, scrape
from agents.load.prometheus import Figures
from agents.workloads.ray.dashboard import Dashboard
from tuner.core import MeasurementError, TuningError, reraised

HTTP_LATENCY = "ray_serve_http_request_latency_ms"
"""Per request, as Ray's HTTP proxy sees it: waiting, routing and every deployment on its way."""
REPORT_S = 10.0
"""Age in s of Ray's metrics, at most.

Ray sends them every 10 s by default (`RAY_metrics_report_interval_ms`); measured on Ray 2.60, 2 to
10 s after the requests.
"""


class RayFigures:
    """Read an application's figures from every machine of the cluster."""

    def __init__(self, dashboard: Dashboard, application: str) -> None:
        self._dashboard = dashboard
        self._application = application

    def read(self) -> Figures:
        """Return the present values. Raises MeasurementError."""
        with reraised(MeasurementError, TuningError):
            urls = self._dashboard.metrics_urls()
        samples = [s for url in urls for s in scrape(self._dashboard.client, url, (HTTP_LATENCY,))]

        def ours(labels: Mapping[str, str], *, good: bool) -> bool:
            answered = labels.get("status_code", "")[:1] in ("1", "2", "3")
            return labels.get("application") == self._application and answered is good

        good = histogram(samples, HTTP_LATENCY, lambda labels: ours(labels, good=True))
        bad = histogram(samples, HTTP_LATENCY, lambda labels: ours(labels, good=False))
        return Figures(good, bad.n)


class RayProcesses:
    """The CPU time of all of Ray on this host: its raylet and the raylet's descendants.

    Replicas, proxy and controller are the raylet's children; Ray's own work for them is a cost of
    serving. The control store and the dashboard are not included.
    """

    def __init__(self, replica: int) -> None:
        """Find the raylet from one of its replicas.

        Raises MeasurementError if it is on another host.
        """
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
                f"Ray has ended on this host: {error}", hint="restart it"
            ) from None
        for child in children:
            try:
                times = child.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return float(total)


class CpuTotal:
    """The CPU time since a start; a process that ends meanwhile subtracts nothing."""

    def __init__(self, find: Callable[[], RayProcesses] | None) -> None:
        """Use `find` to look up the processes, as Ray may have been restarted.

        Raises MeasurementError.
        """
        self._processes = None if find is None else find()
        self._before = 0.0 if self._processes is None else self._processes.cpu_s()
        self._most = 0.0

    def __call__(self) -> Mapping[str, float]:
        """Return the total; empty if unknown. Raises MeasurementError."""
        if self._processes is None:
            return {}
        self._most = max(self._most, self._processes.cpu_s() - self._before)
        return {"cpu_s": self._most}
