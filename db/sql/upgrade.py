"""Brings a database to the schema of this program, whatever it had before."""

from __future__ import annotations

import threading

from sqlalchemy import Connection, inspect, text

from db import SCHEMA
from db.sql.database import Database
from tuner.core import StoreError

_ALEMBIC = threading.Lock()
"""Alembic's context is one per process."""


def bring_up(database: Database, *, create: bool) -> None:
    """Upgrade the schema to the newest; nothing but one query where it is that already.

    Raises:
        StoreError: it has no tables of ours and `create` is False, it was written by a newer
            program, or it does not answer.
    """
    with database.spoken(), database.engine.connect() as connection:
        found = revision(connection)
    if found == SCHEMA:
        return
    if found is None and not create:
        raise StoreError(
            f"database {database.name} has no jouletune tables",
            hint="create them with `jouletune tuner serve --db`, or check the URL",
        )
    with _ALEMBIC, database.alone() as connection:
        found = revision(connection)
        if found != SCHEMA:
            _upgrade(connection, found, database.name)


def revision(connection: Connection) -> str | None:
    """Return which schema a database has, None where it has none of ours."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return found


def _upgrade(connection: Connection, found: str | None, name: str) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "db:migrations")
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise StoreError(
            f"database {name} was written by a newer jouletune (schema {found}, this program has {SCHEMA})",
            hint="upgrade jouletune",
        )
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise StoreError(f"database {name} cannot be upgraded: {error}") from error
