"""How long PostgreSQL may keep us waiting. Imports psycopg; import this only where psycopg is installed."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from typing import Any

from psycopg import Connection, OperationalError
from sqlalchemy import Engine, event

STATEMENT_S = 30
"""The longest statement, unless another `statement_timeout` is set: in the URL, for the role …

As long, likewise, may a transaction idle: else what it locked stays locked for as long as the server does
not notice the lost client, by default two hours.
"""
GRACE_S = 15.0
"""How much longer than the longest statement a connection may be silent, before it is given up."""


class PatientConnection(Connection[Any]):
    """A connection that is given up once it is silent for `patience_s` within a statement.

    Keepalives tell that a machine is gone, not that a proxy or a stopped server holds the line; the
    server's own limit is never heard of then.
    """

    patience_s = STATEMENT_S + GRACE_S

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Wait for an answer. Raises OperationalError, and closes, where none comes."""
        return super().wait(self._within(gen), *args, **kwargs)

    def _within(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Run psycopg's exchange with the server, with a check every 0.1 s for data."""
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
    """Give up statements of this engine that take too long, and connections that fall silent."""
    event.listen(engine, "do_connect", _connect)
    event.listen(engine, "connect", _limit_statements)


def _connect(_dialect: object, _record: object, args: Any, options: Any) -> Connection[Any]:  # noqa: ANN401
    return PatientConnection.connect(*args, **options)


def _limit_statements(connection: PatientConnection, _record: object) -> None:
    """Set limits where none are set, and be a little more patient than a statement may take."""
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
