"""An HTTP service that is set and measured by its file."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from agents.target.side import Restartable, Serves, Side
from agents.workloads import open_workload
from tests.builders import Time
from tests.contracts.actuator import SettableContract
from tests.contracts.meter import Later, MeterContract
from tests.errors import raised
from tests.integration.spoken import Spoken, running
from tests.unit.agents.workloads.http.wall import Wall
from tuner.core import (
    ActuationError,
    ConfigError,
    Cost,
    DeviceLost,
    InvalidInput,
    MeasurementError,
    Role,
    Space,
)
from tuner.typed_toml import Filled, Table

FILE = """
name = "thumbnails"
url = "{url}"
version = "7"

[[knob]]
name = "workers"
values = [1, 2, 4]
default = 4
role = "parallel"
seconds = 0.2
restart = true
set = {{ method = "POST", path = "/config", json = {{ pool = {{ workers = "{{value}}" }} }} }}
read = {{ path = "/config", json = "pool.workers" }}

[[knob]]
name = "codec"
values = ["fast", "small"]
default = "fast"
set = {{ path = "/codec", json = ["{{value}}"] }}
read = {{ path = "/codecs", json = "0.name" }}

[latency]
histogram = "request_seconds"
labels = {{ handler = "/thumb" }}

[failures]
counter = "failures_total"
"""
LOAD = """
[load]
callers = 2
method = "PUT"
path = "/thumb"
body = "x"
"""
EDGES = ("0.01", "0.02", "+Inf")


class Service(ThreadingHTTPServer):
    """A service whose state a test can change."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.config: dict[str, Any] = {"pool": {"workers": 4}}
        self.codec = "fast"
        self.asked: list[tuple[str, str, Any]] = []
        self.refused = self.deaf = self.gone = False
        self.forgets = False
        """Whether a change of its workers restarts it with its first codec."""
        self.late = 0
        """How many readings a change takes to show."""
        self.answered, self.failed, self.beside, self.cpu_s = 0, 0, 2, 1.5
        self.started = 1.7e9
        self.tells_process = True
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def metrics(self) -> str:
        prefix = "process_" if self.tells_process else ""
        cpu, start = f"{prefix}cpu_seconds_total", f"{prefix}start_time_seconds"
        below = (0, self.answered, self.answered)
        buckets = [
            f'request_seconds_bucket{{handler="{path}",le="{edge}"}} {count if path == "/thumb" else 9}'
            for path in ("/thumb", "/metrics")
            for edge, count in zip(EDGES, below, strict=True)
        ]
        return "\n".join(
            [
                "# TYPE request_seconds histogram",
                *buckets,
                "# TYPE other_seconds histogram",
                "# TYPE failures_total counter",
                f'failures_total{{why="a"}} {self.failed}',
                f'failures_total{{why="b"}} {self.beside}',
                f"# TYPE {cpu} counter",
                f"{cpu} {self.cpu_s}",
                f"# TYPE {start} gauge",
                f"{start} {self.started}",
            ]
        )


class Handler(Spoken):
    server: Service

    def do_GET(self) -> None:
        service = self.server
        if self.path == "/config":
            if service.late:
                service.late -= 1
                return self.answer(200, {"pool": {"workers": 4}})
            return self.answer(200, service.config)
        if self.path == "/codecs":
            return self.plain(json.dumps([{"name": service.codec}]))
        if self.path == "/metrics" and not service.gone:
            return self.plain(service.metrics())
        return self.answer(404, {})

    def do_POST(self) -> None:
        body = json.loads(self.body())
        self.server.asked.append((self.command, self.path, body))
        if self.server.refused:
            return self.plain("no room", 409)
        if not self.server.deaf:
            self.server.config = body
        if self.server.forgets:
            self.server.codec = "fast"
        self.send_response(204)
        self.end_headers()
        return None

    def do_PUT(self) -> None:
        body = self.body()
        if self.path == "/thumb":
            if self.server.refused:
                return self.plain("starting", 503)
            self.server.answered += 1
            return self.plain("")
        (self.server.codec,) = json.loads(body)
        return self.answer(200, {})

    def plain(self, text: str, status: int = 200) -> None:
        self.send(status, text.encode())


@pytest.fixture
def service() -> Iterator[Service]:
    with running(Service()) as serving:
        yield serving


class Opening:
    """Opens the service by its file, or by another text, and closes all of it in the end."""

    def __init__(self, folder: Path, service: Service) -> None:
        self.file = folder / "thumbnails.toml"
        self.text = FILE.format(url=service.url)
        self.sides: list[Side] = []

    def __call__(self, more: str = "", **changes: str) -> Side:
        text = self.text + more
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        return self.by(text)

    def by(self, text: str) -> Side:
        self.file.write_text(text)
        spec, folder = f"service:{self.file}", self.file.parent
        self.sides.append(open_workload(spec, seed=0, state_dir=folder, clock=Wall()))
        return self.sides[-1]


