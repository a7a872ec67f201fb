"""Upgrade a database from an older schema to that of this program, after a copy of it.

A copy of an SQLite database is complete and of one moment.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from db import SCHEMA
from db.sql.address import command
from db.sql.database import Database
from tuner import files
from tuner.core import StoreError

log = logging.getLogger(__name__)

OLDEST = "0006"
"""The schema of 0.2.0, the first release. Older migrations build up to it; older databases are refused."""
_ALEMBIC = threading.Lock()
"""Alembic has one context per process."""


def bring_up(database: Database, *, create: bool, keep: bool = True) -> None:
    """Upgrade the schema to the newest; a database that has it costs one query.

    With `keep` a file with an older schema is first copied beside itself, because an older program
    cannot read a migrated database.

    Raises:
        StoreError: the database has none of our tables and `create` is False, it was written by a
            newer program or before 0.2.0, it does not answer, or the copy cannot be made; nothing
            is migrated then.
    """
    with database.spoken(), database.engine.connect() as connection:
        schema = revision(connection)
    if schema == SCHEMA:
        return
    if schema is None and not create:
        raise StoreError(
            f"database {database.name} has no jouletune tables",
            hint="create them with `jouletune tuner serve --db`, or check the URL",
        )
    with _ALEMBIC, database.alone() as connection:
        schema = revision(connection)
        if schema == SCHEMA:
            return
        copy = _upgrade(connection, schema, database, keep=keep)
    if schema is not None and keep:  # and the upgrade is committed
        log.warning(
            "event=migrated database=%s from=%s to=%s: %s",
            database.name, schema, SCHEMA, _rollback_hint(copy),
        )  # fmt: skip


def revision(connection: Connection) -> str | None:
    """Return the schema of a database, None if it has none of ours."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    schema: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return schema


def refuse_unreadable(name: str, schema: str) -> None:
    """Refuse a schema of a newer program, or of one before the first release. Raises StoreError."""
    if schema < OLDEST:
        raise StoreError(
            f"{name} was written by a jouletune before 0.2.0 "
            f"(schema {schema}, this program reads {OLDEST} to {SCHEMA})",
            hint="set `db` in tuner.toml to a new database; nothing was changed in this one",
        )
    if schema > SCHEMA:
        raise StoreError(
            f"{name} was written by a newer jouletune (schema {schema}, this program has {SCHEMA})",
            hint="upgrade jouletune",
        )


def _upgrade(
    connection: Connection, schema: str | None, database: Database, *, keep: bool
) -> Path | None:
    """Upgrade the schema, and return the copy of the former database, if one was made."""
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    if schema is not None:
        refuse_unreadable(f"database {database.name}", schema)
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "db:migrations")
    copy = keep_copy(database.path, schema) if keep and schema and database.path else None
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise StoreError(f"database {database.name} cannot be upgraded: {error}") from error
    return copy


def _rollback_hint(copy: Path | None) -> str:
    """Return the instruction for a rollback."""
    if copy is None:
        return "no copy is made of PostgreSQL; to roll back, restore your backup of before"
    return f"to roll back, stop the tuner, put {copy} in its place and install the older release"


def keep_copy(database: Path, schema: str) -> Path:
    """Copy a database to FILE.schema-0001 beside it, for a later rollback, and return the copy.

    Raises:
        StoreError: the database is damaged, or the copy cannot be written.
    """
    backup = database.with_name(f"{database.name}.schema-{schema}")
    try:
        with written_whole(backup) as part:
            copy_database(database, part)
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
def written_whole(file: Path) -> Iterator[Path]:
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


def copy_database(source: Path, part: Path) -> None:
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
