"""A redirect of a program is followed within its host; else the error names its target."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest

from agents.host.http.local_http import LocalHttp
from agents.load.exposition import scrape
from tests.integration.spoken import Spoken, running
from tuner.core import ActuationError, MeasurementError


class Redirecting(Spoken):
    """Redirects /metrics to /metrics/ (307), as Starlette's mounts do, and /away to another port (302)."""

    protocol_version = "HTTP/1.0"  # bodies are not read

    def do_GET(self) -> None:
        target = {"/metrics": "/metrics/", "/away": "http://127.0.0.1:9/metrics"}.get(self.path)
        self.send_response(200 if target is None else 307)
        if target is not None:
            self.send_header("Location", target)
        body = b"" if target else b"# TYPE up gauge\nup 1\n"
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET


@pytest.fixture
def http() -> Iterator[LocalHttp]:
    with running(ThreadingHTTPServer(("127.0.0.1", 0), Redirecting)) as server:
        made = LocalHttp(f"http://127.0.0.1:{server.server_port}", "svc", "start it")
        yield made
        made.close()


def test_a_redirect_within_the_host_is_followed(http: LocalHttp) -> None:
    assert "up 1" in http.call("GET", "/metrics").text
    assert [s.value for s in scrape(http.client, f"{http.url}/metrics", ["up"])] == [1.0]


def test_a_redirect_to_elsewhere_is_named_with_its_target(http: LocalHttp) -> None:
    with pytest.raises(ActuationError, match=r"redirected to http://127\.0\.0\.1:9/metrics"):
        http.call("GET", "/away")
    with pytest.raises(MeasurementError, match=r"redirected to http://127\.0\.0\.1:9/metrics"):
        scrape(http.client, f"{http.url}/away", ["up"])


def test_a_setting_that_is_redirected_is_not_sent_on(http: LocalHttp) -> None:
    with pytest.raises(ActuationError, match=r"it redirects to .*/metrics/"):
        http.call("POST", "/metrics", {"batch": 1})
