"""A small server that follows the workload contract, or breaks it on a test's request."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import ThreadingHTTPServer
from typing import Any

from tests.integration.spoken import Spoken

KNOBS: list[dict[str, Any]] = [
    {"name": "instances", "values": [1, 2], "default": 1, "cost": {"seconds": 3.0}},
    {"name": "batch_size", "values": [1, 2, 4], "default": 1},
]
ONLY = [
    {"instances": instances, "batch_size": batch_size}
    for instances in (1, 2)
    for batch_size in (1, 2, 4)
    if (instances, batch_size) != (2, 4)
]


class StandIn:
    """The server's state.

    `answers` overrides a route, `more` adds to the totals, `gate` holds back every inference.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.setting: dict[str, Any] = {"instances": 1, "batch_size": 1}
        self.puts: list[dict[str, Any]] = []
        self.items = 0
        self.cpu_s = 5.0
        self.forgets_puts = False
        self.version = "7"
        self.more: dict[str, Any] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.connections: list[socket.socket] = []
        self.answers: dict[str, tuple[int, bytes]] = {}
        state = self

        class Handler(Spoken):
            wbufsize = -1

            def setup(self) -> None:
                state.connections.append(self.request)
                super().setup()

            def reply(self) -> None:
                body = self.body()
                route = f"{self.command} {self.path}"
                if self.command == "POST":
                    state.gate.wait(20)
                with state.lock:
                    status, content = state.answers.get(route) or state.reply(route, body)
                self.send(status, content, "application/json")

            do_GET = do_PUT = do_POST = reply

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def knobs(self) -> dict[str, Any]:
        return {
            "name": "stand-in",
            "version": self.version,
            "knobs": KNOBS,
            "only": ONLY,
            "setting": self.setting,
        }

    def override(self, route: str, content: Mapping[str, Any], status: int = 200) -> None:
        self.answers[route] = (status, json.dumps(content).encode())

    def reply(self, route: str, body: bytes) -> tuple[int, bytes]:
        if route == "PUT /knobs":
            self.puts.append(json.loads(body))
            if not self.forgets_puts:
                self.setting = {**self.setting, **self.puts[-1]}
        elif route == "POST /infer":
            self.items += 1
            self.cpu_s += 0.002
        content: Mapping[str, Any] = {
            "GET /knobs": self.knobs(),
            "PUT /knobs": {"setting": self.setting},
            "GET /stats": {
                "cpu_s": self.cpu_s,
                "items": self.items,
                "failed": 0,
                "pids": [1],
                **self.more,
            },
            "POST /infer": {"label": 1},
        }[route]
        return 200, json.dumps(content).encode()

    def close(self) -> None:
        """End as a killed server does: the port is closed, and so is every connection."""
        self.gate.set()
        self._server.shutdown()
        self._thread.join()
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
