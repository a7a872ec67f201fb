"""Joins several meters, and several totals: one that counts the work, and further ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agents.host.processes.service_process import ServiceProcess
from agents.load.meter import Totals
from agents.target.side import Closing, MeasuresRuns, OffersLoad, WaitsForRuns
from tuner.core import (
    Context,
    Fact,
    MeasurementError,
    Meter,
    Reading,
    TuningError,
    Window,
    demand,
    reraised,
)


def counting_all(
    exposition: Callable[[], Totals] | None, process: ServiceProcess | None
) -> Callable[[], Totals]:
    """Return a function that starts to count a service's metrics and its process's CPU time.

    If both have the CPU time, that of the process counts.
    """

    def begin() -> Totals:
        started: list[Totals] = [] if exposition is None else [exposition()]
        started += [] if process is None else [ProcessTotals(process)]
        return lambda: {name: value for one in started for name, value in one().items()}

    return begin


class ProcessTotals:
    """The CPU seconds of a service's processes since the count began. Raises MeasurementError."""

    def __init__(self, process: ServiceProcess) -> None:
        self._process = process
        self._before = self._look()

    def __call__(self) -> Mapping[str, float]:
        """Return the CPU seconds so far.

        Raises MeasurementError: the service was restarted, or has ended.
        """
        (started, used), (started_now, now) = self._before, self._look()
        if started_now != started:
            raise MeasurementError("the service restarted during the window", hint="measure again")
        return {} if used is None or now is None else {"cpu_s": now - used}

    def _look(self) -> tuple[str, float | None]:
        """Return the start and the CPU seconds. Raises MeasurementError."""
        with reraised(MeasurementError, TuningError):
            return self._process.started(), self._process.cpu_s()


def joined(first: Meter, more: Sequence[Meter]) -> Meter:
    """Return a meter with the metrics of all; it has the abilities of the first."""
    if not more:
        return first
    return (
        JoinedLoadMeter(first, more) if isinstance(first, OffersLoad) else JoinedMeter(first, more)
    )


class JoinedMeter:
    """Opens the windows of several meters as one."""

    def __init__(self, first: Meter, more: Sequence[Meter]) -> None:
        self._first, self._more = first, tuple(more)
        if isinstance(first, MeasuresRuns):
            self.runs = first.runs

    def start(self) -> JoinedWindow:
        """Open a window: first those without load, so that they see all of the load."""
        opened: list[Window] = []
        try:
            for meter in (*self._more, self._first):
                opened.append(meter.start())  # noqa: PERF401 - those opened are closed below
        except TuningError:
            for window in opened:
                _ended(window)
            raise
        *more, first = opened
        return JoinedWindow(first, more)

    def close(self) -> None:
        """Release the first meter's resources."""
        if isinstance(self._first, Closing):
            self._first.close()


class JoinedLoadMeter(JoinedMeter):
    """A joined meter whose first one sends load."""

    @property
    def context(self) -> Context:
        """The load that it sends."""
        assert isinstance(self._first, OffersLoad)
        return self._first.context

    def offering(self, context: Context) -> Meter:
        """Return the meter at another load. Raises InvalidInput if it cannot be sent."""
        assert isinstance(self._first, OffersLoad)
        return joined(self._first.offering(context), self._more)


class JoinedWindow:
    """The open windows of a joined meter."""

    def __init__(self, first: Window, more: Sequence[Window]) -> None:
        self._first, self._more = first, tuple(more)

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for a batch of the first window; return whether it ended."""
        return not isinstance(self._first, WaitsForRuns) or self._first.wait(seconds)

    def read(self) -> Reading:
        """Return the metrics of all so far. Raises MeasurementError."""
        try:
            return _merged([self._first.read(), *(window.read() for window in self._more)])
        except TuningError as error:
            raise self._cause(error) from None

    def stop(self) -> Reading:
        """Close all windows and return their metrics. Raises MeasurementError."""
        try:
            shown = self._first.stop()
        except TuningError as error:
            raise self._cause(error) from None
        more = [window.stop() for window in reversed(self._more)]
        return _merged([shown, *reversed(more)])

    def _cause(self, error: TuningError) -> TuningError:
        """Close the further windows; return the cause of an error if their facts show it, else the error.

        If a counter went back, another process may have answered.
        """
        facts = [fact for window in self._more for fact in _ended(window)]
        try:
            demand(*facts)
        except MeasurementError as cause:
            return cause
        return error


def _merged(readings: Sequence[Reading]) -> Reading:
    """Merge readings; if two report the same metric, the first one's counts."""
    totals = {k: v for one in reversed(readings) for k, v in one.totals.items()}
    estimates = {k: v for one in reversed(readings) for k, v in one.estimates.items()}
    notes = {k: v for one in reversed(readings) for k, v in one.notes.items()}
    latencies = next((one.latencies for one in readings if one.latencies is not None), None)
    facts = tuple(f for one in readings for f in one.facts)
    return Reading(totals, estimates, notes, facts, latencies)


def _ended(window: Window) -> tuple[Fact, ...]:
    """Close a window and return its facts; none if it fails."""
    try:
        return window.stop().facts
    except TuningError:
        return ()
