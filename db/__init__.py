"""The store: studies, trials, leases, devices, observations and events behind one URL."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from db.sql.budgets import Budgets
    from db.sql.devices import Devices
    from db.sql.log import Events, Observations
    from db.sql.stops import Stops
    from db.sql.store import Store
    from db.sql.studies import Studies
    from db.sql.trials import Trials
else:

    def __getattr__(name: str) -> type:
        """Return a class of the store; its libraries are imported at the first use."""
        if name not in __all__:
            raise AttributeError(f"module 'db' has no attribute {name!r}")
        return getattr(import_module("db.sql.store"), name)


__all__ = [
    "SCHEMA",
    "Budgets",
    "Devices",
    "Events",
    "Observations",
    "Stops",
    "Store",
    "Studies",
    "Trials",
    "open_store",
    "shown",
]

SCHEMA = "0011"
"""The newest schema. A test keeps it equal to the last migration in db/migrations."""


def open_store(
    url: str, *, create: bool = True, timed: Callable[[str, float], None] = lambda *_: None
) -> Store:
    """Open the store behind a URL; create the tables of a new database, upgrade those of an older one.

    `sqlite:///path` is a file, `postgresql://user:password@host/name` a server, and `memory://` is lost
    when the process ends. With `create=False` a database without our tables is refused. `timed` is called
    for every transaction with `read` or `write` and its duration in seconds. Libraries are imported here,
    so that `import db` stays cheap.

    Raises:
        ConfigError: the URL names no supported database, or its driver is not installed.
        StoreError: the database does not answer, or was written by a newer version.
    """
    from db.sql.store import open_sql_store

    return open_sql_store(url, create=create, timed=timed)


def shown(url: str) -> str:
    """Return a database's URL without its password, for messages. Raises ConfigError."""
    from db.sql import address

    return url if url == address.MEMORY else address.shown(address.read_url(url))
