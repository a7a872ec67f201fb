"""Write and read a profile of speculative decoding as a CSV file, and plan from it.

Each row is one window of an engine: its load, draft length and draft, and its estimates.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from policies import load_policy
from tuner.core import (
    Context,
    Done,
    Estimate,
    InvalidInput,
    Knob,
    Load,
    Measurement,
    Objective,
    Outcome,
    Part,
    Past,
    Phase,
    Role,
    Setting,
    Signal,
    Space,
    Study,
    Terms,
    Trial,
    TrialState,
)
from tuner.profiling.tables import CsvRow, read_rows

LENGTH, DRAFT, SIGNAL, RATE = "speculation_length", "draft", "decoding_requests", "throughput_per_s"
START = datetime(2000, 1, 1, tzinfo=UTC)
CELL = (SIGNAL, LENGTH, DRAFT)
NEEDED = (*CELL, RATE, f"{RATE}_stderr")


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


def profiling_trial(
    number: int, setting: Setting, batch: float, shown: dict[str, Estimate], phase: Phase
) -> Trial:
    """Return a row of a profile as a completed trial; in tuning its requested load is the measured one."""
    load = {SIGNAL: batch}
    seen = Measurement(
        estimates=shown, started_at=START, seconds=1.0, load=Load(1000), context=load
    )
    done = Outcome(state=TrialState.COMPLETED, measurement=seen)
    return measured_trial(number, setting, load if phase is Phase.TUNING else {}, done, phase)


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


def read_profile(path: Path) -> tuple[Space, list[Trial]]:
    """Return the knobs of a profile and its windows as trials, two of the baseline first.

    Rows may be missing, except that each load needs one without drafting (length 0).

    Raises:
        InvalidInput: the file cannot be read, a column is missing, a cell is not a usable number, or a load
            has no row without drafting.
    """
    rows = read_rows(path, NEEDED, "create it with `jouletune speculation profile --out FILE.csv`")
    drafts = tuple(dict.fromkeys(row.cells[DRAFT] for row in rows))
    windows = [_window(row) for row in rows]
    lengths = tuple(sorted({0, *(length for _, length, _, _ in windows)}))
    plain = {batch for batch, length, _, _ in windows if length == 0}
    if bare := sorted({batch for batch, *_ in windows} - plain):
        raise InvalidInput(
            f"{path} has no row of length 0 at {bare[0]:g} requests",
            hint="add the row: decoding without drafting is always a candidate",
        )
    space = Space(
        (
            Knob(LENGTH, lengths, 0, Part.WORKLOAD, role=Role.SPECULATION_LENGTH),
            Knob(DRAFT, drafts, drafts[0], Part.WORKLOAD, role=Role.DRAFT),
        )
    )
    trials = [
        profiling_trial(
            n, {LENGTH: length, DRAFT: draft if length else drafts[0]}, batch, shown, Phase.TUNING
        )
        for n, (batch, length, draft, shown) in enumerate(windows, 3)
    ]
    first = trials[0]
    baseline = next(t for t in trials if t.setting[LENGTH] == 0)
    base = [
        profiling_trial(
            n, space.default, first.context[SIGNAL], dict(baseline.shown), Phase.BASELINE
        )
        for n in (1, 2)
    ]
    return space, [*base, *trials]


def planned(space: Space, trials: Sequence[Trial]) -> Done:
    """Return the policy's plan from these windows alone. Raises InvalidInput: it cannot make one."""
    spent = sum(t.phase is Phase.TUNING for t in trials)
    answer = load_policy("speculation").suggest(
        Past(study=profiling_study(space, spent), trials=tuple(trials))
    )
    if not isinstance(answer, Done):
        raise InvalidInput(f"no plan from this profile: {answer.why}")
    return answer


def _window(row: CsvRow) -> tuple[float, int, str, dict[str, Estimate]]:
    """Return a row's load, draft length, draft and estimates. Raises InvalidInput."""
    batch, length = row.count(SIGNAL), row.count(LENGTH, least=0)
    shown = {}
    for name, text in row.cells.items():
        if name in CELL or name.endswith("_stderr") or not text:
            continue
        metric = SIGNAL if name == _column(SIGNAL) else name
        shown[metric] = Estimate.of_mean(row.number(name), row.number(f"{name}_stderr", "0"), 1000)
    if RATE not in shown or shown[RATE].mean <= 0.0:
        raise row.refused(f"{RATE} must be above 0")
    return float(batch), length, row.cells[DRAFT], shown
