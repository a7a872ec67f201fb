"""Write and read a profile of speculative decoding as a CSV file, and plan from it.

Each row is one window of an engine: its load, draft length and draft, and its estimates.
"""

from __future__ import annotations

import csv
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
    StoreError,
    Study,
    Terms,
    Trial,
    TrialState,
)

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
    return Trial(
        number=number,
        setting=setting,
        phase=phase,
        context={SIGNAL: batch} if phase is Phase.TUNING else {},
        state=TrialState.COMPLETED,
        started_at=START,
        ended_at=START,
        measurement=Measurement(
            estimates=shown,
            started_at=START,
            seconds=1.0,
            load=Load(1000),
            context={SIGNAL: batch},
        ),
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


def write_profile(path: Path, trials: Iterable[Trial]) -> None:
    """Write each window that is evidence and has a measured load as a row. Raises StoreError."""
    measured = [t for t in trials if SIGNAL in t.ran_at and t.state.evidence]
    names = sorted({name for t in measured for name in t.shown if name != RATE})
    columns = [*NEEDED, *(c for name in names for c in (_column(name), f"{_column(name)}_stderr"))]
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns, restval="")
            writer.writeheader()
            for trial in measured:
                cell = {name: trial.setting.get(name, "") for name in (LENGTH, DRAFT)}
                row: dict[str, object] = {SIGNAL: f"{trial.ran_at[SIGNAL]:g}", **cell}
                for name, estimate in trial.shown.items():
                    if math.isfinite(estimate.mean) and math.isfinite(estimate.stderr):
                        row |= {
                            _column(name): estimate.mean,
                            f"{_column(name)}_stderr": estimate.stderr,
                        }
                writer.writerow(row)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror}", hint="choose another --out"
        ) from None


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
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"cannot read {path}: {error}", hint="name a CSV file") from None
    missing = [name for name in NEEDED if not rows or name not in rows[0]]
    if missing:
        raise InvalidInput(
            f"{path} has no row, or no column {', '.join(missing)}",
            hint="create it with `jouletune speculation profile --out FILE.csv`",
        )
    drafts = tuple(dict.fromkeys(row[DRAFT] for row in rows))
    windows = [_window(f"{path}, row {number}", row) for number, row in enumerate(rows, 2)]
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


def _window(where: str, row: dict[str, str]) -> tuple[float, int, str, dict[str, Estimate]]:
    """Return a row's load, draft length, draft and estimates. Raises InvalidInput."""
    batch, length = _number(where, row, SIGNAL), _number(where, row, LENGTH)
    if batch < 1.0 or batch % 1.0 or length < 0.0 or length % 1.0:
        raise InvalidInput(
            f"{where}: no length {length:g} at {batch:g} requests", hint="correct the row"
        )
    shown = {}
    for name, text in row.items():
        if name in CELL or name.endswith("_stderr") or not text:
            continue
        doubt = _number(where, row, f"{name}_stderr") if row.get(f"{name}_stderr") else 0.0
        metric = SIGNAL if name == _column(SIGNAL) else name
        shown[metric] = Estimate.of_mean(_number(where, row, name), doubt, 1000)
    if RATE not in shown or shown[RATE].mean <= 0.0:
        raise InvalidInput(f"{where}: {RATE} must be above 0", hint="correct the row")
    return batch, int(length), row[DRAFT], shown


def _number(where: str, row: dict[str, str], column: str) -> float:
    """Return a cell as a finite number of at least 0. Raises InvalidInput: it is anything else."""
    try:
        value = float(row[column])
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value) or value < 0.0:
        raise InvalidInput(
            f"{where}: {column} = {row[column]!r} is not a finite number >= 0",
            hint="correct the row",
        )
    return value
