"""Engines: how SQLite and PostgreSQL are connected to, and for how long they may keep us waiting."""

from __future__ import annotations

import json
import select
import sqlite3
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from sqlalchemy import URL, Compiled, Connection, Engine, QueuePool, create_engine, event
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.schema import CreateIndex, CreateTable

from db.schema import Base
from db.sql.address import IN_MEMORY
from tuner.core import ConfigError

BUSY_TIMEOUT_MS = 10_000
MOST_CONNECTIONS = 40
"""As many as threads work for requests; one that is made and closed costs as much as ten questions."""
FRESH_S = 1.0
"""A connection that was used so lately and that nothing has come from is not asked whether it lives."""
PATIENCE = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
"""When libpq gives up a PostgreSQL server that is gone, in seconds (the last in ms): within half a minute.

Source: https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS"""


def connect(url: URL) -> Engine:
    """Return an engine for a database; nothing is connected yet, and statements take what they take.

    Raises:
        ConfigError: the driver is not installed.
    """
    if url == IN_MEMORY:
        return MemoryEngines().make()
    if url.get_backend_name() == "sqlite":
        return _of_sqlite(url, pool_size=MOST_CONNECTIONS)
    url = url.update_query_dict(PATIENCE | dict(url.query))
    try:
        engine = create_engine(
            url, pool_size=MOST_CONNECTIONS, max_overflow=0, json_serializer=_to_json
        )
    except ImportError as error:
        raise ConfigError(
            "the PostgreSQL driver is not installed", hint="pip install 'jouletune[postgres]'"
        ) from error
    event.listen(engine, "connect", _without_jit)
    event.listen(engine, "checkin", _note_use)
    event.listen(engine, "checkout", partial(_refuse_lost, engine))
    return engine


def _without_jit(connection: Any, _record: object) -> None:  # noqa: ANN401  the driver's
    """Turn off the compiling of statements: it took 2.4 s for a chart that is read in 20 ms."""
    connection.execute("SET jit = off")
    connection.commit()


class MemoryEngines:
    """Makes engines of databases in memory: each its own, and what one has compiled all have."""

    def __init__(self) -> None:
        # One connection, with which the database ends: threads take turns with it.
        threads = {"check_same_thread": False}
        self._first = _of_sqlite(IN_MEMORY, pool_size=1, poolclass=QueuePool, connect_args=threads)
        self._compiled: dict[Any, Compiled] = {}
        self._empty = sqlite3.connect(":memory:", check_same_thread=False)
        self._empty.executescript(_script())
        event.listen(self._first, "connect", self._fill)

    def make(self) -> Engine:
        """Return an engine of one more database, with our tables and nothing in them."""
        first, compiled = self._first, {"compiled_cache": self._compiled}
        engine = Engine(first.pool.recreate(), first.dialect, first.url, execution_options=compiled)
        event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _fill(self, connection: sqlite3.Connection, _record: object) -> None:
        self._empty.backup(connection)


def _of_sqlite(url: URL, **options: Any) -> Engine:  # noqa: ANN401  create_engine's
    engine = create_engine(url, max_overflow=0, json_serializer=_to_json, **options)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _to_json(value: object) -> str:
    return json.dumps(value, allow_nan=False, default=_as_dict)


def _as_dict(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _note_use(_connection: object, record: ConnectionPoolEntry) -> None:
    record.info["used_s"] = time.monotonic()


def _refuse_lost(
    engine: Engine, connection: DBAPIConnection, record: ConnectionPoolEntry, _proxy: object
) -> None:
    """Have the pool make another connection in place of an idle one that was lost."""
    idle_s = time.monotonic() - record.info.get("used_s", time.monotonic())
    if idle_s < FRESH_S and not _has_arrived(record):
        return
    try:
        engine.dialect.do_ping(connection)
    except engine.dialect.loaded_dbapi.Error as error:
        raise DisconnectionError from error


def _has_arrived(record: ConnectionPoolEntry) -> bool:
    """Return whether something waits to be read on a connection, as its end does that the server made."""
    driver = record.driver_connection
    assert driver is not None
    arrived = select.poll()
    arrived.register(driver.fileno(), select.POLLIN)
    return bool(arrived.poll(0))


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    # Transactions are begun by `_begin_sqlite`, not by the driver's guess at the statement.
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    _enter_wal(connection)
    connection.execute("PRAGMA synchronous = FULL")  # what was acknowledged survives a power cut
    connection.execute("PRAGMA foreign_keys = ON")


def _enter_wal(connection: sqlite3.Connection) -> None:
    """Turn a file to write-ahead logging, which SQLite does not wait for locks with by itself."""
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000.0
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    # A reader that turns writer midway fails when another wrote since; writers say so at once.
    kind = connection.get_execution_options().get("sqlite_begin", "DEFERRED")
    connection.exec_driver_sql(f"BEGIN {kind}")


def _script() -> str:
    """Return the statements that make our tables: migrations would take a hundred times as long."""
    dialect, tables = sqlite.dialect(), Base.metadata.sorted_tables
    statements = [CreateTable(table).compile(dialect=dialect) for table in tables]
    indexes = [CreateIndex(i).compile(dialect=dialect) for table in tables for i in table.indexes]
    return ";".join(map(str, [*statements, *indexes]))
