"""Shared behaviour of several tables: one row per name, and rows that are pruned by age."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Generic, TypeVar

from sqlalchemy import ColumnElement, delete, insert, select

from db.schema import AuditRow, Base, ReplicaRow
from db.sql.database import Database, put
from db.sql.rows import AUDIT, DELIVERIES, REPLICAS, RowsOf, readable, without_id
from tuner.core import AuditEntry, Delivery, TunerReplica
from tuner.rows import StoredRows

Kept = TypeVar("Kept")
AT_ONCE = 2_000
"""Number of old rows deleted in one transaction."""


class Keyed(Generic[Kept]):
    """Values in a database, one per name."""

    rows: RowsOf[Kept]

    def __init__(self, database: Database) -> None:
        self._database = database
        (self._key,) = self.rows.table.__table__.primary_key

    def get(self, key: str, /) -> Kept | None:
        """Return the value with a name, None if there is none."""
        with self._database.look() as connection:
            row = connection.execute(self.rows.all.where(self._key == key)).first()
        return None if row is None else self.rows.read(row)

    def put(self, value: Kept, /) -> None:
        """Store a value in place of the one with the same name."""
        with self._database.act() as connection:
            put(connection, self.rows.table, self.rows.values(value))

    def list(self) -> StoredRows[Kept]:
        """Return all values, sorted by name."""
        name = self._key.key
        key = getattr(self.rows.table, name)
        rows = readable(self._database, self.rows.all, key, self.rows.read)
        return StoredRows(sorted(rows, key=lambda value: getattr(value, name)), rows.unread)

    def forget(self, key: str, /) -> None:
        """Remove the value with a name; do nothing if there is none."""
        with self._database.act() as connection:
            connection.execute(delete(self.rows.table).where(self._key == key))


class Deliveries(Keyed[Delivery]):
    """Destinations of notifications, each with the last event delivered to it."""

    rows = DELIVERIES


class Replicas(Keyed[TunerReplica]):
    """The running tuners, as they report themselves."""

    rows = REPLICAS

    def tell(self, replica: TunerReplica) -> None:
        """Store a tuner's report in place of its former one."""
        self.put(replica)

    def prune(self, before: datetime) -> int:
        """Delete the tuners without a report since a time and return their number."""
        return pruned(self._database, ReplicaRow, ReplicaRow.seen_at < before)


class Audit:
    """The log of requested changes, with the token that requested each."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, entry: AuditEntry) -> None:
        """Store an entry."""
        with self._database.act() as connection:
            connection.execute(insert(AuditRow).values(without_id(AUDIT.values(entry))))

    def list(self, last: int | None = None, who: str | None = None) -> Sequence[AuditEntry]:
        """Return the `last` entries, of one token if given, oldest first; all if it is None."""
        query = AUDIT.all.order_by(AuditRow.id.desc()).limit(last)
        if who is not None:
            query = query.where(AuditRow.who == who)
        return tuple(reversed(readable(self._database, query, AuditRow.id, AUDIT.read)))

    def prune(self, before: datetime) -> int:
        """Delete the entries before a time and return their number."""
        return pruned(self._database, AuditRow, AuditRow.at < before)


def pruned(
    database: Database, table: type[Base], *old: ColumnElement[bool], at_once: int = AT_ONCE
) -> int:
    """Delete old rows and return their number; in pieces: others wait, and a statement may take 30 s."""
    (key,), total = table.__table__.primary_key, 0
    piece = delete(table).where(key.in_(select(key).where(*old).limit(at_once)))
    while True:
        with database.act() as connection:
            deleted = connection.execute(piece).rowcount
        total += deleted
        if deleted < at_once:
            return total
