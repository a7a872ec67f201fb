"""Send the last held and observed windows to an OpenTelemetry collector, by OTLP over HTTP."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tuner.core import ConfigError
from tuner.destinations import Collector

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData
    from prometheus_client.core import Metric as Family

log = logging.getLogger(__name__)

FAMILIES = {
    "jouletune_held_power_watts": ("hw.power", "W", "held"),
    "jouletune_observed_power_watts": ("hw.power", "W", "observed"),
    "jouletune_energy_joules": ("hw.energy", "J", ""),
    "jouletune_held_latency_seconds": ("jouletune.window.latency", "s", "held"),
    "jouletune_observed_latency_seconds": ("jouletune.window.latency", "s", "observed"),
}
"""The name of OpenTelemetry's conventions, the unit, and the mode of each exported family of /metrics.

`gen_ai.*` latencies are histograms of single requests, and no window has these: ours have a name of ours.
"""
ATTRIBUTES = {"device": "hw.id", "workload": "jouletune.workload"}
TIMEOUT_S = 10.0


class OtelExport:
    """Sends metric families to a collector every `to.every_s` seconds; headers are from the environment.

    Raises:
        ConfigError: the exporter is not installed.
    """

    def __init__(self, to: Collector, version: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"[otel] of tuner.toml: {error.name} is not installed",
                hint="pip install 'jouletune[otel]', or remove [otel]",
            ) from None
        self._exporter = OTLPMetricExporter(endpoint=to.url, timeout=TIMEOUT_S)
        self._every_s, self._version = to.every_s, version
        self._began_ns, self._over = time.time_ns(), threading.Event()

    def begin(self, families: Callable[[], Iterable[Family]]) -> Callable[[], None]:
        """Start to send in a thread; return the function that ends it."""
        sending = threading.Thread(target=self._run, args=(families,), name="otel", daemon=True)
        sending.start()

        def end() -> None:
            self._over.set()
            self._exporter.shutdown()
            sending.join(TIMEOUT_S)

        return end

    def _run(self, families: Callable[[], Iterable[Family]]) -> None:
        """Send until the end; a failure is logged once until the collector accepts again."""
        failed = False
        while not self._over.wait(self._every_s):
            try:
                worked = self._exporter.export(self.collected(families())).name == "SUCCESS"
            except Exception:
                log.exception("event=otel_failed")
                continue
            if worked == failed:
                log.warning("event=%s", "otel_works" if worked else "otel_refused")
            failed = not worked

    def collected(self, families: Iterable[Family]) -> MetricsData:
        """Return the families as OpenTelemetry's metrics: gauges, and the energy as a sum."""
        from opentelemetry.sdk.metrics import export as sdk
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        points, now_ns = (
            defaultdict[tuple[str, str], list[sdk.NumberDataPoint]](list),
            time.time_ns(),
        )
        for family in families:
            name, unit, mode = FAMILIES.get(family.name, ("", "", ""))
            for sample in family.samples if name else ():
                labels = {ATTRIBUTES.get(k, f"jouletune.{k}"): v for k, v in sample.labels.items()}
                about = labels | ({"jouletune.mode": mode} if mode else {})
                began_ns = self._began_ns if name == "hw.energy" else None
                point = sdk.NumberDataPoint(about, began_ns, now_ns, sample.value)  # type: ignore[arg-type]
                points[name, unit].append(point)
        cumulative = sdk.AggregationTemporality.CUMULATIVE
        metrics = [
            sdk.Metric(
                name,
                "",
                unit,
                sdk.Sum(own, cumulative, True) if name == "hw.energy" else sdk.Gauge(own),
            )
            for (name, unit), own in points.items()
        ]
        scope = sdk.ScopeMetrics(InstrumentationScope("jouletune", self._version), metrics, "")
        about = {"service.name": "jouletune-tuner", "service.version": self._version}
        return sdk.MetricsData([sdk.ResourceMetrics(Resource(about), [scope], "")])
