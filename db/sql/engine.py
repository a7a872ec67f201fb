"""Engines: how SQLite and PostgreSQL are connected to, with the time limits of a connection."""

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
from sqlalchemy.engine.interfaces import DBAPIConnection, ExceptionContext
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.schema import CreateIndex, CreateTable

from db.schema import Base
from db.sql.address import IN_MEMORY
from tuner.core import ConfigError

BUSY_TIMEOUT_MS = 10_000
MOST_CONNECTIONS = 40
"""One per thread that serves requests; to open and close a connection costs as much as ten queries."""
FRESH_S = 1.0
"""A connection used less than this many seconds ago, with no data to read, is used without a ping."""
PATIENCE = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
"""Limits for libpq to give up a lost PostgreSQL server: within 30 s. In seconds, the last in ms.

Source: https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS"""

SESSION = {
    "jit": "off",  # its compilation took 2.4 s for a chart that is read in 20 ms
    "default_transaction_isolation": "'read committed'",  # serializable ones must be repeated
    "datestyle": "ISO",  # psycopg reads no other
    "client_encoding": "UTF8",
    "extra_float_digits": "3",  # floats come back as they were stored
}
READ_ONLY = "25006"
"""PostgreSQL's SQLSTATE for a write on a standby, or on a server that is set read-only."""


def connect(url: URL) -> Engine:
    """Return an engine for a database, not yet connected and without a limit on a statement's time.

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
    event.listen(engine, "connect", _set_session)
    event.listen(engine, "handle_error", _leave_read_only)
    event.listen(engine, "checkin", _note_use)
    event.listen(engine, "checkout", partial(_refuse_lost, engine))
    return engine


def _set_session(connection: Any, _record: object) -> None:  # noqa: ANN401  the driver's
    """Set what our statements rely on: the server, role, database or environment may differ."""
    connection.execute(";".join(f"SET {name} = {value}" for name, value in SESSION.items()))
    connection.commit()


def _leave_read_only(context: ExceptionContext) -> None:
    """Give up all connections once one is read-only: after a failover they may lead to a standby."""
    if getattr(context.original_exception, "sqlstate", None) == READ_ONLY:
        context.is_disconnect = True


class MemoryEngines:
    """Make engines of in-memory databases: each has its own database, all share compiled statements."""

    def __init__(self) -> None:
        # One connection, which threads use in turn: the database ends with it.
        threads = {"check_same_thread": False}
        self._first = _of_sqlite(IN_MEMORY, pool_size=1, poolclass=QueuePool, connect_args=threads)
        self._compiled: dict[Any, Compiled] = {}
        self._empty = sqlite3.connect(":memory:", check_same_thread=False)
        self._empty.executescript(_script())
        event.listen(self._first, "connect", self._fill)

    def make(self) -> Engine:
        """Return an engine of a new database with our empty tables."""
        first, compiled = self._first, {"compiled_cache": self._compiled}
        engine = Engine(first.pool.recreate(), first.dialect, first.url, execution_options=compiled)
        event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _fill(self, connection: sqlite3.Connection, _record: object) -> None:
        """Create our tables in a new connection's database, by a copy of the empty one."""
        self._empty.backup(connection)


def _of_sqlite(url: URL, **options: Any) -> Engine:  # noqa: ANN401  create_engine's
    """Return an SQLite engine with our settings for connections and transactions."""
    engine = create_engine(url, max_overflow=0, json_serializer=_to_json, **options)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _to_json(value: object) -> str:
    """Return a value as JSON; any mapping becomes an object. Raises TypeError, ValueError."""
    return json.dumps(value, allow_nan=False, default=_as_dict)


def _as_dict(value: object) -> dict[Any, Any]:
    """Return a mapping as a dict, for the JSON encoder. Raises TypeError for other values."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _note_use(_connection: object, record: ConnectionPoolEntry) -> None:
    """Store when a connection returned to the pool."""
    record.info["used_s"] = time.monotonic()


def _refuse_lost(
    engine: Engine, connection: DBAPIConnection, record: ConnectionPoolEntry, _proxy: object
) -> None:
    """Ping an idle connection; if it is lost, raise DisconnectionError, so that the pool opens another."""
    idle_s = time.monotonic() - record.info.get("used_s", time.monotonic())
    if idle_s < FRESH_S and not _has_arrived(record):
        return
    try:
        engine.dialect.do_ping(connection)
    except engine.dialect.loaded_dbapi.Error as error:
        raise DisconnectionError from error


def _has_arrived(record: ConnectionPoolEntry) -> bool:
    """Return whether a connection has unread data, as it has after the server closed it."""
    driver = record.driver_connection
    assert driver is not None
    arrived = select.poll()
    arrived.register(driver.fileno(), select.POLLIN)
    return bool(arrived.poll(0))


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    """Set up a new SQLite connection."""
    # `_begin_sqlite` begins transactions, because the driver guesses by the statement.
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    _enter_wal(connection)
    connection.execute("PRAGMA synchronous = FULL")  # committed data survives a power cut
    connection.execute("PRAGMA foreign_keys = ON")


def _enter_wal(connection: sqlite3.Connection) -> None:
    """Switch a file to write-ahead logging; retry, as SQLite's busy timeout does not cover this change."""
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
    """Begin a transaction: DEFERRED for a reader, IMMEDIATE for a writer."""
    # A reader that starts to write fails if another has written since; a writer takes the lock at once.
    kind = connection.get_execution_options().get("sqlite_begin", "DEFERRED")
    connection.exec_driver_sql(f"BEGIN {kind}")


def _script() -> str:
    """Return the statements that create our tables: migrations would take a hundred times as long."""
    dialect, tables = sqlite.dialect(), Base.metadata.sorted_tables
    statements = [CreateTable(table).compile(dialect=dialect) for table in tables]
    indexes = [CreateIndex(i).compile(dialect=dialect) for table in tables for i in table.indexes]
    return ";".join(map(str, [*statements, *indexes]))
