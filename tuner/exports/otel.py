"""Send the last held and observed windows to an OpenTelemetry collector, by OTLP over HTTP."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tuner.core import ConfigError

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
EVERY_S, TIMEOUT_S = 60.0, 10.0


class OtelExport:
    """Sends metric families to a collector; headers and certificates are from the environment.

    Raises:
        ConfigError: the exporter is not installed.
    """

    def __init__(self, collector: str, version: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"`otel` of tuner.toml: {error.name} is not installed",
                hint="pip install 'jouletune[otel]', or remove `otel`",
            ) from None
        self._exporter = OTLPMetricExporter(
            endpoint=f"{collector.rstrip('/')}/v1/metrics", timeout=TIMEOUT_S
        )
        self._version, self._began_ns, self._refused = version, time.time_ns(), False

    def send(self, families: Iterable[Family]) -> None:
        """Send the families once; a refusal is logged once until the collector accepts again."""
        refused = self._exporter.export(self._collected(families)).name != "SUCCESS"
        if refused and not self._refused:
            log.warning("event=otel_refused")
        elif self._refused and not refused:
            log.warning("event=otel_works")
        self._refused = refused

    def _collected(self, families: Iterable[Family]) -> MetricsData:
        """Return the families as OpenTelemetry's metrics: gauges, and the energy as a sum."""
        from opentelemetry.sdk.metrics import export as sdk
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        points = defaultdict[tuple[str, str], list[sdk.NumberDataPoint]](list)
        now_ns = time.time_ns()
        for family in families:
            name, unit, mode = FAMILIES.get(family.name, ("", "", ""))
            for sample in family.samples if name else ():
                labels = {ATTRIBUTES.get(k, f"jouletune.{k}"): v for k, v in sample.labels.items()}
                about = labels | ({"jouletune.mode": mode} if mode else {})
                point = sdk.NumberDataPoint(about, self._began_ns, now_ns, sample.value)
                points[name, unit].append(point)
        cumulative, metrics = sdk.AggregationTemporality.CUMULATIVE, list[sdk.Metric]()
        for (name, unit), own in points.items():
            data = sdk.Sum(own, cumulative, True) if name == "hw.energy" else sdk.Gauge(own)
            metrics.append(sdk.Metric(name, "", unit, data))
        scope = sdk.ScopeMetrics(InstrumentationScope("jouletune", self._version), metrics, "")
        service = {"service.name": "jouletune-tuner", "service.version": self._version}
        return sdk.MetricsData([sdk.ResourceMetrics(Resource(service), [scope], "")])
