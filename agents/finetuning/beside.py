"""Runs fine-tuning beside inference, window by window: measures both, and paces the job."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from agents.finetuning.job import FineTuningJob
from tuner.core import Clock, Limit, Meter, Reading

TURN_S, LOOK_S = 0.02, 0.1
"""The shortest time that the job runs or pauses, and the time between two looks at the tail latency.

A turn is short so that the job delays only few requests, as many as the limit tolerates.
"""


class Pacer(Protocol):
    """Decides when the job may run: `FineTuningPacer`, or fixed slices of the time."""

    def look(self, tail: float | None, elapsed: float) -> bool:
        """Return whether the job may run for a turn; `elapsed` is the part of the window before it."""

    def window(self, tail: float | None, *, ran: bool) -> None:
        """Record a whole window."""


@dataclass(frozen=True, slots=True)
class FineTuningWindow:
    """The metrics of one window of a pair; NaN if the inference reported no tail latency.

    `finetuning_share` is the share of the time in which the job was allowed to run.
    `finetuning_gflop` per step and `finetuning_flop_per_byte` are NaN if the job does not print
    them.
    """

    tail: float
    kept: bool
    requests: int
    finetuning_share: float
    finetuning_steps_per_s: float
    finetuning_gflop: float
    finetuning_flop_per_byte: float


def fine_tune_beside(
    meter: Meter,
    job: FineTuningJob,
    pacer: Pacer,
    limit: Limit,
    clock: Clock,
    window_s: float,
    stopped: Callable[[], bool],
) -> Iterator[FineTuningWindow]:
    """Yield each window until the job ends or is stopped; between windows the job is paused.

    Raises:
        MeasurementError: the inference reports no metrics.
    """
    while not (stopped() or job.ended):
        before, began = job.totals(), clock.monotonic()
        window = meter.start()
        try:
            tail, looks_s = None, 0.0
            while (passed_s := clock.monotonic() - began) < window_s:
                if stopped() or job.ended:
                    break
                if passed_s >= looks_s:
                    tail, looks_s = _tail(window.read(), limit.metric), passed_s + LOOK_S
                job.let(run=pacer.look(tail, passed_s / window_s))
                clock.sleep(TURN_S)
        finally:
            reading = window.stop()
            if not job.ended:
                job.let(run=False)
        after = job.totals()
        tail = _tail(reading, limit.metric)
        pacer.window(tail, ran=after["ran_s"] > before["ran_s"])
        seconds = clock.monotonic() - began
        yield _shown(tail, limit, reading, {n: after[n] - before[n] for n in after}, seconds)


def _tail(reading: Reading, metric: str) -> float | None:
    """Return the tail latency of a reading; None if it is unknown or infinite."""
    shown = reading.estimates.get(metric)
    return None if shown is None or not math.isfinite(shown.mean) else shown.mean


def _shown(
    tail: float | None, limit: Limit, reading: Reading, gained: dict[str, float], seconds: float
) -> FineTuningWindow:
    """Return the metrics of a window; `gained` has the growth of the job's totals."""
    steps = gained["steps"]
    counted = steps > 0.0 and gained["gflop"] > 0.0
    return FineTuningWindow(
        tail=math.nan if tail is None else tail,
        kept=tail is None or limit.holds(tail),
        requests=int(reading.totals.get("items", 0.0)),
        finetuning_share=min(1.0, gained["ran_s"] / seconds),
        finetuning_steps_per_s=steps / seconds,
        finetuning_gflop=gained["gflop"] / steps if counted else math.nan,
        finetuning_flop_per_byte=gained["gflop"] / gained["gbyte"]
        if counted and gained["gbyte"] > 0.0
        else math.nan,
    )
