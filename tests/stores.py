"""Stores in memory for tests, which share their compiled statements."""

from __future__ import annotations

from functools import cache

from db.sql.address import IN_MEMORY
from db.sql.database import Database
from db.sql.engine import MemoryEngines
from db.sql.store import Store


def memory_store() -> Store:
    """Return a new, separate store, as `open_store("memory://")` does."""
    return Store(Database(IN_MEMORY, engine=_engines().make()))


@cache
def _engines() -> MemoryEngines:
    return MemoryEngines()
