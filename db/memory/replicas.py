"""The tuners at work, in memory: one."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from datetime import datetime

from db.memory.tables import Tables
from tuner.core import TunerReplica


class MemoryReplicas:
    """Tuners in memory."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def tell(self, replica: TunerReplica) -> None:
        """Keep what a tuner tells of itself, in the place of what it told before."""
        with self._tables.lock:
            self._tables.replicas[replica.id] = deepcopy(replica)

    def list(self) -> Sequence[TunerReplica]:
        """Return all by id."""
        with self._tables.lock:
            return tuple(deepcopy([r for _, r in sorted(self._tables.replicas.items())]))

    def prune(self, before: datetime) -> int:
        """Delete those that have told nothing since a time and return how many."""
        with self._tables.lock:
            gone = [name for name, r in self._tables.replicas.items() if r.seen_at < before]
            for name in gone:
                del self._tables.replicas[name]
            return len(gone)
