"""The audit log in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from db.memory.tables import Tables, last_of
from tuner.core import AuditEntry


class MemoryAudit:
    """Who changed what, in memory."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def add(self, entry: AuditEntry) -> None:
        """Keep an entry."""
        with self._tables.lock:
            newest = max((e.id for e in self._tables.audit), default=0)
            self._tables.audit.append(replace(entry, id=newest + 1))

    def list(self, last: int | None = None, who: str | None = None) -> Sequence[AuditEntry]:
        """Return the (last) entries, oldest first, of one token where asked."""
        with self._tables.lock:
            return last_of((e for e in self._tables.audit if who in (None, e.who)), last)

    def prune(self, before: datetime) -> int:
        """Delete those before a time and return how many."""
        with self._tables.lock:
            kept = [e for e in self._tables.audit if e.at >= before]
            gone = len(self._tables.audit) - len(kept)
            self._tables.audit[:] = kept
            return gone
