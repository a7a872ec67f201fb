"""One database: its URL, its engine, and transactions whose failures speak our language."""

from __future__ import annotations

import fcntl
import json
import select
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    DisconnectionError,
    IntegrityError,
    SQLAlchemyError,
    StatementError,
)
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from db.schema import Base
from tuner.core import ConfigError, InvalidInput, StoreError, TuningError

DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "sqlite+pysqlite": "sqlite+pysqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
EXAMPLES = "write it like sqlite:///jouletune.db or postgresql://user@host/name"
SECRETS = ("password", "sslpassword")
DISK_FULL = "53100"
"""PostgreSQL's SQLSTATE."""
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


Timed = Callable[[str, float], None]
"""Is told of every transaction: `read` or `write`, and how many seconds it took."""


def untimed(_kind: str, _seconds: float) -> None:
    """Keep nothing of how long a transaction took."""


class Refused(StoreError):
    """The database refused a row for the sake of its constraints; who asked may know why."""


def read_url(text: str) -> URL:
    """Return a database URL with the driver we use for it.

    Raises:
        ConfigError: it does not parse, or names no database we speak. It shows no password.
    """
    scheme, colon, _ = text.partition(":")
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ConfigError(
            f"cannot read the database URL '{scheme}{colon and ':…'}'", hint=EXAMPLES
        ) from None
    if url.drivername not in DRIVERS:
        raise ConfigError(f"{url.drivername!r} is no database we speak", hint=EXAMPLES)
    if "@" in (url.host or ""):  # the rest of a password, which would be shown as the host
        raise ConfigError(
            "the database URL has more than one @", hint="write %40 for an @ in a password"
        )
    url = url.set(drivername=DRIVERS[url.drivername])
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise ConfigError(
            "an SQLite URL needs a file", hint="name one, or use memory:// to keep nothing"
        )
    return url


def existing(text: str) -> URL:
    """Return the URL of a database that is there.

    Raises:
        ConfigError: it does not parse, or names no database we speak.
        StoreError: there is no such file.
    """
    url = read_url(text)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        raise StoreError(f"there is no database {shown(url)}", hint="check the URL")
    return url


def shown(url: URL) -> str:
    """Return a URL as it may be shown: no password anywhere in it."""
    plain = url.set(drivername=url.get_backend_name()).difference_update_query(SECRETS)
    return plain.render_as_string(hide_password=True)


def connect(url: URL) -> Engine:
    """Return an engine for a database; nothing is connected yet, and statements take what they take.

    Raises:
        ConfigError: the driver is not installed.
    """
    to_json = partial(json.dumps, allow_nan=False)
    if url.get_backend_name() == "sqlite":
        engine = create_engine(
            url, pool_size=MOST_CONNECTIONS, max_overflow=0, json_serializer=to_json
        )
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    url = url.update_query_dict(PATIENCE | dict(url.query))
    try:
        engine = create_engine(
            url, pool_size=MOST_CONNECTIONS, max_overflow=0, json_serializer=to_json
        )
    except ImportError as error:
        raise ConfigError(
            "the PostgreSQL driver is not installed", hint="pip install 'jouletune[postgres]'"
        ) from error
    event.listen(engine, "checkin", _note_use)
    event.listen(engine, "checkout", partial(_refuse_gone, engine))
    return engine


