"""Ended trials written many at once: the ports take one."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import insert, update

from db.schema import StudyRow, TrialRow, TrialStateRow
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
