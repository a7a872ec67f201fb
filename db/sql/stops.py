"""The order to stop the fleet over SQLAlchemy: at most one row, and the devices restored since."""

from __future__ import annotations

from sqlalchemy import delete, select

from db.schema import StopBackRow, StopRow
from db.sql.database import Database, insert_into
from db.sql.rows import STOPS
from tuner.core import FleetStop

THE_ONE = 1


class Stops:
    """The order to stop the whole fleet, in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def current(self) -> FleetStop | None:
        """Return the order in force, None if there is none."""
        with self._database.read() as connection:
            row = connection.execute(STOPS.all).first()
            if row is None:
                return None
            back = connection.scalars(select(StopBackRow.device)).all()
        return STOPS.read(row, back=frozenset(back))

    def order(self, stop: FleetStop) -> FleetStop:
        """Put an order in force and return it; if one is in force already, return that one."""
        with self._database.act() as connection:
            connection.execute(
                insert_into(connection, StopRow)
                .values(id=THE_ONE, at=stop.at, who=stop.who, why=stop.why)
                .on_conflict_do_nothing()
            )
        return self.current() or stop

    def report(self, device: str, *, back: bool) -> None:
        """Store whether a device is at its original setting; do nothing if no order is in force."""
        with self._database.write() as connection:
            # Locked, so that no report outlives an order that is lifted meanwhile.
            if connection.scalar(select(StopRow.id).with_for_update()) is None:
                return
            if back:
                insert = insert_into(connection, StopBackRow).values(device=device)
                connection.execute(insert.on_conflict_do_nothing())
            else:
                connection.execute(delete(StopBackRow).where(StopBackRow.device == device))

    def lift(self) -> bool:
        """End the order; return whether one was in force."""
        with self._database.write() as connection:
            deleted = connection.scalar(delete(StopRow).returning(StopRow.id))
            connection.execute(delete(StopBackRow))
        return deleted is not None
