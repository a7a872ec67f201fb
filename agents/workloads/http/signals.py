"""The current load of a service, from a gauge in its text."""

from __future__ import annotations

from agents.target.side import SignalSample
from agents.workloads.http.exposition import Exposition
from tuner.core import Signal


class GaugeSignal:
    """A signal for plans.

    `askable` if our own load sets it, `followed` if the service takes a table by it.
    """

    def __init__(self, name: str, exposition: Exposition, *, askable: bool, followed: bool) -> None:
        self.signal = Signal(name, askable=askable, followed=followed)
        self._exposition = exposition

    def read(self) -> SignalSample:
        """Return the current value. Raises ActuationError, DeviceLost."""
        present, started = self._exposition.present()
        return SignalSample(present, None, started)
