"""Windows as a collector receives them: a small OTLP receiver that decodes the protobuf."""

from __future__ import annotations

import gzip
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.builders import device, window
from tests.errors import raised
from tests.integration.spoken import Spoken, running
from tests.unit.tuner.cli.worlds import operations
from tuner.config import TunerConfig, load_tuner_config
from tuner.core import ConfigError, Space
from tuner.exports.otel import OtelExport
from tuner.service.fleet import FleetOverview
from tuner.service.metrics.counts import Counts
from tuner.service.metrics.fleet_metrics import Metrics
from tuner.service.summaries import Summaries

service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")


@dataclass
class Receiver:
    """A collector: it decodes what is posted to it, and answers with `status`."""

    status: int = 200
    received: list[Any] = field(default_factory=list)
    url: str = ""

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of the latest request, by name."""
        (of,) = self.received[-1].resource_metrics
        (scope,) = of.scope_metrics
        return {metric.name: metric for metric in scope.metrics}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()

    class Handler(Spoken):
        protocol_version = "HTTP/1.0"

        def do_POST(self) -> None:
            content = self.body()
            if self.headers.get("Content-Encoding") == "gzip":
                content = gzip.decompress(content)
            if not made.status:
                return  # the connection closes without an answer
            assert self.path.endswith("/v1/metrics")
            assert self.headers["Content-Type"] == "application/x-protobuf"
            if made.status == 200:
                made.received.append(service.ExportMetricsServiceRequest.FromString(content))
            self.send(made.status, b"")

    with running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        made.url = f"http://127.0.0.1:{server.server_port}"
        yield made


def observed() -> Metrics:
    """Return the metrics of a tuner with the window of one observed device."""
    verbs, counts = operations(), Counts()
    one = device("gpu0", space=Space(()), observed=True)
    verbs.loop.register(one)
    own = window(6.0, 110.0)
    counts.observed(one, own)
    counts.measured(one, one.id, own)
    return Metrics(FleetOverview(verbs, Summaries(verbs)), counts, "1")


def attributes(point: Any) -> dict[str, str]:  # noqa: ANN401  a protobuf message
    return {a.key: a.value.string_value for a in point.attributes}


def test_a_collector_receives_the_windows_under_the_names_of_its_conventions(
    receiver: Receiver,
) -> None:
    metrics, shown = observed(), window(6.0, 110.0).estimates
    OtelExport(receiver.url, "1").send(metrics.families(), {"gpu0": "nvidia"})
    sent = receiver.metrics()
    (power,) = sent["hw.power"].gauge.data_points
    assert (sent["hw.power"].unit, power.as_double) == ("W", shown["power_w"].mean)
    assert attributes(power) == {
        "hw.id": "gpu0", "hw.type": "gpu", "jouletune.workload": "inference",
        "jouletune.origin": "measured", "jouletune.mode": "observed",
    }  # fmt: skip
    energy = sent["hw.energy"].sum
    assert energy.is_monotonic and sent["hw.energy"].unit == "J"
    (joules,) = energy.data_points
    assert joules.as_double > 0.0 and 0 < joules.start_time_unix_nano <= joules.time_unix_nano
    p99 = [
        point.as_double
        for point in sent["jouletune.window.latency"].gauge.data_points
        if attributes(point)["jouletune.metric"] == "latency_p99"
    ]
    assert p99 == [pytest.approx(0.110)]
    (of,) = receiver.received[-1].resource_metrics
    named = {a.key: a.value.string_value for a in of.resource.attributes}
    assert named.keys() == {"service.name", "service.version", "service.instance.id"}
    for metric in sent.values():  # required by the conventions
        for point in (*metric.gauge.data_points, *metric.sum.data_points):
            assert {"hw.id", "hw.type"} <= attributes(point).keys()
    # Two tuners of a database count their own energy: their sums must not be one series.
    OtelExport(receiver.url, "1").send(metrics.families(), {"gpu0": "nvidia+cpu"})
    (other,) = receiver.received[-1].resource_metrics
    assert named["service.instance.id"] not in str(other.resource)
    (power,) = receiver.metrics()["hw.power"].gauge.data_points
    assert attributes(power)["hw.type"] == "gpu+cpu"


@pytest.mark.parametrize(
    ("status", "why"), [(400, "code: 400"), (401, "code: 401"), (0, "Connection")]
)
def test_a_collector_that_refuses_is_reported_once_and_used_again(
    receiver: Receiver,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    why: str,
) -> None:
    monkeypatch.setattr("tuner.exports.otel.TIMEOUT_S", 2.0)
    receiver.status = status
    caplog.set_level(logging.WARNING)
    export = OtelExport(f"{receiver.url}/s3cret", "1")
    for _ in range(2 if status else 1):
        export.send(observed().families(), {})
    (line,) = [r.getMessage() for r in caplog.records if r.name == "tuner.exports.otel"]
    assert "event=otel_refused" in line and why in line and "s3cret" not in line
    others = {r.name for r in caplog.records} - {"tuner.exports.otel"}
    assert not any(logging.getLogger(name).propagate for name in others) and not receiver.received
    receiver.status = 200
    export.send(observed().families(), {})
    assert "event=otel_works" in caplog.text and receiver.received


def test_without_the_extra_the_table_is_refused_by_name(tmp_path: Path) -> None:
    config = tmp_path / "tuner.toml"
    config.write_text('otel = "http://127.0.0.1:4318"\n')
    program = f"""
import sys
from pathlib import Path
sys.modules["opentelemetry.exporter.otlp.proto.http.metric_exporter"] = None
from tuner.config import load_tuner_config
from tuner.exports.otel import OtelExport
from tuner.errors import ConfigError
try:
    OtelExport(load_tuner_config(Path({str(config)!r})).otel, "1")
except ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "`otel` of tuner.toml" in done.stdout and "jouletune[otel]" in done.stdout


@pytest.mark.parametrize(
    "wrong",
    [
        "collector:4318", "http://", "http:///x", "http://[::1", "http://h:4318?key=s3cret",
        "http://ann:s3cret@h:4318", "http://s3cret@h", "ftp://h", "http://h:4318#s3cret", "http://h h",
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", ["otel", "base_url"])
def test_a_wrong_address_is_refused_by_name(tmp_path: Path, wrong: str, key: str) -> None:
    config = tmp_path / "tuner.toml"
    config.write_text(f'{key} = "{wrong}"\n')
    with raised(ConfigError, f"{key} is not an address") as refused:
        load_tuner_config(config)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("right", ["http://127.0.0.1:4318", "https://[::1]:4318/a/", "http://h"])
def test_an_address_with_or_without_a_path_is_accepted(right: str) -> None:
    assert TunerConfig(otel=right).otel == right
