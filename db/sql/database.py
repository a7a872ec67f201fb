"""One database: transactions whose failures are raised as errors of `tuner.core`."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError, StatementError

from db.schema import Base
from db.sql.address import IN_MEMORY, command, shown
from db.sql.engine import READ_ONLY, connect
from tuner.core import InvalidInput, StoreError, TuningError, Unreadable, first_fault

_FULL = "cannot grow", "free space on its disk; stored data is intact"
_DAMAGED = "is damaged", "stop the tuner and restore a backup: {restore}"
_DISK = "cannot use its disk", "move the file to a local disk that works, no network file system"
FAILURES: Mapping[str | int, tuple[str, str]] = {
    "53100": _FULL,
    READ_ONLY: ("takes no writes", "point the URL at the primary, or end what makes it read-only"),
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: ("takes no writes", "make the file and its folder writable"),
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_IOERR: _DISK,
    sqlite3.SQLITE_PROTOCOL: _DISK,
}
"""What is wrong and the next step, by PostgreSQL's SQLSTATE or SQLite's primary result code."""
Timed = Callable[[str, float], None]
"""Called after every transaction with `read` or `write` and its duration in seconds."""


def untimed(_kind: str, _seconds: float) -> None:
    """Ignore the duration of a transaction."""


class Refused(StoreError):
    """A constraint of the database refused a row; the caller gives the reason."""


class Database:
    """Transactions on one database, each on a separate connection; safe from many threads."""

    def __init__(self, url: URL, timed: Timed = untimed, engine: Engine | None = None) -> None:
        self.name = shown(url)
        self.shared = url != IN_MEMORY
        self._url, self._timed = url, timed
        on_disk = url.get_backend_name() == "sqlite" and self.shared
        self._path = (url.database or "") if on_disk else None
        self._file = _inode(self._path)
        self.engine = engine or connect(url)
        if self.engine.dialect.name == "postgresql":
            from db.sql import patience

            patience.limit(self.engine)
        self._writes = self.engine.execution_options(sqlite_begin="IMMEDIATE")
        # The statements of one read must see the same snapshot. On SQLite they always do.
        self._reads = (
            self.engine
            if self.engine.dialect.name == "sqlite"
            else self.engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        )
        # A single statement sees one snapshot: it needs no BEGIN and no COMMIT.
        self._looks = (
            self.engine
            if self.engine.dialect.name == "sqlite"
            else self.engine.execution_options(isolation_level="AUTOCOMMIT")
        )

    @property
    def path(self) -> Path | None:
        """SQLite's file; None for a database in memory or on a server."""
        return None if self._path is None else Path(self._path)

    def share_file(self, *, write: bool) -> IO[bytes]:
        """Lock SQLite's file as used by a tuner, until the returned file, opened to `write`, is closed.

        Close it after the engine's last connection: closing any descriptor of a file drops the locks
        that SQLite has on it.

        Raises:
            StoreError: the database is being restored, or its file cannot be opened.
        """
        try:
            file = Path(self._url.database or "").open("r+b" if write else "rb")  # noqa: SIM115  its caller closes it
        except OSError as error:
            raise StoreError(
                f"database {self.name} cannot be opened: {error.strerror}",
                hint=FAILURES[sqlite3.SQLITE_READONLY][1],
            ) from None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise StoreError(
                f"database {self.name} is being restored", hint="start the tuner again after that"
            ) from None
        return file

    def check_file(self) -> None:
        """Check that SQLite's file is still the one that was opened: writes to another would be lost.

        Raises:
            StoreError: the file was deleted or replaced.
        """
        now = _inode(self._path)
        if self._file is None:
            self._file = now
        if now != self._file:
            raise StoreError(
                f"the file of database {self.name} was {'replaced' if now else 'deleted'} while it was "
                "in use",
                hint="stop the tuner, move the file to its place or restore a backup with "
                f"{command('restore FILE', self.name)}, and start it",
            )

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction that sees one snapshot of the database. Raises StoreError."""
        self.check_file()
        with self._timing("read"), self.spoken(), self._reads.begin() as connection:
            yield connection

    @contextmanager
    def look(self) -> Iterator[Connection]:
        """Open a connection for single statements, each of which sees the database as it is then.

        Raises StoreError.
        """
        self.check_file()
        with self._timing("read"), self.spoken(), self._looks.connect() as connection:
            yield connection

    @contextmanager
    def act(self) -> Iterator[Connection]:
        """Open a connection for one writing statement, which needs no BEGIN and no COMMIT.

        Raises:
            Refused, InvalidInput, StoreError: as `write` does.
        """
        engine = self._writes if self.engine.dialect.name == "sqlite" else self._looks
        with self._writing(), engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that is stored as a whole or not at all.

        Raises:
            Refused: a constraint of the database forbids it.
            InvalidInput: the database cannot store a value.
            StoreError: the database does not answer.
        """
        with self._writing(), self._writes.begin() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Time a write and raise its failures as errors of `tuner.core`."""
        self.check_file()
        try:
            with self._timing("write"), self.spoken():
                yield
        except TuningError:
            raise
        except ValueError as error:  # a driver that encodes JSON itself raises it unwrapped
            raise _unkeepable(self.name, error) from error

    @contextmanager
    def _timing(self, kind: str) -> Iterator[None]:
        """Report the duration of the block to `timed`."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._timed(kind, time.perf_counter() - began)

    @contextmanager
    def alone(self) -> Iterator[Connection]:
        """Open a transaction that excludes others of this kind, without a time limit. Raises StoreError."""
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
        """Raise the database's failures in the block as errors of `tuner.core`."""
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

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Raise Unreadable if `what` cannot be converted: it is damaged, or of a newer release."""
        try:
            yield
        except (StoreError, Unreadable, SQLAlchemyError):
            raise
        except Exception as error:  # a damaged value can cause any error
            raise Unreadable(
                f"{what} cannot be read from the database: {first_fault(error)}",
                hint="update the tuner to the release that wrote it, or stop the tuner and restore a "
                "backup: " + command("restore FILE", self.name),
            ) from error

    def _silent(self, error: SQLAlchemyError) -> StoreError:
        """Return the error for a database that is full, damaged or read-only, or does not answer."""
        cause = error.orig if isinstance(error, StatementError) else None
        code = getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorcode", 0) & 0xFF
        what, hint = FAILURES.get(
            code, ("does not answer", "check that it is running, the URL and your access rights")
        )
        restore = command("restore FILE", self.name)
        return StoreError(
            f"database {self.name} {what}: {_first_line(error)}", hint=hint.format(restore=restore)
        )


def _inode(path: str | None) -> tuple[int, int] | None:
    """Return the device and inode of SQLite's file, None if there is none. Runs before every statement."""
    if path is None:
        return None
    try:
        status = os.stat(path)  # noqa: PTH116  a Path costs four times as much
    except OSError:
        return None
    return status.st_dev, status.st_ino


def insert_into(connection: Connection, table: type[Base]) -> postgresql.Insert | sqlite.Insert:
    """Return an INSERT that supports ON CONFLICT."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


def put(connection: Connection, table: type[Base], values: Mapping[str, Any]) -> None:
    """Store a row in place of the one with the same primary key, if any."""
    key = list(table.__table__.primary_key)
    changed = {name: value for name, value in values.items() if name not in {c.key for c in key}}
    stored = insert_into(connection, table).values(**values)
    connection.execute(stored.on_conflict_do_update(index_elements=key, set_=changed))


def _unkeepable(name: str, error: Exception) -> TuningError:
    """Return the error for a value that the database cannot store."""
    return InvalidInput(
        f"database {name} cannot store a value: {_first_line(error)}", hint="nothing was stored"
    )


def _first_line(error: Exception) -> str:
    """Return the first line of the driver's message, or the type of the error if it is empty."""
    cause = error.orig if isinstance(error, StatementError) and error.orig else error
    return next(iter(str(cause).strip().splitlines()), type(cause).__name__)
