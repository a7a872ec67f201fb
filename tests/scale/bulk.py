"""Ended trials in bulk, copied between studies by the database, because the store adds one at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, insert, literal, select, text, update

from db.schema import Base, EstimateRow, MeasurementRow, StudyRow, TrialRow, TrialStateRow
from db.sql.database import Database
from db.sql.rows import TRIALS
from db.sql.windows import keep_windows
from tuner.core import Trial

AT_ONCE = 1_000


def store_trials(database: Database, study: str, trials: Sequence[Trial]) -> None:
    """Store all trials of a study that has none, with their windows."""
    with database.write() as connection:
        for first in range(0, len(trials), AT_ONCE):
            some = trials[first : first + AT_ONCE]
            connection.execute(
                insert(TrialRow), [{"study": study, **TRIALS.values(trial)} for trial in some]
            )
            keep_windows(
                connection,
                [
                    (t.measurement, {"study": study, "trial": t.number})
                    for t in some
                    if t.measurement
                ],
            )
            connection.execute(
                insert(TrialStateRow),
                [
                    {"study": study, "trial": t.number, "attempt": 1, "at": t.started_at,
                     "state": t.state}
                    for t in some
                ],
            )  # fmt: skip
        own = update(StudyRow).where(StudyRow.id == study)
        connection.execute(own.values(last_trial=len(trials)))


def copy_trials(database: Database, source: str, target: str) -> None:
    """Copy the trials of a study to one without trials, with windows: a million takes two minutes."""
    windows = MeasurementRow.study == source
    with database.write() as connection:
        if connection.dialect.name == "postgresql":  # the copied rows refer to existing rows
            connection.execute(text("SET LOCAL session_replication_role = replica"))
        count = connection.scalar(select(StudyRow.last_trial).where(StudyRow.id == source))
        first = connection.scalar(select(func.min(MeasurementRow.id)).where(windows)) or 0
        last = connection.scalar(select(func.max(MeasurementRow.id))) or 0
        moved = 1 + last - first
        own = {"study": literal(target)}
        _copy(connection, TrialRow, TrialRow.study == source, own)
        _copy(connection, TrialStateRow, TrialStateRow.study == source, {**own, "id": None})
        _copy(connection, MeasurementRow, windows, {**own, "id": MeasurementRow.id + moved})
        named = EstimateRow.measurement_id
        ids = select(MeasurementRow.id).where(windows)
        _copy(connection, EstimateRow, named.in_(ids), {"measurement_id": named + moved})
        if connection.dialect.name == "postgresql":
            highest = "SELECT setval(pg_get_serial_sequence('measurements', 'id'), max(id))"
            connection.execute(text(f"{highest} FROM measurements"))
        row = update(StudyRow).where(StudyRow.id == target)
        connection.execute(row.values(last_trial=count))


def _copy(
    connection: Connection,
    table: type[Base],
    which: ColumnElement[bool],
    changed: Mapping[str, ColumnElement[Any] | None],
) -> None:
    """Copy the rows of a table with other values in some columns; None: the database generates it."""
    columns = {
        name: changed.get(name, column)
        for name, column in table.__table__.columns.items()
        if changed.get(name, column) is not None
    }
    values = [value for value in columns.values() if value is not None]
    connection.execute(insert(table).from_select(list(columns), select(*values).where(which)))
