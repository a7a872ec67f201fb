"""Rows that a database stores for SQL queries of operators; no port reads them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select

from db.schema import AppliedRow, TrialStateRow
from db.sql.rows import APPLIED
from db.sql.store import Store
from tuner.core import Applied, TrialState


def trial_states(
    store: Store, study: str, number: int
) -> Sequence[tuple[TrialState, int, datetime]]:
    """Return a trial's history: each state with its attempt and its time."""
    assert isinstance(store, Store)
    query = select(TrialStateRow.state, TrialStateRow.attempt, TrialStateRow.at)
    query = query.where(TrialStateRow.study == study, TrialStateRow.trial == number)
    with store._database.look() as connection:
        rows = connection.execute(query.order_by(TrialStateRow.id)).all()
    return tuple((state, attempt, at) for state, attempt, at in rows)


def applied_to(store: Store, device: str) -> Sequence[Applied]:
    """Return the settings that a device had, latest first."""
    assert isinstance(store, Store)
    query = APPLIED.all.where(AppliedRow.device == device).order_by(AppliedRow.id.desc())
    with store._database.look() as connection:
        return tuple(APPLIED.read(row) for row in connection.execute(query))