@pytest.fixture
def opened(service: Service, tmp_path: Path) -> Iterator[Opening]:
    opening = Opening(tmp_path, service)
    yield opening
    for side in opening.sides:
        side.close()


@pytest.fixture
def side(opened: Opening) -> Side:
    return opened()


@pytest.fixture
def later(service: Service) -> Later:
    def pass_on() -> None:
        service.answered += 60
        service.cpu_s += 0.125

    return pass_on


class TestKnobs(SettableContract):
    pass


class TestMeter(MeterContract):
    pass


def test_a_file_describes_a_service_and_its_knobs(side: Side, service: Service) -> None:
    workers, codec = side.space.knobs
    assert (side.name, side.version, side.board) == ("thumbnails", "7", service.url)
    assert (workers.role, workers.cost) == (Role.PARALLEL, Cost(0.2, restart=True))
    assert (codec.values, codec.role, codec.cost) == (("fast", "small"), Role.UNKNOWN, Cost())


def test_a_value_is_sent_as_it_is_and_read_back(side: Side, service: Service) -> None:
    side.actuator.apply({"workers": 2})
    assert service.asked == [("POST", "/config", {"pool": {"workers": 2}})]
    assert side.actuator.read() == {"workers": 2, "codec": "fast"}


def test_unchanged_values_are_not_sent(side: Side, service: Service) -> None:
    side.actuator.apply({"workers": 4, "codec": "small"})
    assert service.asked == []
    assert service.codec == "small"


def test_a_knob_may_be_yes_or_no(opened: Opening, service: Service) -> None:
    service.config = {"pool": {"workers": True}}
    side = opened(**{"[1, 2, 4]\ndefault = 4": "[false, true]\ndefault = true"})
    side.actuator.apply({"workers": False})
    assert service.asked == [("POST", "/config", {"pool": {"workers": False}})]
    assert side.actuator.read()["workers"] is False


def test_a_change_that_takes_a_while_is_waited_for(opened: Opening, service: Service) -> None:
    side = opened(**{"seconds = 0.2": "seconds = 60"})
    service.late = 4  # `apply` reads first
    side.actuator.apply({"workers": 1})
    assert side.actuator.read()["workers"] == 1


def test_a_change_that_does_not_take_effect_in_time_is_an_error(
    side: Side, service: Service
) -> None:
    service.deaf = True
    with raised(ActuationError, "workers=2", "uses 4", "seconds"):
        side.actuator.apply({"workers": 2})


def test_a_refusal_is_reported_with_the_services_message(side: Side, service: Service) -> None:
    service.refused = True
    with raised(ActuationError, "POST /config", "HTTP 409"):
        side.actuator.apply({"workers": 2})


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"pool": {"workers": 3}}, "workers of .* is at 3, which is not among its values"),
        ({"pool": {"workers": True}}, "is at True"),
        ({"pool": {}}, "is not at 'pool.workers' of the response"),
        ({"pool": "x"}, "is not at 'pool.workers' of the response"),
    ],
)
def test_unreadable_input_is_reported(
    side: Side, service: Service, config: dict[str, Any], why: str
) -> None:
    service.config = config
    with pytest.raises(ActuationError, match=why):
        side.actuator.read()


def test_a_service_without_an_answer_is_lost(side: Side, opened: Opening) -> None:
    text = FILE.format(url="http://127.0.0.1:1")
    with raised(DeviceLost, "http://127.0.0.1:1"):
        opened.by(text)


@pytest.mark.parametrize("load", ["", LOAD])
def test_a_service_that_starts_answers_a_request_of_its_load_or_shows_its_metrics(
    load: str, opened: Opening, service: Service
) -> None:
    side = opened(load)
    assert isinstance(side.actuator, Serves)
    before = service.answered
    side.actuator.demand_answer()
    assert service.answered - before == (1 if load else 0)
    service.gone = service.refused = True
    with raised(ActuationError, "thumbnails"):
        side.actuator.demand_answer()


def test_figures_are_those_of_the_labels_in_milliseconds(side: Side, service: Service) -> None:
    window = side.meter.start()
    service.answered += 100
    service.failed += 5
    service.cpu_s += 0.5
    reading = window.stop()
    median = reading.estimates["latency_p50_ms"]
    assert (median.low, median.high) == (10.0, 20.0)
    assert reading.totals == {"items": 100.0, "failed": 5.0, "cpu_s": 0.5}
    assert side.source == "the histogram request_seconds of thumbnails"


