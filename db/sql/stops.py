"""The orders to stop the whole fleet (at most one) and single devices, over SQLAlchemy."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import delete, select, update

from db.schema import ReleaseRow, StopBackRow, StopRow
from db.sql.database import Database, insert_into
from db.sql.rows import RELEASES, STOPS
from tuner.core import FleetStop

THE_ONE = 1


class Stops:
    """The orders to stop devices, in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def current(self, device: str = "") -> FleetStop | None:
        """Return the order in force for all devices, else that for this device; None without one."""
        with self._database.read() as connection:
            row = connection.execute(STOPS.all).first()
            if row is not None:
                back = connection.scalars(select(StopBackRow.device)).all()
                return STOPS.read(row, back=frozenset(back))
        return self.released().get(device)

    def released(self) -> Mapping[str, FleetStop]:
        """Return the orders for single devices, by device."""
        with self._database.look() as connection:
            rows = connection.execute(RELEASES.all.add_columns(ReleaseRow.restored)).all()
        return {r.device: RELEASES.read(r, back=frozenset([r.device][: r.restored])) for r in rows}

    def order(self, stop: FleetStop) -> FleetStop:
        """Put an order in force and return it; if one is in force already, return that one."""
        own = {"device": stop.device, "restored": False} if stop.device else {"id": THE_ONE}
        with self._database.act() as connection:
            connection.execute(
                insert_into(connection, ReleaseRow if stop.device else StopRow)
                .values(at=stop.at, who=stop.who, why=stop.why, **own)
                .on_conflict_do_nothing()
            )
        return (self.released().get(stop.device) if stop.device else self.current()) or stop

    def report(self, device: str, *, back: bool) -> None:
        """Store whether a device is at its original setting; do nothing if no order is in force."""
        with self._database.write() as connection:
            connection.execute(
                update(ReleaseRow).where(ReleaseRow.device == device).values(restored=back)
            )
            # Locked, so that no report outlives an order that is lifted meanwhile.
            if connection.scalar(select(StopRow.id).with_for_update()) is None:
                return
            if back:
                insert = insert_into(connection, StopBackRow).values(device=device)
                connection.execute(insert.on_conflict_do_nothing())
            else:
                connection.execute(delete(StopBackRow).where(StopBackRow.device == device))

    def lift(self, device: str = "") -> bool:
        """End the order for all devices, or for this one; return whether one was in force."""
        with self._database.write() as connection:
            if device:
                own = ReleaseRow.device == device
                ended = connection.scalar(
                    delete(ReleaseRow).where(own).returning(ReleaseRow.device)
                )
                return ended is not None
            deleted = connection.scalar(delete(StopRow).returning(StopRow.id))
            connection.execute(delete(StopBackRow))
        return deleted is not None
