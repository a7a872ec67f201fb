"""Serve an agent's metrics to Prometheus on loopback or a Unix socket, never beyond the host."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from agents.config import MetricsAddress
from tuner.core import ConfigError

log = logging.getLogger(__name__)

PATIENCE_S = 5.0
TEXT = "text/plain; version=0.0.4; charset=utf-8"
LOCAL = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?")
"""The accepted Host headers. A foreign web page could resolve its own name to loopback (DNS rebinding)."""


class MetricsServer(HTTPServer):
    """A server with one thread that answers one request at a time; see `get_request` for the timeout."""

    def __init__(self, address: MetricsAddress, text: Callable[[], bytes]) -> None:
        self.text = text
        self._path = address.path
        if address.path is not None:
            self.address_family = socket.AF_UNIX
            if address.path.is_socket():  # left by a crash
                address.path.unlink()
            super().__init__(str(address.path), MetricsRequest)  # type: ignore[arg-type]
            return
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        super().__init__((address.host, address.port), MetricsRequest)

    def server_bind(self) -> None:
        """Bind the socket without the name lookup that HTTPServer makes."""
        if self._path is None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        if self._path is not None:
            os.chmod(self._path, 0o660)  # noqa: PTH101 - the path as bound
        self.server_name, self.server_port = "localhost", 0

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        """Accept a connection. Each read or write on it has a timeout of `PATIENCE_S` seconds."""
        connection, _ = self.socket.accept()
        connection.settimeout(PATIENCE_S)
        return connection, ("local", 0)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log the exception of one request; the server continues with the next."""
        log.warning("event=metrics_not_told", exc_info=True)


class MetricsRequest(BaseHTTPRequestHandler):
    """The handler of one request for the metrics."""

    server: MetricsServer
    server_version = "jouletune"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer `/metrics`; refuse other paths, and over TCP other Host headers than loopback's."""
        host = self.headers.get("Host", "")
        if self.server.address_family != socket.AF_UNIX and not LOCAL.fullmatch(host):
            self._answer(400, b"the Host header must name this host\n")
        elif self.path != "/metrics":
            self._answer(404, b"there is only /metrics\n")
        else:
            self._answer(200, self.server.text())

    def _answer(self, status: int, body: bytes) -> None:
        """Send a response in the Prometheus text format."""
        self.send_response(status)
        self.send_header("Content-Type", TEXT)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, because requests arrive every few seconds."""


@contextmanager
def serving(address: MetricsAddress, text: Callable[[], bytes]) -> Iterator[MetricsServer]:
    """Serve the metrics while the block runs.

    Raises:
        ConfigError: the port or file is in use, or the agent may not create it.
    """
    try:
        server = MetricsServer(address, text)
    except OSError as error:
        where = address.path or f"{address.host}:{address.port}"
        raise ConfigError(
            f"cannot serve metrics at {where}: {error.strerror}",
            hint="choose another address in agent.toml",
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        if address.path is not None:
            address.path.unlink(missing_ok=True)
