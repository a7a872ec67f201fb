"""How far destinations of notifications are, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from db.memory.tables import Tables
from tuner.core import Delivery


class MemoryDeliveries:
    """Destinations and their places in the log, in memory."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def get(self, destination: str) -> Delivery | None:
        """Return how far it is, None for a new one."""
        with self._tables.lock:
            return self._tables.deliveries.get(destination)

    def put(self, delivery: Delivery) -> None:
        """Keep how far it is."""
        with self._tables.lock:
            self._tables.deliveries[delivery.destination] = delivery

    def list(self) -> Sequence[Delivery]:
        """Return all by the destination's name."""
        with self._tables.lock:
            return tuple(d for _, d in sorted(self._tables.deliveries.items()))

    def forget(self, destination: str) -> None:
        """Remove a destination; quietly nothing where it is unknown."""
        with self._tables.lock:
            self._tables.deliveries.pop(destination, None)
