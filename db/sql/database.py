"""One database: transactions whose failures speak our language."""

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
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    SQLAlchemyError,
    StatementError,
)

from db.schema import Base
from db.sql.address import IN_MEMORY, command, shown
from db.sql.engine import connect
from tuner.core import InvalidInput, StoreError, TuningError

DISK_FULL = "53100"
"""PostgreSQL's SQLSTATE."""
Timed = Callable[[str, float], None]
"""Called for every transaction: `read` or `write`, and how many seconds it took."""


def untimed(_kind: str, _seconds: float) -> None:
    """Keep nothing of how long a transaction took."""


class Refused(StoreError):
    """The database refused a row because of its constraints; the caller gets the reason."""


class Database:
    """Transactions on one database, each on a connection of its own; safe from many threads."""

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

    @property
    def path(self) -> Path | None:
        """SQLite's file; None for a database in memory or on a server."""
        return None if self._path is None else Path(self._path)

    def share_file(self) -> IO[bytes]:
        """Say for as long as the returned file is open that a tuner is at work on SQLite's file.

        To be closed after the engine's last connection: closing any descriptor of a file drops the
        locks that SQLite has on it.

        Raises:
            StoreError: it is being restored.
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
        """Open a transaction that sees one state of the database. Raises StoreError."""
        self.check_file()
        with self._timing("read"), self.spoken(), self._reads.begin() as connection:
            yield connection

    @contextmanager
    def look(self) -> Iterator[Connection]:
        """Open a connection for single statements, each seeing the state of its moment.

        Raises StoreError.
        """
        self.check_file()
        with self._timing("read"), self.spoken(), self._looks.connect() as connection:
            yield connection

    @contextmanager
    def act(self) -> Iterator[Connection]:
        """Open a connection for one writing statement: it needs no BEGIN and no COMMIT.

        Raises:
            Refused, InvalidInput, StoreError: as `write` does.
        """
        engine = self._writes if self.engine.dialect.name == "sqlite" else self._looks
        with self._writing(), engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that is stored whole or not at all.

        Raises:
            Refused: a constraint of the database stands against it.
            InvalidInput: a value that the database cannot keep.
            StoreError: the database does not answer.
        """
        with self._writing(), self._writes.begin() as connection:
            yield connection

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
                hint="free space on its disk; stored data is intact",
            )
        return StoreError(
            f"database {self.name} does not answer: {_first_line(error)}",
            hint="check that it is running, the URL and your access rights",
        )


def _inode(path: str | None) -> tuple[int, int] | None:
    """Return the identity of SQLite's file; None where there is none. Asked before every statement."""
    if path is None:
        return None
    try:
        status = os.stat(path)  # noqa: PTH116  a Path costs four times as much
    except OSError:
        return None
    return status.st_dev, status.st_ino


def insert_into(connection: Connection, table: type[Base]) -> postgresql.Insert | sqlite.Insert:
    """Return an INSERT that can say what to do where the row is there already."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


def put(connection: Connection, table: type[Base], values: Mapping[str, Any]) -> None:
    """Store a row in place of the one with its primary key, where there is one."""
    key = list(table.__table__.primary_key)
    changed = {name: value for name, value in values.items() if name not in {c.key for c in key}}
    stored = insert_into(connection, table).values(**values)
    connection.execute(stored.on_conflict_do_update(index_elements=key, set_=changed))


def _unkeepable(name: str, error: Exception) -> TuningError:
    return InvalidInput(
        f"database {name} cannot store a value: {_first_line(error)}", hint="nothing was stored"
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