class Database:
    """Transactions on one database, each a session of its own; safe from many threads."""

    def __init__(self, url: URL, timed: Timed = untimed) -> None:
        self.name = shown(url)
        self._url, self._timed = url, timed
        self._file = _inode(url)
        self.engine = connect(url)
        if self.engine.dialect.name == "postgresql":
            from db.sql import patience

            patience.limit(self.engine)
        self._writes = self.engine.execution_options(sqlite_begin="IMMEDIATE")
        # Several statements of one read must see one state: a snapshot. SQLite's are so anyway.
        self._reads = (
            self.engine
            if self.engine.dialect.name == "sqlite"
            else self.engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        )
        # One statement sees one state by itself: it needs no BEGIN and no COMMIT.
        self._looks = (
            self.engine
            if self.engine.dialect.name == "sqlite"
            else self.engine.execution_options(isolation_level="AUTOCOMMIT")
        )

    def share_file(self) -> IO[bytes]:
        """Say for as long as the returned file is open that a tuner is at work on SQLite's file.

        To be closed after the engine's last connection: closing any descriptor of a file drops the
        locks that SQLite has on it.

        Raises:
            StoreError: somebody restores it just now.
        """
        file = Path(self._url.database or "").open("rb")  # noqa: SIM115  its caller closes it
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise StoreError(
                f"database {self.name} is being restored", hint="start the tuner again after that"
            ) from None
        return file

    def check_file(self) -> None:
        """Return quietly unless SQLite's file is not the one that was opened: all would go to nowhere.

        Raises:
            StoreError: it was deleted, or another is in its place.
        """
        now = _inode(self._url)
        if self._file is None:
            self._file = now
        if now != self._file:
            raise StoreError(
                f"the file of database {self.name} was {'replaced' if now else 'deleted'} while it was "
                "in use",
                hint="stop the tuner, put the file back or `jouletune db restore` a backup, and start it",
            )

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Open a transaction that sees one state of the database. Raises StoreError."""
        self.check_file()
        with self._timing("read"), self.spoken(), Session(self._reads) as session, session.begin():
            yield session

    @contextmanager
    def look(self) -> Iterator[Connection]:
        """Open what is asked one statement at a time, each seeing the state of its moment.

        Raises StoreError.
        """
        self.check_file()
        with self._timing("read"), self.spoken(), self._looks.connect() as connection:
            yield connection

    @contextmanager
    def act(self) -> Iterator[Connection]:
        """Open what one statement that writes is asked on: it needs no BEGIN and no COMMIT.

        Raises:
            Refused, InvalidInput, StoreError: as `write` does.
        """
        engine = self._writes if self.engine.dialect.name == "sqlite" else self._looks
        with self._writing(), engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Open a transaction that is stored whole or not at all.

        Raises:
            Refused: a constraint of the database stands against it.
            InvalidInput: a value that the database cannot keep.
            StoreError: the database does not answer.
        """
        with self._writing(), Session(self._writes) as session, session.begin():
            yield session

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self.check_file()
        try:
            with self._timing("write"), self.spoken():
                yield
        except TuningError:
            raise
        except ValueError as error:  # a driver that writes JSON itself does not wrap what fails
            raise _unkeepable(self.name, error) from error

    @contextmanager
    def _timing(self, kind: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self._timed(kind, time.perf_counter() - began)

    @contextmanager
    def alone(self) -> Iterator[Connection]:
        """Open a transaction that no other of this kind runs beside, however long. Raises StoreError."""
        if self.engine.dialect.name == "sqlite":
            with self.spoken(), self._writes.begin() as connection:
                yield connection
            return
        patient = connect(self._url)
        try:
            with self.spoken(), patient.begin() as connection:
                connection.exec_driver_sql(
                    "SELECT pg_advisory_xact_lock(hashtext('jouletune schema'))"
                )
                yield connection
        finally:
            patient.dispose()

    @contextmanager
    def spoken(self) -> Iterator[None]:
        """Say in the errors of the family what goes wrong inside."""
        try:
            yield
        except IntegrityError as error:
            raise Refused(f"database {self.name}: {_first_line(error)}") from error
        except (DataError, OverflowError, UnicodeEncodeError) as error:
            raise _unkeepable(self.name, error) from error
        except DBAPIError as error:
            raise self._silent(error) from error
        except StatementError as error:
            raise _unkeepable(self.name, error) from error
        except SQLAlchemyError as error:
            raise self._silent(error) from error

    def _silent(self, error: SQLAlchemyError) -> StoreError:
        if _is_full(error):
            return StoreError(
                f"database {self.name} cannot grow: {_first_line(error)}",
                hint="free space on its disk; what was stored is still there",
            )
        return StoreError(
            f"database {self.name} does not answer: {_first_line(error)}",
            hint="check that it runs, that the URL is right and that you may use it",
        )


def _inode(url: URL) -> tuple[int, int] | None:
    """Return what SQLite's file is known by; None where there is none, and of a server."""
    if url.get_backend_name() != "sqlite":
        return None
    try:
        found = Path(url.database or "").stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def insert_into(
    asked: Session | Connection, table: type[Base]
) -> postgresql.Insert | sqlite.Insert:
    """Return an INSERT that can say what to do where the row is there already."""
    bind = asked.get_bind() if isinstance(asked, Session) else asked
    if bind.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


def _note_use(_connection: object, record: ConnectionPoolEntry) -> None:
    record.info["used_s"] = time.monotonic()


def _refuse_gone(
    engine: Engine, connection: DBAPIConnection, record: ConnectionPoolEntry, _proxy: object
) -> None:
    """Have the pool make another connection in place of one that has gone while nobody used it."""
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


def _unkeepable(name: str, error: Exception) -> TuningError:
    return InvalidInput(
        f"database {name} cannot keep a value: {_first_line(error)}", hint="nothing was stored"
    )


def _is_full(error: SQLAlchemyError) -> bool:
    cause = error.orig if isinstance(error, StatementError) else None
    return (
        getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        or getattr(cause, "sqlstate", None) == DISK_FULL
    )


def _first_line(error: Exception) -> str:
    cause = error.orig if isinstance(error, StatementError) and error.orig else error
    return next(iter(str(cause).strip().splitlines()), type(cause).__name__)


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
