"""Deletion of old rows: planned first, then carried out in steps that do not block a tuner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, delete, func, select, text

from db.schema import DeliveryRow, EventRow, StudyRow
from db.sql.address import existing
from db.sql.database import Database
from db.sql.log import WINDOW_ROWS
from db.sql.tables import pruned
from db.sql.upgrade import bring_up

NOBODY = 2**62
AT_ONCE = 500
"""Number of rows deleted in one transaction, which takes some 20 ms."""


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """The rows to delete: windows outside trials and events before a time, and whole stopped studies."""

    before: datetime
    observations: int
    events: int
    studies: tuple[str, ...]
    trials: int

    @property
    def empty(self) -> bool:
        """Whether there is nothing to delete."""
        return not (self.observations or self.events or self.studies)


class Pruning:
    """Delete old rows of one database; a tuner may use it meanwhile."""

    def __init__(self, url_text: str) -> None:
        """Open the database. Raises ConfigError, StoreError."""
        self._database = Database(existing(url_text))
        try:
            bring_up(self._database, create=False)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections to the database."""
        self._database.engine.dispose()

    def plan(self, before: datetime, keep_stopped: int | None) -> PrunePlan:
        """Return the rows to delete.

        Of stopped studies the latest `keep_stopped` stay; None keeps all. Active studies keep all trials.
        The newest event and undelivered ones stay.
        """
        with self._database.read() as connection:
            stopped: Sequence[str] = ()
            if keep_stopped is not None:
                latest = select(StudyRow.id).where(StudyRow.phase == "stopped")
                latest = latest.order_by(StudyRow.created_at.desc(), StudyRow.id)
                stopped = connection.scalars(latest.offset(keep_stopped)).all()
            trials = select(func.coalesce(func.sum(StudyRow.last_trial), 0))
            old = [select(func.count()).where(of.at < before) for of in WINDOW_ROWS]
            return PrunePlan(
                before=before,
                observations=sum(connection.scalar(query) or 0 for query in old),
                events=connection.scalar(
                    select(func.count()).select_from(EventRow).where(*_old_events(before))
                )
                or 0,
                studies=tuple(stopped),
                trials=connection.scalar(trials.where(StudyRow.id.in_(stopped))) or 0,
            )

    def carry_out(self, plan: PrunePlan) -> None:
        """Delete the rows of a plan, none added since. After a crash, call it again to finish."""
        for table, old in (
            *((of, (of.at < plan.before,)) for of in WINDOW_ROWS),
            (EventRow, _old_events(plan.before)),
        ):
            pruned(self._database, table, *old, at_once=AT_ONCE)
        for study in plan.studies:
            with self._database.act() as connection:
                own = (StudyRow.id == study) & (StudyRow.phase == "stopped")
                connection.execute(delete(StudyRow).where(own))

    def vacuum(self) -> None:
        """Return free pages to the disk; on SQLite writers wait meanwhile."""
        with self._database.spoken(), self._database.engine.connect() as connection:
            if (
                connection.dialect.name == "sqlite"
            ):  # where a connection of ours begins transactions
                driver = connection.connection.driver_connection
                assert driver is not None
                driver.execute("VACUUM")
                return
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM"))


def _old_events(before: datetime) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions for events to delete: old, delivered, and not the newest."""
    undelivered = select(func.coalesce(func.min(DeliveryRow.event), NOBODY)).scalar_subquery()
    newest = select(func.max(EventRow.id)).scalar_subquery()
    return EventRow.at < before, EventRow.id < newest, EventRow.id <= undelivered
