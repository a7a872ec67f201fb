"""A workload of a few lines that speaks the knob contract, as a process of its own.

It serves an item after a fixed sleep that depends on its knob, so a trial takes real time but no CPU,
and what it is set to outlives the agent, as hardware would.
"""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PAUSES_MS = {1: 16.0, 2: 12.0, 4: 6.0, 8: 20.0}
KNOB = {
    "name": "batch_size",
    "values": list(PAUSES_MS),
    "default": 1,
    "cost": {"seconds": 0.0, "restart": False},
}


class Toy(ThreadingHTTPServer):
    """The server, its one setting and its count of items."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.setting = {"batch_size": 1}
        self.items = 0


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Toy

    def log_message(self, *_: Any) -> None:  # noqa: ANN401
        """Say nothing."""

    def do_GET(self) -> None:
        if self.path == "/knobs":
            about = {"name": "toy", "version": "1", "knobs": [KNOB]}
            return self.answer(200, {**about, "setting": self.server.setting})
        stats = {"cpu_s": time.process_time(), "items": self.server.items, "failed": 0}
        return self.answer(200, {**stats, "pids": [], "incarnation": str(os.getpid())})

    def do_PUT(self) -> None:
        wanted = json.loads(self.body())
        if wanted.get("batch_size") not in PAUSES_MS:
            problem = {"code": "out_of_range", "message": f"cannot be {wanted}"}
            return self.answer(422, {"error": problem})
        self.server.setting = {"batch_size": wanted["batch_size"]}
        return self.answer(200, {"setting": self.server.setting})

    def do_POST(self) -> None:
        self.body()
        time.sleep(PAUSES_MS[self.server.setting["batch_size"]] / 1000.0)
        self.server.items += 1
        self.answer(200, {"label": 1})

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


if __name__ == "__main__":
    toy = Toy(int(sys.argv[1]))
    sys.stdout.write(f"{toy.server_address[1]}\n")
    sys.stdout.flush()
    toy.serve_forever()
