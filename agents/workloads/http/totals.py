"""Totals of a service: its items, and its CPU time from the kernel or from its metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agents.host.processes.service_process import ServiceProcess
from agents.load.meter import Totals
from tuner.core import MeasurementError, TuningError, reraised


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