@pytest.mark.promise("a tuned service restarts, loses its metrics or resets its counters")
@pytest.mark.parametrize("counter", ["answered", "failed", "beside", "cpu_s"])
def test_a_counter_that_was_reset_gives_no_measurement(
    side: Side, service: Service, counter: str
) -> None:
    """One of two series, too, whose sum still grows."""
    service.answered = service.failed = 10
    window = side.meter.start()
    service.failed += 100
    setattr(service, counter, 0)
    with pytest.raises(MeasurementError, match="went backwards"):
        window.read()


@pytest.mark.promise("a tuned service restarts, loses its metrics or resets its counters")
def test_a_missing_endpoint_gives_no_measurement(side: Side, service: Service) -> None:
    window = side.meter.start()
    service.gone = True
    with raised(MeasurementError, service.url, "/metrics"):
        window.read()


def test_a_restart_is_detected_by_the_start_time(side: Side, service: Service) -> None:
    assert isinstance(side.actuator, Restartable)
    first = side.actuator.incarnation()
    assert side.actuator.incarnation() == first
    service.started += 0.5
    assert side.actuator.incarnation() not in ("", first)


def test_a_service_need_not_report_its_process(opened: Opening, service: Service) -> None:
    service.tells_process = False
    side = opened()
    assert not isinstance(side.actuator, Restartable)
    assert "no counter process_cpu_seconds_total" in side.cannot["cpu_time_ms"]
    assert "cpu_s" not in side.meter.start().stop().totals


def test_a_service_that_always_has_work_has_a_rate_but_no_load(opened: Opening) -> None:
    side = opened()
    assert "arrival_rate_per_s" in {metric.name for metric in side.metrics}
    busy = opened.by("always_busy = true\n" + opened.text)
    names = {metric.name for metric in busy.metrics}
    assert "arrival_rate_per_s" not in names and "throughput_per_s" in names


@pytest.mark.parametrize(
    ("old", "new", "there"),
    [
        ("request_seconds", "requst_seconds", "request_seconds, other_seconds"),
        ("failures_total", "failed_total", "failures_total, process_cpu_seconds_total"),
    ],
)
def test_an_unreported_metric_is_answered_with_the_reported_ones(
    opened: Opening, old: str, new: str, there: str
) -> None:
    with raised(InvalidInput, new, there):
        opened(**{old: new})


def test_our_load_takes_the_place_of_the_histogram(opened: Opening, service: Service) -> None:
    side = opened(LOAD)
    window = side.meter.start()
    deadline = time.monotonic() + 60.0
    while service.answered < 60 and time.monotonic() < deadline:
        time.sleep(0.005)
    reading = window.stop()
    assert reading.totals["failed"] == 0.0
    assert 60.0 <= reading.totals["items"] <= service.answered
    assert reading.estimates["latency_mean_ms"].mean > 0.0
    assert side.source == "our load generator, closed loop of 2"
    assert "arrival_rate_per_s" not in {metric.name for metric in side.metrics}


