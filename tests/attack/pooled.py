"""PostgreSQL behind a pooler that lends backends per transaction: never two leaders."""

from __future__ import annotations

import queue
import select
import shutil
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests import postgres
from tests.attack.site import Scenario, Site
from tests.integration.stage import JOULETUNE, Stage, stage
from tests.processes import reserved_port

ENCRYPTION = (80877103, 80877104)
"""Requests for TLS and GSSAPI at the start of a connection."""
BACKENDS = 3
START_S, BESIDE_S = 30.0, 20.0
PGBOUNCER = """
[databases]
{name} = host=127.0.0.1 port={server} dbname={name} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
auth_type = any
pool_mode = transaction
default_pool_size = 3
unix_socket_dir =
ignore_startup_parameters = extra_float_digits,options
"""


class Pooler:
    """A stand-in for PgBouncer in transaction mode: the last backend returned is lent first.

    https://www.pgbouncer.org/features.html: "a server connection is assigned to a client only during a
    transaction".
    """

    def __init__(self, server: int) -> None:
        self._server = server
        self._free: queue.LifoQueue[socket.socket] = queue.LifoQueue()
        self._start = self._greeting = b""
        self._made = threading.Lock()
        self._count = 0

    def serve(self, listening: socket.socket) -> None:
        """Serve each client in a thread until the listening socket is closed."""
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                threading.Thread(target=self._client, args=(client,), daemon=True).start()

    def _client(self, client: socket.socket) -> None:
        with suppress(OSError, EOFError, struct.error), closing(client):
            start = _exactly(client, struct.unpack("!I", _exactly(client, 4))[0] - 4)
            while struct.unpack("!I", start[:4])[0] in ENCRYPTION:
                client.sendall(b"N")
                start = _exactly(client, struct.unpack("!I", _exactly(client, 4))[0] - 4)
            with self._made:
                if not self._greeting:
                    self._start = start
                    self._free.put(self._backend())
            client.sendall(self._greeting)
            while (sent := client.recv(65_536)) and not sent.startswith(b"X"):
                backend = self._lent()
                try:
                    self._transaction(client, backend, sent)
                finally:
                    self._free.put(backend)

    def _lent(self) -> socket.socket:
        """Return the last returned backend, or a new one; wait if too many are open."""
        with self._made:
            with suppress(queue.Empty):
                return self._free.get_nowait()
            if self._count < BACKENDS:
                return self._backend()
        return self._free.get()

    def _backend(self) -> socket.socket:
        """Open a backend with the first client's startup message, and keep the server's greeting."""
        made = socket.create_connection(("127.0.0.1", self._server))
        made.sendall(struct.pack("!I", len(self._start) + 4) + self._start)
        greeting, kind = b"", b""
        while kind != b"Z":
            head = _exactly(made, 5)
            kind = head[:1]
            greeting += head + _exactly(made, struct.unpack("!I", head[1:])[0] - 4)
        self._greeting, self._count = greeting, self._count + 1
        return made

    def _transaction(self, client: socket.socket, backend: socket.socket, sent: bytes) -> None:
        """Forward messages until the server is idle outside a transaction."""
        backend.sendall(sent)
        unread = b""
        while True:
            for ready in select.select([client, backend], [], [])[0]:
                part = ready.recv(65_536)
                if not part:
                    raise EOFError
                (backend if ready is client else client).sendall(part)
                unread += part if ready is backend else b""
            while len(unread) >= 5:
                size = struct.unpack("!I", unread[1:5])[0] + 1
                if len(unread) < size:
                    break
                if unread[:1] == b"Z" and unread[5:6] == b"I" and len(unread) == size:
                    return
                unread = unread[size:]


def _exactly(line: socket.socket, size: int) -> bytes:
    whole = b""
    while len(whole) < size:
        part = line.recv(size - len(whole))
        if not part:
            raise EOFError
        whole += part
    return whole


@contextmanager
def pooled(url: str, folder: Path, played: Stage) -> Iterator[tuple[str, str]]:
    """Yield the pooler's name and the URL of a database behind it: PgBouncer if it is installed."""
    server, program = make_url(url).port or 0, shutil.which("pgbouncer")
    if program is not None:
        port, config = reserved_port(), folder / "pgbouncer.ini"
        about = {"name": make_url(url).database, "user": make_url(url).username}
        config.write_text(PGBOUNCER.format(server=server, port=port, **about))
        folder.chmod(0o755)
        played.spawn("pgbouncer", [program, "-u", "nobody", str(config)])
        time.sleep(1.0)
        yield "pgbouncer", make_url(url).set(port=port).render_as_string(hide_password=False)
        return
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=Pooler(server).serve, args=(listening,), daemon=True).start()
        through = make_url(url).set(port=listening.getsockname()[1])
        yield "stand-in", through.render_as_string(hide_password=False)


def pooled_transactions(_site: Site, told: Scenario) -> None:
    """Run two tuners on PostgreSQL through a pooler per transaction: refused by name, or one leader."""
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        try:
            url = held.enter_context(postgres.server(folder / "postgres"))
        except pytest.skip.Exception as absent:
            told.counts["not_run"] = str(absent)
            return
        played = held.enter_context(stage(folder))
        told.counts["pooler"], db = held.enter_context(pooled(url, folder, played))
        for name in ("first", "second"):
            options = ["--port", str(reserved_port()), "--token-file", str(played.token_file)]
            played.spawn(name, [*JOULETUNE, "tuner", "serve", "--db", db, *options])
            _until_decided(played, name)
        time.sleep(BESIDE_S if "event=leads" in played.log("first") else 0.0)
        logs = [(folder / f"{name}.log").read_text() for name in ("first", "second")]
    leaders = sum("event=leads" in log for log in logs)
    refused = sum("session mode" in log for log in logs)
    told.counts |= {"leaders": leaders, "refused": refused}
    told.expect(leaders <= 1, f"{leaders} tuners lead one database")
    told.expect(leaders + refused > 0, f"neither led nor refused: {logs[0][-300:]}")


def _until_decided(played: Stage, name: str) -> None:
    """Wait until a tuner has ended or leads, at most for its time limit."""
    end = time.monotonic() + START_S
    while time.monotonic() < end and played.processes[name].poll() is None:
        if "event=leads" in played.log(name):
            return
        time.sleep(0.2)
