"""What a database keeps for who asks it by SQL: no port reads it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select

from db.schema import AppliedRow, TrialStateRow
from db.sql.rows import applied_of
from db.sql.store import SqlStore
from tuner.core import Applied, Store, TrialState


def trial_states(
    store: Store, study: str, number: int
) -> Sequence[tuple[TrialState, int, datetime]]:
    """Return a trial's history: state, attempt, and when it came to that."""
    assert isinstance(store, SqlStore)
    asked = select(TrialStateRow).where(
        TrialStateRow.study_id == study, TrialStateRow.trial_number == number
    )
    with store._database.read() as session:
        rows = session.scalars(asked.order_by(TrialStateRow.id)).all()
        return tuple((TrialState(row.state), row.attempt, row.at) for row in rows)


def applied_to(store: Store, device: str) -> Sequence[Applied]:
    """Return what a device was set to, latest first."""
    assert isinstance(store, SqlStore)
    columns = AppliedRow.__table__.c
    asked = select(*columns).where(AppliedRow.device_id == device).order_by(AppliedRow.id.desc())
    with store._database.read() as session:
        return tuple(applied_of(device, row, row.at) for row in session.execute(asked))
