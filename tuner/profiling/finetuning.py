"""Read a CSV file of inference windows that were measured beside fine-tuning, for its admission.

Each row is one window. All are of one workload at one setting; only the batch size may differ. The
columns are `batch_size`, the metric of the constraint, and `finetuning_gflop` and
`finetuning_flop_per_byte` of one step of the fine-tuning that ran throughout the window (both empty: none
ran). The output of `jouletune history --study ID --format csv` needs only the last two in addition.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from policies.polythrottle.admission import BATCH, Demand, Mix, MixWindow
from tuner.core import Estimate, InvalidInput

GFLOP, INTENSITY = "finetuning_gflop", "finetuning_flop_per_byte"
KNOB = "knob:"

Row = Mapping[str, str]


def read_windows(path: Path, metric: str) -> list[MixWindow]:
    """Return each window's mix of work and its estimate of a metric.

    Left out are trials that did not complete or were cut short, and tails without an upper bound.

    Raises:
        InvalidInput: the file cannot be read, a column is missing, a cell is not a usable number, or the
            windows are of several settings.
    """
    windows = []
    for number, row in enumerate(_rows(path, metric), 2):
        if not _proves(row, metric):
            continue
        where = f"{path}, row {number}"
        idle = 0.0 if not row[GFLOP] and not row[INTENSITY] else math.nan
        beside = Demand(_cell(where, row, GFLOP, idle), _cell(where, row, INTENSITY, idle))
        stderr = _cell(where, row, f"{metric}:stderr", 0.0)
        shown = Estimate.of_mean(_above(where, row, metric), stderr)
        batch = _above(where, row, BATCH)
        if not batch.is_integer():
            raise InvalidInput(
                f"{where}: {BATCH} = {row[BATCH]!r} is not a positive integer",
                hint="correct the row",
            )
        windows.append(MixWindow(Mix(Demand(), int(batch), beside), shown))
    return windows


def _above(where: str, row: Row, name: str) -> float:
    """Return a cell as a number above zero. Raises InvalidInput: it is anything else."""
    value = _cell(where, row, name)
    if value == 0.0:
        raise InvalidInput(
            f"{where}: {name} = {row[name]!r} is not above zero", hint="correct the row"
        )
    return value


def _cell(where: str, row: Row, name: str, default: float = math.nan) -> float:
    """Return a cell as a finite number of at least 0, the default if it is empty. Raises InvalidInput."""
    text = row.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0.0):
        raise InvalidInput(
            f"{where}: {name} = {text!r} is not a finite number", hint="correct the row"
        )
    return value


def _rows(path: Path, metric: str) -> Sequence[Row]:
    """Return the rows, with the prefix `knob:` removed from the columns' names. Raises InvalidInput."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            read = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"cannot read {path}: {error}", hint="name a CSV file") from None
    for number, row in enumerate(read, 2):
        # DictReader files surplus cells under None and fills missing ones with None.
        if None in row or None in row.values():
            raise InvalidInput(
                f"{path}, row {number}: not as many cells as columns", hint="correct the row"
            )
    knobs = {n for row in read for n in row if n and n.startswith(KNOB)} - {KNOB + BATCH}
    moved = [name for name in sorted(knobs) if len({row[name] for row in read}) > 1]
    if moved:
        raise InvalidInput(
            f"{path} has windows at several values of {', '.join(moved)}",
            hint="keep the rows of the held setting only; interference depends on the setting",
        )
    rows = [{name.removeprefix(KNOB): text for name, text in row.items() if name} for row in read]
    missing = [n for n in (BATCH, metric, GFLOP, INTENSITY) if not rows or n not in rows[0]]
    if missing:
        raise InvalidInput(
            f"{path} lacks the columns {', '.join(missing)}" if rows else f"{path} has no rows",
            hint=f"describe the work beside each window in the columns {GFLOP} and {INTENSITY}",
        )
    return rows


def _proves(row: Row, metric: str) -> bool:
    """Return whether a row is a complete window with a bounded estimate of the metric."""
    whole = row.get("state", "completed") == "completed" and row.get("censored") != "True"
    return whole and bool(row.get(f"{metric}:high", "bounded")) and bool(row[metric])
