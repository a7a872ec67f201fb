"""Send the last held and observed windows to an OpenTelemetry collector, by OTLP over HTTP."""

from __future__ import annotations

import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

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
TYPES = {"nvidia": "gpu", "drm": "gpu"}
"""The conventions' `hw.type` by a device's kind; another kind is its own type.

Source: https://opentelemetry.io/docs/specs/semconv/hardware/common/
"""
EVERY_S, TIMEOUT_S = 60.0, 10.0


class OtelExport(logging.Handler):
    """Sends metric families to a collector; headers and certificates are from the environment.

    It handles the exporter's own messages, which repeat at each refusal and hold the path of the address.

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
        super().__init__()
        self._path = f"{urlsplit(collector).path.rstrip('/')}/v1/metrics"
        self._exporter = OTLPMetricExporter(
            endpoint=f"{collector.rstrip('/')}/v1/metrics", timeout=TIMEOUT_S
        )
        self._service = {
            "service.name": "jouletune-tuner",
            "service.version": version,
            "service.instance.id": str(uuid.uuid4()),
        }
        self._began_ns, self._refused, self._why = time.time_ns(), False, ""
        exporters = logging.getLogger(OTLPMetricExporter.__module__)
        exporters.propagate = False
        exporters.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first message of an attempt as the reason of a refusal, without the address's path."""
        self._why = self._why or record.getMessage().replace(self._path, "…")

    def send(self, families: Iterable[Family], kinds: Mapping[str, str]) -> None:
        """Send the families once; a refusal is logged once until the collector accepts again.

        `kinds` are the kinds of devices, by their ids.
        """
        self._why = ""
        refused = self._exporter.export(self._collected(families, kinds)).name != "SUCCESS"
        if refused and not self._refused:
            log.warning("event=otel_refused no windows reach the collector: %s", self._why)
        elif self._refused and not refused:
            log.warning("event=otel_works")
        self._refused = refused

    def _collected(self, families: Iterable[Family], kinds: Mapping[str, str]) -> MetricsData:
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
                parts = kinds.get(sample.labels["device"], "other").split("+")
                about = labels | {"hw.type": "+".join(TYPES.get(part, part) for part in parts)}
                about |= {"jouletune.mode": mode} if mode else {}
                point = sdk.NumberDataPoint(about, self._began_ns, now_ns, sample.value)
                points[name, unit].append(point)
        cumulative, metrics = sdk.AggregationTemporality.CUMULATIVE, list[sdk.Metric]()
        for (name, unit), own in points.items():
            data = sdk.Sum(own, cumulative, True) if name == "hw.energy" else sdk.Gauge(own)
            metrics.append(sdk.Metric(name, "", unit, data))
        about_us = InstrumentationScope("jouletune", self._service["service.version"])
        scope = sdk.ScopeMetrics(about_us, metrics, "")
        return sdk.MetricsData([sdk.ResourceMetrics(Resource(self._service), [scope], "")])
