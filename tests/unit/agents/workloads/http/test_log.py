"""A service measured by its log: each line is a request, or under our load gives further metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.target.side import Side
from agents.workloads import open_workload
from tests.errors import raised
from tests.unit.agents.workloads.http.wall import Wall
from tuner.core import ConfigError, MeasurementError, quantity_of

FILE = """
name = "shop"

[log]
file = "{folder}/shop.log"
pattern = 'status=2\\d\\d took=(?P<latency_s>\\S+) sent=(?P<sent_bytes>\\d+)'
failed = 'status=5\\d\\d'
metric = [{{ name = "sent_bytes", better = "less", unit = "B" }}]
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "shop.log"
    path.write_text("status=200 took=9 sent=9\n")
    return path


def opened(log: Path, **changes: str) -> Side:
    text = FILE.format(folder=log.parent)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    file = log.parent / "shop.toml"
    file.write_text(text)
    return open_workload(f"service:{file}", seed=0, state_dir=log.parent, clock=Wall())


@pytest.fixture
def side(log: Path) -> Iterator[Side]:
    attached = opened(log)
    yield attached
    attached.close()


def put(log: Path, *lines: str) -> None:
    with log.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_each_line_is_a_request_with_its_numbers(side: Side, log: Path) -> None:
    window = side.meter.start()
    for n in range(4):
        put(log, *(f"status=200 took=0.0{ms} sent={100 + n}" for ms in range(10, 60)))
        put(log, "status=500 took=9 sent=9", "something else")
        Wall().sleep(0.01)
        window.read()
    shown = window.stop()
    assert shown.totals == {"items": 200.0, "failed": 4.0}
    assert shown.estimates["latency_p50_ms"].mean == pytest.approx(34.0, abs=1.0)
    assert shown.estimates["latency_p99_ms"].n == 200
    assert shown.estimates["latency_mean_ms"].mean == pytest.approx(34.5)
    assert shown.estimates["sent_bytes"].mean == pytest.approx(101.5)
    assert shown.estimates["sent_bytes"].stderr > 0.0
    assert shown.estimates["arrival_rate_per_s"].mean > 100.0
    assert window.stop() == shown and window.read() == shown
    declared = {metric.name: metric.quantity for metric in side.metrics}
    assert str(quantity_of("sent_bytes", declared).better) == "less"
    assert {*shown.estimates, "throughput_per_s"} == declared.keys()


def test_an_unparsable_group_is_reported_with_its_text(side: Side, log: Path) -> None:
    window = side.meter.start()
    put(log, "status=200 took=soon sent=9")
    with raised(MeasurementError, "latency_s", "soon"):
        window.read()


def test_latency_may_be_in_milliseconds_and_work_may_be_counted(log: Path) -> None:
    side = opened(log, latency_s="latency_ms", sent_bytes="items", **{METRIC: ""})
    window = side.meter.start()
    put(log, "status=200 took=5 sent=7", "status=200 took=7 sent=3")
    shown = window.stop()
    assert shown.totals["items"] == 10.0
    assert shown.estimates["latency_p50_ms"].mean in (5.0, 7.0)
    assert shown.latencies is not None and shown.latencies.each_ms == (5.0, 7.0)


METRIC = 'metric = [{ name = "items", better = "less", unit = "B" }]'


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("(?P<latency_s>\\S+)", "(?P<latency_s>\\S+", "pattern is not a regular expression"),
        ("(?P<latency_s>\\S+) sent=(?P<sent_bytes>\\d+)", "", "no named group"),
        ("sent_bytes>", "latency_ms>", "are the same"),
        ("?P<latency_s>", "?P<took>", "has no latency and no load"),
        ("?P<sent_bytes>", "?P<throughput_per_s>", "no group 'sent_bytes'"),
        ("sent_bytes", "energy_j", "what energy_j means is standard"),
        ("sent_bytes", "Sent", "name cannot be 'Sent'"),
        ('better = "less"', 'better = "lower"', "better cannot be 'lower'"),
        ("failed = '", "failed = '(", "failed is not a regular expression"),
        ('file = "/', 'file = "', "file must be an absolute path"),
        ("\n[log]", "\n[load]\npath = '/'\n[log]", "both [load] and the [log]"),
        ("metric =", "metrics =", "unknown key 'metrics'; did you mean metric?"),
    ],
)
def test_an_invalid_log_table_is_refused_with_its_place(
    log: Path, old: str, new: str, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        opened(log, **{old: new})
    assert says in str(caught.value) and "shop.toml" in caught.value.message
