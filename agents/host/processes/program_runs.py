"""Run a program as often as a window requires, one run after the other, and report the measured values."""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated

from pydantic import AfterValidator

from agents.host.processes.commands import ending
from agents.host.service_files import PrintedItems, PrintedMetric, last_words, number, tail
from tuner.core import (
    STANDARD,
    Clock,
    ConfigError,
    Estimate,
    MeasurementError,
    Metric,
    Quantity,
    Reading,
    Scope,
    ratio_estimate,
)

RUNS, LEAST_RUNS = 4, 3
"""Runs per window by default, and at least: fewer have no meaningful standard error."""
Totals = Callable[[], Mapping[str, float]]
"""Returns a service's totals, by metric, since a window was opened; raises MeasurementError."""
TIED = (sys.executable, "-m", "agents.host.processes.tied_run")
END_S = 10.0
"""The time that a program has to end after the request to end, in seconds; its grace is included."""


def enough(runs: int) -> int:
    """Return the number of runs in a window. Raises ConfigError: it is too small."""
    if runs < LEAST_RUNS:
        raise ConfigError(
            f"runs must be at least {LEAST_RUNS}, not {runs}",
            hint="the standard error of a window comes from its runs; make a run shorter",
        )
    return runs


Runs = Annotated[int, AfterValidator(enough)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProgram:
    """A program that runs to its end; `items` is the number of items that a run processes."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path | None
    timeout_s: float
    items: PrintedItems
    metrics: tuple[PrintedMetric, ...]


@dataclass(frozen=True, slots=True)
class RunResult:
    """The time, CPU time, items and printed metrics of one run."""

    seconds: float
    cpu_s: float
    items: float
    metrics: Mapping[str, float]


class ProgramRun:
    """One run of the program, in progress. It ends when the agent ends, even if the agent is killed."""

    def __init__(self, program: MeasuredProgram, clock: Clock) -> None:
        self._program, self._clock = program, clock
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._report, written = os.pipe()
        self._until = clock.monotonic() + program.timeout_s
        try:
            self._tied = subprocess.Popen(
                [*TIED, str(written), *program.words],
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                cwd=program.folder,
                env={**os.environ, **program.environment},
                pass_fds=(written,),
                start_new_session=True,
            )
        finally:
            os.close(written)

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for the run's end; return whether it has ended.

        Raises:
            MeasurementError: the run has exceeded its timeout, and was ended.
        """
        if select.select([self._report], [], [], seconds)[0]:
            return True
        if self._clock.monotonic() >= self._until:
            self.end()
            raise MeasurementError(
                f"{self._name} did not end within {self._program.timeout_s:g} s",
                hint="make a run shorter, or timeout_s longer",
            )
        return False

    def result(self) -> RunResult:
        """Return the result of a run that has ended. Raises MeasurementError: the run failed."""
        try:
            content = os.read(self._report, 4096)
            text = tail(self._output)
        finally:
            self.end()
        if not content:
            raise MeasurementError(f"{self._name} was killed from outside", hint="try again")
        ended = json.loads(content)
        if ended["status"]:
            raise MeasurementError(
                f"{self._name} {ending(ended['status'])}: {last_words(text)}",
                hint="run it manually as the agent's user",
            )
        items = self._program.items.of(text)
        if not items > 0.0:
            raise MeasurementError(f"{self._name} reports {items:g} items")
        return RunResult(
            ended["seconds"],
            ended["cpu_s"],
            items,
            {m.name: number(m, text, m.quantity.unit) for m in self._program.metrics},
        )

    def end(self) -> None:
        """End the run with its descendants, and delete its output. May be called twice."""
        if self._output.closed:
            return
        assert self._tied.stdin is not None
        self._tied.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._tied.wait(END_S)
        self._tied.kill()
        self._tied.wait()
        os.close(self._report)
        self._output.close()

    @property
    def _name(self) -> str:
        """The program and its arguments, for messages."""
        return " ".join(self._program.words)


@dataclass(frozen=True)
class RunMeter:
    """Measures whole runs: a window has the given number of runs, and each run is one batch.

    `program` returns the program to run at the setting in force. The CPU time is that of the runs. If
    the runs put a service to work, `counting` starts to count that service's totals; the CPU time of
    the runs is then reported as that of the load.
    """

    _program: Callable[[], MeasuredProgram]
    runs: int
    _clock: Clock
    _counting: Callable[[], Totals] | None = None
    _open: list[RunWindow] = field(default_factory=list)

    def start(self) -> RunWindow:
        """Start the first run. Raises MeasurementError: the service does not report its totals."""
        totals = None if self._counting is None else self._counting()
        window = RunWindow(self._program(), self.runs, self._clock, totals)
        self._open[:] = [*(w for w in self._open if w.running), window]
        return window

    def close(self) -> None:
        """End all runs that are still in progress."""
        for window in self._open:
            window.end()


class RunWindow:
    """An open window. The first reading after a run's end collects its result and starts the next run."""

    def __init__(
        self, program: MeasuredProgram, runs: int, clock: Clock, totals: Totals | None = None
    ) -> None:
        self._program, self._runs, self._clock, self._totals = program, runs, clock, totals
        self._done: list[RunResult] = []
        self._run: ProgramRun | None = ProgramRun(program, clock)

    @property
    def running(self) -> bool:
        """Whether a run is in progress."""
        return self._run is not None

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for a run's end; return whether it has ended. Raises MeasurementError."""
        return self._run is None or self._run.wait(seconds)

    def read(self) -> Reading:
        """Return the reading of the runs that have ended. Raises MeasurementError: a run failed."""
        if self._run is not None and self._run.wait(0.0):
            self._done.append(self._run.result())
            more = len(self._done) < self._runs
            self._run = ProgramRun(self._program, self._clock) if more else None
        return self._reading()

    def stop(self) -> Reading:
        """End the run in progress, discard it, and return the reading of the earlier runs."""
        self.end()
        return self._reading()

    def end(self) -> None:
        """End the run in progress."""
        if self._run is not None:
            self._run.end()
            self._run = None

    def _reading(self) -> Reading:
        """Return the totals and estimates over the runs that have ended."""
        done = self._done
        used_s = math.fsum(run.cpu_s for run in done)
        totals = {"items": math.fsum(run.items for run in done)}
        if self._totals is None:
            totals["cpu_s"] = used_s
        else:
            totals |= {"load_cpu_s": used_s, **self._totals()}
        shown = {"latency_ms": _mean("latency_ms", STANDARD["latency_ms"], self._times())}
        for metric in self._program.metrics:
            values = [run.metrics[metric.name] for run in done]
            shown[metric.name] = _mean(metric.name, metric.quantity, values)
        return Reading(totals, {name: e for name, e in shown.items() if e is not None})

    def _times(self) -> list[float]:
        """Return the durations of the runs that have ended, in ms."""
        return [1000.0 * run.seconds for run in self._done]


def _mean(name: str, quantity: Quantity, values: list[float]) -> Estimate | None:
    """Return the mean over runs with its standard error from their scatter; None for too few runs."""
    metric = Metric(name, scope=Scope.PROCESS, quantity=quantity)
    return ratio_estimate([(value, 1.0) for value in values], 1.0, metric)
