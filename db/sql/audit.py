"""The audit log over SQLAlchemy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import datetime

from sqlalchemy import delete, select

from db.schema import AuditRow
from db.sql.database import Database
from tuner.core import AuditEntry

FIELDS = tuple(field.name for field in fields(AuditEntry))


class SqlAudit:
    """Who changed what, in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, entry: AuditEntry) -> None:
        """Keep an entry."""
        values = asdict(entry)
        del values["id"]
        with self._database.write() as session:
            session.add(AuditRow(**values))

    def list(self, last: int | None = None, who: str | None = None) -> Sequence[AuditEntry]:
        """Return the (last) entries, oldest first, of one token where asked."""
        asked = select(AuditRow).order_by(AuditRow.id.desc()).limit(last)
        if who is not None:
            asked = asked.where(AuditRow.who == who)
        with self._database.read() as session:
            rows = session.scalars(asked).all()
            return tuple(
                AuditEntry(**{name: getattr(row, name) for name in FIELDS})
                for row in reversed(rows)
            )

    def prune(self, before: datetime) -> int:
        """Delete those before a time and return how many."""
        with self._database.write() as session:
            gone = session.scalars(
                delete(AuditRow).where(AuditRow.at < before).returning(AuditRow.id)
            ).all()
            return len(gone)
