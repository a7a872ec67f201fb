"""The memory: studies, trials, leases, devices, observations and events behind one URL."""

from __future__ import annotations

from collections.abc import Callable

from tuner.core import Store

__all__ = ["SCHEMA", "open_store", "shown"]

SCHEMA = "0007"
"""The newest schema. A test keeps it equal to the last of db/migrations."""


def open_store(
    url: str, *, create: bool = True, timed: Callable[[str, float], None] = lambda *_: None
) -> Store:
    """Open the memory behind a URL; a new or older database is brought up to date.

    `sqlite:///path` is a file, `postgresql://user:password@host/name` a server, `memory://` ends with the
    process. With `create=False` a database without our tables is refused, not filled. `timed` gets every
    transaction of a database: `read` or `write`, and its seconds. Libraries are imported here, so that
    `import db` stays cheap.

    Raises:
        ConfigError: the URL names no database we speak, or its driver is not installed.
        StoreError: the database does not answer, or was written by a newer version.
    """
    from db.sql.store import open_sql_store

    return open_sql_store(url, create=create, timed=timed)


def shown(url: str) -> str:
    """Return a database's URL as it may be shown, without a password. Raises ConfigError."""
    from db.sql import address

    return url if url == address.MEMORY else address.shown(address.read_url(url))
