"""An ordinary service without jouletune: one knob, and the metrics of its client library."""

from __future__ import annotations

import json
import sys
import time
from http.server import ThreadingHTTPServer

from prometheus_client import Counter, Histogram, generate_latest

from tests.integration.spoken import Spoken, serve

PAUSES_S = {1: 0.02, 2: 0.004, 4: 0.02}
"""The seconds of a thumbnail, by the number of workers."""
LATENCY = Histogram(
    "http_request_duration_seconds",
    "How long a request took.",
    ["handler"],
    buckets=(0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.1),
)
FAILURES = Counter("http_request_failures_total", "Requests that were not answered well.")


class Thumbnails(ThreadingHTTPServer):
    """The server and its config."""

    daemon_threads = True
    config = {"pool": {"workers": 1}}  # noqa: RUF012


class Handler(Spoken):
    """One connection."""

    server: Thumbnails

    def do_GET(self) -> None:
        if self.path == "/config":
            return self.answer(200, self.server.config)
        if self.path == "/metrics":
            return self.send(200, generate_latest())
        return self.answer(404, {})

    def do_POST(self) -> None:
        body = self.body()
        if self.path == "/thumbnail":
            with LATENCY.labels("/thumbnail").time():
                time.sleep(PAUSES_S[self.server.config["pool"]["workers"]])
            return self.send(200, b"a picture")
        config = json.loads(body)
        if config["pool"]["workers"] not in PAUSES_S:
            FAILURES.inc()
            return self.answer(422, {})
        self.server.config = config
        return self.answer(200, config)


if __name__ == "__main__":
    serve(Thumbnails(("127.0.0.1", int(sys.argv[1])), Handler))
