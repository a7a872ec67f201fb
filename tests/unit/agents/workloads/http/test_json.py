"""The HTTP parts of a service file: numbers in JSON; values in paths, bodies, headers; traces of a load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agents.target.side import Side
from agents.workloads import open_workload
from tests.errors import raised
from tests.integration.spoken import Spoken, running
from tests.unit.agents.workloads.http.wall import Wall
from tuner.core import ConfigError, InvalidInput, MeasurementError

FILE = """
name = "shop"
url = "{url}"

[[knob]]
name = "workers"
values = [1, 2]
default = 1
set = {{ path = "{other}/scale?to={{value}}&wait=true" }}
read = {{ path = "{other}/stats", json = "workers" }}

[[json]]
name = "queue"
path = "/stats"
json = "pool.0.queue"
better = "less"

[[json]]
name = "hits_per_look"
path = "/stats"
json = "hits"
per = "looks"

[load]
callers = 1
path = "/work"
body = "x"
headers = {{ "Accept-Encoding" = "gzip", "content-type" = "text/plain" }}
warm_up_s = 0.25
"""


class Shop(ThreadingHTTPServer):
    """A service that answers with JSON and records its requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ShopHandler)
        self.stats: dict[str, Any] = {"workers": 1, "pool": [{"queue": 3}], "hits": 10, "looks": 5}
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.scaled: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class ShopHandler(Spoken):
    server: Shop

    def do_GET(self) -> None:
        if self.path == "/stats":
            return self.answer(200, self.server.stats)
        return self.answer(404, {})

    def do_PUT(self) -> None:
        self.server.scaled.append(self.path)
        self.server.stats["workers"] = int(self.path.partition("to=")[2].partition("&")[0])
        self.body()
        self.answer(200, {})

    def do_POST(self) -> None:
        sent = {name.lower(): text for name, text in self.headers.items()}
        self.server.seen.append((self.path, sent, self.body()))
        self.answer(200, {})


@pytest.fixture
def shops() -> Iterator[list[Shop]]:
    with running(Shop()) as one, running(Shop()) as other:
        yield [one, other]


def opened(folder: Path, shops: list[Shop], more: str = "", **changes: str) -> Side:
    text = FILE.format(url=shops[0].url, other=shops[1].url)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    file = folder / "shop.toml"
    file.write_text(text)
    return open_workload(f"service:{file}{more}", seed=0, state_dir=folder, clock=Wall())


def test_a_value_is_filled_into_a_path_of_another_port(tmp_path: Path, shops: list[Shop]) -> None:
    side = opened(tmp_path, shops)
    side.actuator.apply({"workers": 2})
    assert shops[1].scaled == ["/scale?to=2&wait=true"]
    assert side.actuator.read() == {"workers": 2}
    side.close()


def test_numbers_are_means_or_growth_by_growth(tmp_path: Path, shops: list[Shop]) -> None:
    side, stats = opened(tmp_path, shops), shops[0].stats
    window = side.meter.start()
    for queue in (4, 6, 8):
        stats["pool"][0]["queue"] = queue
        stats["hits"] += 6
        stats["looks"] += 4
        shown = window.read()
    assert shown.estimates["queue"].mean == 6.0
    assert shown.estimates["queue"].stderr == pytest.approx(2.0 / 3**0.5)
    assert shown.estimates["hits_per_look"].mean == 1.5
    stats["looks"] = 0
    with raised(MeasurementError, "hits_per_look"):
        window.read()
    stats["hits"] = "many"
    with raised(MeasurementError, "hits", "/stats"):
        window.read()
    with pytest.raises(MeasurementError):
        window.stop()
    side.close()
    assert side.warm_up_s == 0.25
    assert {"queue", "hits_per_look"} <= {metric.name for metric in side.metrics}


