"""Time limits of PostgreSQL connections. Imports psycopg: import this only if psycopg is installed."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from typing import Any

from psycopg import Connection, OperationalError
from sqlalchemy import Engine, event

STATEMENT_S = 30
"""Longest statement in seconds, unless `statement_timeout` is set in the URL, for the role or elsewhere.

The same limit applies to an idle transaction. Without it the locks of a lost client would last until the
server notices the loss, by default after two hours.
"""
GRACE_S = 15.0
"""Seconds of silence beyond the longest statement after which a connection is given up."""


class PatientConnection(Connection[Any]):
    """A connection that is given up after `patience_s` seconds of silence within a statement.

    Keepalives detect a lost machine, but not a proxy or a stopped server that keeps the connection open;
    the server's limit does not reach the client then.
    """

    patience_s = STATEMENT_S + GRACE_S

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Wait for an answer. Raises OperationalError and closes the connection if none arrives."""
        return super().wait(self._within(gen), *args, **kwargs)

    def _within(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Run psycopg's exchange with the server; it checks for data every 0.1 s."""
        heard_s = time.monotonic()
        try:
            wait = next(gen)
            while True:
                ready = yield wait
                if ready:
                    heard_s = time.monotonic()
                elif time.monotonic() - heard_s > self.patience_s:
                    self.close()
                    silent = f"the connection was silent for {self.patience_s:g} s"
                    raise OperationalError(silent)
                wait = gen.send(ready)
        except StopIteration as done:
            return done.value


def limit(engine: Engine) -> None:
    """Limit the time of this engine's statements, and the silence of its connections."""
    event.listen(engine, "do_connect", _connect)
    event.listen(engine, "connect", _limit_statements)


def _connect(_dialect: object, _record: object, args: Any, options: Any) -> Connection[Any]:  # noqa: ANN401
    """Open a PatientConnection in place of psycopg's own."""
    return PatientConnection.connect(*args, **options)


def _limit_statements(connection: PatientConnection, _record: object) -> None:
    """Set the server's limits unless they are set already; set `patience_s` to the limit plus `GRACE_S`."""
    connection.execute(
        "SELECT set_config(name, %s, false) FROM pg_settings WHERE source = 'default'"
        " AND name IN ('statement_timeout', 'idle_in_transaction_session_timeout')",
        (f"{STATEMENT_S}s",),
    )
    selected = connection.execute(
        "SELECT setting FROM pg_settings WHERE name = 'statement_timeout'"
    )
    limit_ms = int(selected.fetchall()[0][0])
    connection.patience_s = limit_ms / 1000.0 + GRACE_S if limit_ms else math.inf
    connection.commit()
