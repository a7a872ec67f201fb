"""The state of a service between windows: its load, and whether its model is in memory."""

from __future__ import annotations

from collections.abc import Sequence

from agents.host.http.local_http import LocalHttp
from agents.target.side import IdleState, LiveSignal, SignalSample
from agents.workloads.http.exposition import Exposition
from agents.workloads.http.metric_config import JsonPlace
from agents.workloads.http.reading import at
from tuner.core import MeasurementError, Signal, TuningError, reraised


def idle_state(
    http: LocalHttp, unloaded: JsonPlace | None, signals: Sequence[LiveSignal]
) -> IdleState:
    """Return a service's state; the model is in memory unless the service shows its unload.

    Raises MeasurementError if it does not answer as its file describes.
    """
    with reraised(MeasurementError, TuningError):
        if any(signal.read().present for signal in signals):
            return IdleState.BUSY
        if unloaded is None or not _is_unloaded(http, unloaded):
            return IdleState.LOADED
    return IdleState.UNLOADED


def _is_unloaded(http: LocalHttp, call: JsonPlace) -> bool:
    """Return whether the answer has true, or an empty list of loaded models. Raises TuningError."""
    try:
        shown = at(http.call("GET", call.path).json(), call.steps)
    except (ValueError, LookupError, TypeError):
        shown = None
    if isinstance(shown, bool):
        return shown
    if isinstance(shown, list):
        return not shown
    raise MeasurementError(
        f"{http.url}{call.path} has no true or false and no list at {call.json!r}",
        hint="correct [idle] in the service's file",
    )


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
