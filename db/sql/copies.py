"""Copies of an SQLite database, each complete and of one moment."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from db.sql.address import command
from tuner import files
from tuner.core import StoreError


def keep_copy(database: Path, schema: str) -> Path:
    """Copy a database to FILE.schema-0001 beside it, for a later rollback, and return the copy.

    Raises:
        StoreError: the database is damaged, or the copy cannot be written.
    """
    backup = database.with_name(f"{database.name}.schema-{schema}")
    try:
        with whole(backup) as part:
            copy(database, part)
    except OSError as error:
        raise StoreError(
            f"the copy {backup} cannot be written: {error.strerror}; the database is not migrated",
            hint="free space there, as much as the database takes, and start again",
        ) from None
    except StoreError as error:
        raise StoreError(
            f"{error.message}; the database is not migrated", hint=error.hint
        ) from None
    return backup


@contextmanager
def whole(file: Path) -> Iterator[Path]:
    """Yield a private file to write; on exit sync it to disk and rename it to `file`.

    Raises:
        OSError: the disk refuses; `file` is unchanged.
    """
    part = file.with_name(f"{file.name}.part")
    try:
        part.unlink(missing_ok=True)
        files.make_private(part)
        yield part
        files.sync(part)
        part.replace(file)
        files.sync(file.parent)
    finally:
        with suppress(OSError):
            part.unlink()


def copy(source: Path, part: Path) -> None:
    """Copy a database in one read transaction: in WAL mode writers continue, and the copy is of one moment.

    Raises:
        StoreError: the source is damaged, or the copy cannot be written.
    """
    check = command("check", f"sqlite:///{source}")
    try:
        with (
            closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as live,
            closing(sqlite3.connect(part)) as target,
        ):
            live.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
            integrity = target.execute("PRAGMA integrity_check").fetchone()[0]
    except sqlite3.Error as error:
        raise StoreError(
            f"{source} cannot be copied to {part.parent}: {error}",
            hint=f"free space there, or see {check}",
        ) from None
    if integrity != "ok":
        raise StoreError(
            f"{source} is damaged: {integrity}",
            hint=f"see {check}, and restore a backup",
        )
