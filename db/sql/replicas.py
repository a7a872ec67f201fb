"""The tuners at work over SQLAlchemy."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, select

from db.schema import ReplicaRow
from db.sql.database import Database, insert_into
from tuner.core import TunerReplica


class SqlReplicas:
    """Tuners in a database, by their own word."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def tell(self, replica: TunerReplica) -> None:
        """Keep what a tuner tells of itself, in the place of what it told before."""
        values = {
            "host": replica.host,
            "version": replica.version,
            "started_at": replica.started_at,
            "seen_at": replica.seen_at,
            "leads": replica.leads,
            "bus_lag_s": replica.bus_lag_s,
            "agents": {str(protocol): count for protocol, count in replica.agents.items()},
            "token_mark": replica.token_mark,
            "cpu_s": replica.cpu_s,
            "memory_bytes": replica.memory_bytes,
        }
        with self._database.write() as session:
            session.execute(
                insert_into(session, ReplicaRow)
                .values(id=replica.id, **values)
                .on_conflict_do_update(index_elements=[ReplicaRow.id], set_=values)
            )

    def list(self) -> Sequence[TunerReplica]:
        """Return all by id."""
        with self._database.read() as session:
            rows = session.scalars(select(ReplicaRow)).all()
            return tuple(sorted((_to_replica(row) for row in rows), key=lambda r: r.id))

    def prune(self, before: datetime) -> int:
        """Delete those that have told nothing since a time and return how many."""
        with self._database.write() as session:
            gone = session.scalars(
                delete(ReplicaRow).where(ReplicaRow.seen_at < before).returning(ReplicaRow.id)
            ).all()
            return len(gone)


def _to_replica(row: ReplicaRow) -> TunerReplica:
    return TunerReplica(
        id=row.id,
        host=row.host,
        version=row.version,
        started_at=row.started_at,
        seen_at=row.seen_at,
        leads=row.leads,
        bus_lag_s=row.bus_lag_s,
        agents={int(protocol): count for protocol, count in row.agents.items()},
        token_mark=row.token_mark,
        cpu_s=row.cpu_s,
        memory_bytes=row.memory_bytes,
    )
