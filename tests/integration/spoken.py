"""The common part of servers of tests: one connection with JSON, and their start as process or thread."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer
from typing import Any, TypeVar

ServerT = TypeVar("ServerT", bound=BaseServer)


class Spoken(BaseHTTPRequestHandler):
    """A connection that logs nothing and answers with JSON."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:  # noqa: ANN401
        """Log nothing."""

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, status: int, body: object) -> None:
        self.send(status, json.dumps(body).encode(), "application/json")

    def send(self, status: int, content: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        with suppress(ConnectionError):  # the caller may have ended
            self.end_headers()
            self.wfile.write(content)


@contextmanager
def running(server: ServerT) -> Iterator[ServerT]:
    """Serve in a thread until the block ends."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def serve(server: ThreadingHTTPServer) -> None:
    """Print the port to standard output, and serve until killed."""
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()
