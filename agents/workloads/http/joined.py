"""One meter of several: what counts the work, and what reports more of the same window."""

from __future__ import annotations

from collections.abc import Sequence

from agents.host.processes.program_runs import RunMeter
from agents.target.side import Closing, OffersLoad, WaitsForRuns
from tuner.core import Context, Meter, Reading, TuningError, Window


def joined(first: Meter, more: Sequence[Meter]) -> Meter:
    """Return a meter that shows what all of them show; what the first can do, it can."""
    if not more:
        return first
    if isinstance(first, RunMeter):
        return JoinedRunMeter(first, more)
    return (
        JoinedLoadMeter(first, more) if isinstance(first, OffersLoad) else JoinedMeter(first, more)
    )


class JoinedMeter:
    """Opens the windows of several meters as one."""

    def __init__(self, first: Meter, more: Sequence[Meter]) -> None:
        self._first, self._more = first, tuple(more)

    def start(self) -> JoinedWindow:
        """Open a window: first those that only look, so that they see all of the load."""
        opened: list[Window] = []
        try:
            for meter in (*self._more, self._first):
                opened.append(meter.start())  # noqa: PERF401 - those opened are closed below
        except TuningError:
            for window in opened:
                _discard(window)
            raise
        *more, first = opened
        return JoinedWindow(first, more)

    def close(self) -> None:
        """End what the first one holds open."""
        if isinstance(self._first, Closing):
            self._first.close()


class JoinedLoadMeter(JoinedMeter):
    """The same where the first one sends load."""

    @property
    def context(self) -> Context:
        """The load that it sends."""
        assert isinstance(self._first, OffersLoad)
        return self._first.context

    def offering(self, context: Context) -> Meter:
        """Return the meter at another load. Raises InvalidInput where it cannot be offered."""
        assert isinstance(self._first, OffersLoad)
        return joined(self._first.offering(context), self._more)


class JoinedRunMeter(JoinedMeter):
    """The same where the first one measures whole runs."""

    def __init__(self, first: RunMeter, more: Sequence[Meter]) -> None:
        super().__init__(first, more)
        self.runs = first.runs


class JoinedWindow:
    """The open windows of one."""

    def __init__(self, first: Window, more: Sequence[Window]) -> None:
        self._first, self._more = first, tuple(more)

    def wait(self, seconds: float) -> bool:
        """Wait so long for the end of a batch of the first one; return whether it has come."""
        return not isinstance(self._first, WaitsForRuns) or self._first.wait(seconds)

    def read(self) -> Reading:
        """Return what all show so far. Raises MeasurementError."""
        return _merged([self._first.read(), *(window.read() for window in self._more)])

    def stop(self) -> Reading:
        """Close all and return what they showed. Raises MeasurementError."""
        try:
            shown = self._first.stop()
        except TuningError:
            for window in self._more:
                _discard(window)
            raise
        return _merged([shown, *(window.stop() for window in self._more)])


def _merged(readings: Sequence[Reading]) -> Reading:
    """Return one reading; where two tell the same, the first one's word counts."""
    totals = {k: v for one in reversed(readings) for k, v in one.totals.items()}
    estimates = {k: v for one in reversed(readings) for k, v in one.estimates.items()}
    return Reading(totals, estimates)


def _discard(window: Window) -> None:
    try:
        window.stop()
    except TuningError:
        return
