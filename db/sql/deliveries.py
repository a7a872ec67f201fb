"""How far destinations of notifications are, over SQLAlchemy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields

from sqlalchemy import delete, select

from db.schema import DeliveryRow
from db.sql.database import Database
from tuner.core import Delivery

FIELDS = tuple(field.name for field in fields(Delivery))


class SqlDeliveries:
    """Destinations and their places in the log, in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, destination: str) -> Delivery | None:
        """Return how far it is, None for a new one."""
        with self._database.read() as session:
            row = session.get(DeliveryRow, destination)
            return None if row is None else _to_delivery(row)

    def put(self, delivery: Delivery) -> None:
        """Keep how far it is."""
        with self._database.write() as session:
            session.merge(DeliveryRow(**asdict(delivery)))

    def list(self) -> Sequence[Delivery]:
        """Return all by the destination's name."""
        with self._database.read() as session:
            found = [_to_delivery(row) for row in session.scalars(select(DeliveryRow)).all()]
            return tuple(sorted(found, key=lambda delivery: delivery.destination))

    def forget(self, destination: str) -> None:
        """Remove a destination; quietly nothing where it is unknown."""
        with self._database.write() as session:
            session.execute(delete(DeliveryRow).where(DeliveryRow.destination == destination))


def _to_delivery(row: DeliveryRow) -> Delivery:
    return Delivery(**{name: getattr(row, name) for name in FIELDS})
