"""Read a CSV file of inference windows that were measured beside fine-tuning, for its admission.

Each row is one window. All are of one workload at one setting; only the batch size may differ. The
columns are `batch_size`, the metric of the constraint, and `finetuning_gflop` and
`finetuning_flop_per_byte` of one step of the fine-tuning that ran throughout the window (both empty: none
ran). The output of `jouletune history --study ID --format csv` needs only the last two in addition.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from policies.polythrottle.admission import BATCH, Demand, Mix, MixWindow
from tuner.core import Estimate, InvalidInput
from tuner.profiling.tables import read_rows

BESIDE = ("finetuning_gflop", "finetuning_flop_per_byte")
DESCRIBE = f"describe the work beside each window in the columns {' and '.join(BESIDE)}"
KNOB = "knob:"


def read_windows(path: Path, metric: str) -> list[MixWindow]:
    """Return each window's mix of work and its estimate of a metric.

    Left out are trials that did not complete or were cut short, and tails without an upper bound.

    Raises:
        InvalidInput: the file cannot be read, a column is missing, a cell is not a usable number, or the
            windows are of several settings.
    """
    rows = read_rows(path, (BATCH, metric, *BESIDE), DESCRIBE, {KNOB + BATCH: BATCH})
    knobs = [name for name in rows[0].cells if name.startswith(KNOB)]
    if moved := [name for name in knobs if len({row.cells[name] for row in rows}) > 1]:
        raise InvalidInput(
            f"{path} has windows at several values of {', '.join(moved)}",
            hint="keep the rows of the held setting only; interference depends on the setting",
        )
    windows = []
    for row in rows:
        if not _proves(row.cells, metric):
            continue
        idle = "" if any(row.cells[name] for name in BESIDE) else "0"
        gflop, intensity = (row.number(name, idle) for name in BESIDE)
        stderr = row.number(f"{metric}:stderr", "0")
        shown = Estimate.of_mean(row.positive(metric), stderr)
        mix = Mix(Demand(), row.count(BATCH), Demand(gflop, intensity))
        windows.append(MixWindow(mix, shown))
    return windows


def _proves(row: Mapping[str, str], metric: str) -> bool:
    """Return whether a row is a complete window with a bounded estimate of the metric."""
    whole = row.get("state", "completed") == "completed" and row.get("censored") != "True"
    return whole and bool(row.get(f"{metric}:high", "bounded")) and bool(row[metric])