def test_with_our_load_neither_metrics_nor_knobs_are_needed(
    opened: Opening, service: Service
) -> None:
    text = f'name = "plain"\nurl = "{service.url}"\n{LOAD}'
    side = opened.by(text.replace("callers = 2", "rate_per_s = 50"))
    assert side.space == Space(())
    assert side.version == "unknown"
    assert "arrival_rate_per_s" in {metric.name for metric in side.metrics}


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('name = "thumbnails"', "", "has no name"),
        ('name = "thumbnails"', 'nane = "x"', "unknown key 'nane'; did you mean name"),
        ("127.0.0.1", "10.0.0.1", "is not on this machine"),
        ('version = "7"', "version = 7", "version must be a string"),
        ('version = "7"', "load = 3", "load must be a table"),
        ("values = [1, 2, 4]", "", "knob 1 has no values"),
        ("values = [1, 2, 4]", "values = [[1], 4]", r"knob 1: \[1\] cannot be a knob's value"),
        ("default = 4", "default = 3", "knob 1: .*default 3 is not in its list"),
        ('role = "parallel"', 'role = "paralel"', "role cannot be 'paralel'; choose 'core_clock'"),
        ("restart = true", "restart = 1", "restart must be a boolean"),
        ("restart = true", "restat = true", "did you mean restart"),
        ('read = { path = "/config", json = "pool.workers" }', "", "workers has no read, but"),
        ('workers = "{value}"', 'workers = "value"', 'json of set has no "{value}"'),
        ('workers = "{value}"', 'workers = "{value}", at = 2026-01-01', "cannot be a date"),
        ('path = "/config", json = {', 'path = "config", json = {', "path cannot be 'config'"),
        ('path = "/config", json = {', 'path = "//elsewhere/", json = {', "path cannot be"),
        ('method = "POST"', 'method = "POST / HTTP/1.1"', "method cannot be"),
        ('name = "codec"', 'name = "workers"', "same name"),
        ("[latency]", "[latency]\nunit = 'us'", "unit cannot be 'us'; choose 's' or 'ms'"),
        ('histogram = "request_seconds"', "", "latency has no histogram"),
        ('handler = "/thumb"', "handler = 3", "labels: handler must be a string"),
        ("[failures]", "[load]\ncallers = 0\npath = '/'\n[failures]", "at least one caller"),
        ("[failures]", "[load]\ncallers = 1\n[failures]", "load has no path"),
        ("[failures]", "[[histogram]]\nname = 'a'\n[failures]", "histogram 1 has no histogram"),
        ("[failures]", "[load]\ngood.p99_ms = 1\n[failures]", "load: good: .* known keys: ttft_ms"),
    ],
)
def test_an_invalid_entry_is_refused_with_its_place(
    opened: Opening, old: str, new: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        opened(**{old: new})
    assert str(opened.file) in caught.value.message


def test_a_text_that_must_be_filled_has_no_empty_default() -> None:
    """A field without a default inherits one that a base has."""
    kinds, empty = [Table], list[str]()
    for kind in kinds:
        kinds += kind.__subclasses__()
        hints = get_type_hints(kind, include_extras=True)
        own: Any = fields(kind) if is_dataclass(kind) else ()
        empty += [
            f"{kind}: {one.name}" for one in own if (hints[one.name], one.default) == (Filled, "")
        ]
    assert len(kinds) > 10 and not empty


@pytest.mark.parametrize("key", ["", "unit = 'ms'", "labels = {handler = '/thumb'}"])
def test_under_a_load_only_the_path_of_the_metrics_needs_no_histogram(
    opened: Opening, service: Service, key: str
) -> None:
    with raised(ConfigError, "latency has no histogram"):
        opened.by(f'name = "a"\nurl = "{service.url}"\n{LOAD}\n[latency]\n{key}\n')


def test_a_file_without_figures_and_load_is_refused(opened: Opening, service: Service) -> None:
    with raised(ConfigError, "[latency]", "[load]"):
        opened.by(f'name = "a"\nurl = "{service.url}"\n')


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("service:", "absolute path"),
        ("service:x.toml", "absolute path"),
        ("service:/x.toml", "cannot read /x"),
    ],
)
def test_a_file_that_is_not_found_from_everywhere_is_refused(spec: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        open_workload(spec, seed=0, state_dir=Path(), clock=Time())


def test_a_service_at_an_unlisted_value_is_restored_too(opened: Opening, service: Service) -> None:
    """The service has an unlisted value; `apply`, and a new start, must still set a listed one."""
    side = opened()
    service.config["pool"]["workers"] = 3
    with raised(ActuationError, "values"):
        side.actuator.read()
    side.actuator.apply({"workers": 4, "codec": "fast"})
    assert side.actuator.read() == {"workers": 4, "codec": "fast"}
    service.config["pool"]["workers"] = 3
    again = opened()
    again.actuator.apply({"workers": 4})
    assert service.config["pool"]["workers"] == 4


def test_restarting_knobs_are_set_before_volatile_ones(opened: Opening, service: Service) -> None:
    head, workers, rest = opened.text.split("[[knob]]")
    codec, latency = rest.split("[latency]")
    side = opened.by(f"{head}[[knob]]{codec}[[knob]]{workers}[latency]{latency}")
    service.forgets = True
    side.actuator.apply({"codec": "small", "workers": 2})
    setting = side.actuator.read()
    assert setting == {"codec": "small", "workers": 2}


def test_calls_that_restart_a_service_are_merged_if_their_keys_differ(
    opened: Opening, service: Service
) -> None:
    text = opened.text.replace("{ pool = { workers", "{ workers")
    head, workers, rest = text.replace(
        '{ workers = "{value}" } }', '{ workers = "{value}" }'
    ).split("[[knob]]")
    workers = workers.replace("pool.workers", "workers")
    queue = workers.replace("workers", "queue")
    service.config = {"workers": 4, "queue": 4}
    side = opened.by(f"{head}[[knob]]{workers}[[knob]]{queue}[[knob]]{rest}")
    side.actuator.apply({"workers": 2, "codec": "small", "queue": 1})
    assert service.asked == [("POST", "/config", {"workers": 2, "queue": 1})]
    assert service.codec == "small"


def test_under_our_own_load_restarts_and_cpu_time_are_reported_too(
    opened: Opening, service: Service
) -> None:
    text = opened.text.partition("[latency]")[0] + LOAD
    side = opened.by(text)
    actuator = side.actuator
    assert isinstance(actuator, Restartable) and "cpu_time_ms" in {m.name for m in side.metrics}
    before = actuator.incarnation()
    service.started += 60.0
    assert before and actuator.incarnation() != before
    service.gone = True
    without = opened.by(text)
    assert not isinstance(without.actuator, Restartable)