def test_a_load_has_headers_and_a_body(tmp_path: Path, shops: list[Shop]) -> None:
    (tmp_path / "body.bin").write_bytes(b"\x00\xffbody")
    side = opened(tmp_path, shops, **{'body = "x"': f'body_file = "{tmp_path}/body.bin"'})
    window = side.meter.start()
    while not shops[0].seen:
        Wall().sleep(0.01)
    window.stop()
    path, headers, body = shops[0].seen[0]
    assert (path, body) == ("/work", b"\x00\xffbody")
    assert (headers["accept-encoding"], headers["content-type"]) == ("gzip", "text/plain")
    side.close()


def test_a_trace_takes_the_place_of_the_files_load(tmp_path: Path, shops: list[Shop]) -> None:
    (tmp_path / "trace.csv").write_text("arrival_s\n5.0\n5.05\n5.3\n")
    side = opened(tmp_path, shops, f"#trace:{tmp_path}/trace.csv")
    assert side.source == "our load generator, a trace of 3 arrivals in 0.45 s"
    assert "arrival_rate_per_s" in {metric.name for metric in side.metrics}
    window = side.meter.start()
    Wall().sleep(0.4)
    shown = window.stop()
    assert shown.totals["items"] == len(shops[0].seen) >= 3
    side.close()
    with raised(ConfigError, "arrival_s"):
        (tmp_path / "trace.csv").write_text("at\n1\n2\n")
        opened(tmp_path, shops, f"#trace:{tmp_path}/trace.csv")
    with raised(InvalidInput, "#"):
        opened(tmp_path, shops, "#callers:4")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('body = "x"', 'body = "x"\nbody_file = "/a"', "has body and body_file"),
        ('body = "x"', 'body_file = "a"', "body_file must be an absolute path"),
        ('body = "x"', 'body_file = "/no/such"', "cannot read the body /no/such: No such file"),
        ('body = "x"', 'trace = "/no/such.csv"', "cannot read the trace /no/such.csv"),
        ('body = "x"', 'trace = "trace.csv"', "trace must be an absolute path"),
        ('"Accept-Encoding"', '"Content-Length"', "the header 'Content-Length' cannot be sent"),
        ('"Accept-Encoding"', '"A B"', "the header 'A B' cannot be sent"),
        ('"gzip"', '"gzip\\r\\nX: y"', "must be a line of text"),
        ("warm_up_s = 0.25", "warm_up_s = -1", "warm_up_s must be above 0, not -1"),
        ("warm_up_s = 0.25", "warm_up_s = inf", "warm_up_s must be finite, not inf"),
        ('path = "/work"', 'path = "http://127.0.0.1:1/work"', "path must begin with /"),
        ("/scale?to={value}&wait=true", "/scale", "set has no json"),
        ('json = "hits"', "json = 3", "json must be a string"),
        ('name = "queue"', 'name = "latency_p99_ms"', "duplicate metric latency_p99_ms"),
        ('name = "queue"', 'name = "hits_per_look"', "duplicate metric hits_per_look"),
        ('better = "less"', 'better = "none"', "better cannot be 'none'"),
    ],
)
def test_an_invalid_service_file_is_refused_with_the_place_of_the_error(
    tmp_path: Path, shops: list[Shop], old: str, new: str, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        opened(tmp_path, shops, **{old: new})
    assert says in str(caught.value) and "shop.toml" in caught.value.message


def test_an_address_of_another_host_is_refused(tmp_path: Path, shops: list[Shop]) -> None:
    for host in ("http://192.0.2.1:80", "http://example.org", "http://127.0.0.1"):
        with raised(ConfigError, "shop.toml", "knob 1"):
            opened(tmp_path, shops, **{shops[1].url: host})


def test_a_trace_needs_a_load_that_is_ours(tmp_path: Path, shops: list[Shop]) -> None:
    text = FILE.format(url=shops[0].url, other=shops[1].url)
    text = text.partition("[load]")[0] + "[latency]\nhistogram = 'a'\n"
    (tmp_path / "shop.toml").write_text(text)
    spec = f"service:{tmp_path}/shop.toml#trace:{tmp_path}/trace.csv"
    with raised(ConfigError, "trace"):
        open_workload(spec, seed=0, state_dir=tmp_path, clock=Wall())
    assert json.dumps(shops[0].seen) == "[]"
