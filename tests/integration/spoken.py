"""The common part of test workloads that are processes: one connection with JSON, and their start."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Spoken(BaseHTTPRequestHandler):
    """A connection that logs nothing and answers with JSON."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:  # noqa: ANN401
        """Log nothing."""

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, status: int, body: Mapping[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def serve(server: ThreadingHTTPServer) -> None:
    """Print the port to standard output, and serve until killed."""
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()
