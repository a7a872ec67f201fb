"""The load of a service at any moment, as a gauge of its text reports it."""

from __future__ import annotations

from agents.target.side import SignalSample
from agents.workloads.http.exposition import Exposition
from tuner.core import Signal


class GaugeSignal:
    """What plans can go by; `askable` where our own load sets it."""

    def __init__(self, name: str, exposition: Exposition, *, askable: bool) -> None:
        self.signal = Signal(name, askable=askable)
        self._exposition = exposition

    def read(self) -> SignalSample:
        """Return it as it is now. Raises ActuationError, DeviceLost."""
        present, started = self._exposition.present()
        return SignalSample(present, None, started)
