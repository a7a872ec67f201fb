"""History as JSON, CSV and Parquet. The same rows always give the same order of columns."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from db.history import HistoryRow
from tuner import files
from tuner.bounds import visible
from tuner.core import Estimate

if TYPE_CHECKING:
    import pyarrow

ABOUT = tuple(f.name for f in fields(HistoryRow) if f.name not in ("setting", "load", "metrics"))
"""The columns of every trial, in this order; they come before its setting and its metrics."""

NUMBERS = ("mean", "stderr", "n", "low", "high", "origin", "scope")

FORMULA = ("=", "+", "-", "@")
"""Spreadsheets read a text with such a start as a formula: https://owasp.org/www-community/attacks/CSV_Injection."""
KNOB = "knob:"
LOAD = "load:"

Cell = bool | int | float | str | datetime | None


def as_json(rows: Sequence[HistoryRow]) -> str:
    """Return the rows as a JSON array of objects; an unbounded side of an estimate is null."""
    return json.dumps([_object(row) for row in rows], indent=2, ensure_ascii=False, allow_nan=False)


def as_csv(rows: Sequence[HistoryRow]) -> str:
    """Return the rows as CSV with a header, in the order of `columns`.

    A text that a spreadsheet would read as a formula gets a leading apostrophe; control characters are
    replaced.
    """
    names = columns(rows)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        cells = _cells(row)
        writer.writerow([_text(cells.get(name)) for name in names])
    return out.getvalue()


def as_parquet(rows: Sequence[HistoryRow], path: Path) -> None:
    """Write the rows to a Parquet file as `as_table` returns them, whole or not at all. Raises OSError."""
    from pyarrow import parquet

    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        files.make_private(unfinished)
        parquet.write_table(as_table(rows), unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def as_table(rows: Sequence[HistoryRow]) -> pyarrow.Table:
    """Return the rows as an Arrow table, in the order of `columns`; times are in UTC.

    A knob with numbers as values becomes a column of numbers; a knob whose values differ in type between
    studies becomes a column of text.
    """
    import pyarrow

    types = {
        "number": pyarrow.int64(),
        "attempt": pyarrow.int64(),
        "started_at": pyarrow.timestamp("us", "UTC"),
        "ended_at": pyarrow.timestamp("us", "UTC"),
        "censored": pyarrow.bool_(),
    }
    kinds = {"n": pyarrow.int64(), "origin": pyarrow.string(), "scope": pyarrow.string()}
    cells = [_cells(row) for row in rows]
    table = {}
    for name in columns(rows):
        column = [cell.get(name) for cell in cells]
        if name.startswith(KNOB):
            table[name] = pyarrow.array(_of_one_kind(column))
        elif name in ABOUT:
            table[name] = pyarrow.array(column, types.get(name, pyarrow.string()))
        else:
            _, colon, part = name.rpartition(":")
            kind = kinds.get(part) if colon else None
            table[name] = pyarrow.array(column, kind or pyarrow.float64())
    return pyarrow.table(table)


def columns(rows: Sequence[HistoryRow]) -> tuple[str, ...]:
    """Return the column names: `ABOUT`, `knob:NAME`, `load:NAME`, then `METRIC` and `METRIC:PART`.

    PART is each other name of `NUMBERS`. Knobs, loads and metrics are sorted.
    """
    knobs = sorted({name for row in rows for name in row.setting})
    loads = sorted({name for row in rows for name in row.load})
    metrics = sorted({name for row in rows for name in row.metrics})
    return (
        *ABOUT,
        *(f"{KNOB}{name}" for name in knobs),
        *(f"{LOAD}{name}" for name in loads),
        *(_column(name, part) for name in metrics for part in NUMBERS),
    )


def _column(metric: str, part: str) -> str:
    """Return the column name of one number of a metric's estimate; the mean has the metric's name."""
    return metric if part == "mean" else f"{metric}:{part}"


def _object(row: HistoryRow) -> dict[str, Any]:
    """Return the row as the object that `as_json` writes."""
    about = {name: _plain(getattr(row, name)) for name in ABOUT}
    metrics = {name: _numbers(estimate) for name, estimate in row.metrics.items()}
    return {**about, "setting": dict(row.setting), "load": row.load, "metrics": metrics}


def _cells(row: HistoryRow) -> dict[str, Cell]:
    """Return the row's values by column name; a column that it lacks is missing."""
    cells: dict[str, Cell] = {name: getattr(row, name) for name in ABOUT}
    cells["devices"] = " ".join(row.devices)
    cells |= {name: str(cells[name]) for name in ("phase", "state")}
    cells["verdict"] = row.verdict.value if row.verdict is not None else None
    cells |= {f"{KNOB}{name}": value for name, value in row.setting.items()}
    cells |= {f"{LOAD}{name}": value for name, value in row.load.items()}
    for metric, estimate in row.metrics.items():
        cells |= {_column(metric, part): value for part, value in _numbers(estimate).items()}
    return cells


def _numbers(estimate: Estimate) -> dict[str, Cell]:
    """Return an estimate by the names in `NUMBERS`; an unbounded side is None."""
    return {
        "mean": estimate.mean,
        "stderr": estimate.stderr,
        "n": estimate.n,
        "low": estimate.low if math.isfinite(estimate.low) else None,
        "high": estimate.high if math.isfinite(estimate.high) else None,
        "origin": estimate.origin.value,
        "scope": estimate.scope.value,
    }


def _plain(value: Any) -> Any:  # noqa: ANN401  any field of a row
    """Return a value that JSON can hold: a time as ISO 8601 text, others unchanged."""
    return value.isoformat() if isinstance(value, datetime) else value


def _text(cell: Cell) -> str:
    """Return a cell of a CSV file: no control characters and no formula."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        text = "\n".join(map(visible, cell.split("\n")))
        return f"'{text}" if text.startswith(FORMULA) else text
    return cell.isoformat() if isinstance(cell, datetime) else str(cell)


def _of_one_kind(cells: list[Cell]) -> Sequence[Cell]:
    """Return the cells with one type, as Arrow requires: int and float as float, other mixtures as text."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if len(kinds) <= 1:
        return cells
    if kinds == {int, float}:
        return [None if cell is None else float(cell) for cell in cells]  # type: ignore[arg-type]
    return [None if cell is None else str(cell) for cell in cells]
