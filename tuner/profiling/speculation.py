"""Write a profile of speculative decoding as a CSV file.

Each row is one window of an engine: its load, draft length and draft, and its estimates.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from datetime import UTC, datetime

from tuner.core import (
    Context,
    Objective,
    Outcome,
    Phase,
    Setting,
    Signal,
    Space,
    Study,
    Terms,
    Trial,
)

LENGTH, DRAFT, SIGNAL, RATE = "speculation_length", "draft", "decoding_requests", "throughput_per_s"
START = datetime(2000, 1, 1, tzinfo=UTC)
NEEDED = (SIGNAL, LENGTH, DRAFT, RATE, f"{RATE}_stderr")


def profiling_study(space: Space, trials: int) -> Study:
    """Return a study that maximises tokens per second at each number of concurrent requests."""
    return Study(
        id="profile",
        devices=("engine",),
        workload="text",
        space=space,
        objective=Objective(RATE, "maximize"),
        signals=(Signal(SIGNAL, askable=True),),
        policy="speculation",
        terms=Terms(trials=trials),
        phase=Phase.TUNING,
        created_at=START,
    )


def measured_trial(
    number: int, setting: Setting, load: Context, outcome: Outcome, phase: Phase
) -> Trial:
    """Return a window of a running server as a trial, also one that failed."""
    return Trial(
        number=number,
        setting=setting,
        phase=phase,
        context=load,
        state=outcome.state,
        started_at=START,
        ended_at=START,
        measurement=outcome.measurement,
        reason=outcome.reason,
    )


def as_csv(trials: Iterable[Trial]) -> str:
    """Return each window that is evidence and has a measured load as a row of CSV."""
    measured = [t for t in trials if SIGNAL in t.ran_at and t.state.evidence]
    names = sorted({name for t in measured for name in t.shown if name != RATE})
    columns = [*NEEDED, *(c for name in names for c in (_column(name), f"{_column(name)}_stderr"))]
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for trial in measured:
        cell = {name: trial.setting.get(name, "") for name in (LENGTH, DRAFT)}
        row: dict[str, object] = {SIGNAL: f"{trial.ran_at[SIGNAL]:g}", **cell}
        for name, one in trial.shown.items():
            if math.isfinite(one.mean) and math.isfinite(one.stderr):
                row |= {_column(name): one.mean, f"{_column(name)}_stderr": one.stderr}
        writer.writerow(row)
    return out.getvalue()


def _column(name: str) -> str:
    """Return a metric's column name; the number of requests has two: the requested and the measured one."""
    return f"{SIGNAL}_shown" if name == SIGNAL else name
