"""The order to stop the fleet in memory."""

from __future__ import annotations

from dataclasses import replace

from db.memory.tables import Tables
from tuner.core import FleetStop


class MemoryStops:
    """The order to stop everything in memory, while there is one."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def current(self) -> FleetStop | None:
        """Return the order in force, None where there is none."""
        return self._tables.stop

    def order(self, stop: FleetStop) -> FleetStop:
        """Put an order in force and return it; where there is one already, that one."""
        with self._tables.lock:
            self._tables.stop = self._tables.stop or replace(stop, back=frozenset())
            return self._tables.stop

    def report(self, device: str, *, back: bool) -> None:
        """Note whether a device is at its original setting; nothing where no order is in force."""
        with self._tables.lock:
            stop = self._tables.stop
            if stop is not None:
                known = stop.back | {device} if back else stop.back - {device}
                self._tables.stop = replace(stop, back=known)

    def lift(self) -> bool:
        """End the order and return whether there was one."""
        with self._tables.lock:
            was = self._tables.stop is not None
            self._tables.stop = None
            return was
