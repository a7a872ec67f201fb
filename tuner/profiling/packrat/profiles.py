"""Read a table of measured batch latencies, from which Packrat plans without measuring.

The table is CSV with the columns `model, threads, batch_size, latency_s`. Optional columns are
`latency_stderr_s`, `energy_j` (per item), `memory_bytes` (of one instance) and `instances`. A row
with more than one instance is a plan measured side by side: each instance has `batch_size` items, and
the latency is the slowest one's. Other columns are ignored.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from policies.packrat.interference import PlanWindow
from policies.packrat.profile import Profile, ProfilePoint
from tuner.core import InvalidInput, NotFound

COLUMNS = ("model", "threads", "batch_size", "latency_s")
MEND = "correct or remove the row"
LEAST, MOST = 1e-12, 1e15
"""Figures outside this range are errors, and would overflow or vanish in an average."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A table's rows of one model: its instances alone, and plans of several side by side."""

    model: str
    profile: Profile
    windows: tuple[PlanWindow, ...]


def read_profile(path: Path, model: str = "") -> Measured:
    """Read the rows of one model; `model` may be empty if the file has only one.

    Rows of the same configuration are averaged; the standard error of the mean is the larger of that from
    the rows' standard errors and that from their scatter.

    Raises:
        InvalidInput: the file cannot be read, a column is missing, a cell is not a usable number, or
            `model` is empty and the file has several.
        NotFound: the file does not have this model.
    """
    rows = _read_rows(path)
    names = list(dict.fromkeys(row.cells["model"] for row in rows))
    for row in rows:
        if not row.cells["model"].strip():
            raise row.refused("the model has no name")
    if not model and len(names) > 1:
        raise InvalidInput(
            f"{path} has {len(names)} models", hint=f"choose one with --model: {', '.join(names)}"
        )
    chosen = model or names[0]
    if chosen not in names:
        raise NotFound(
            f"{path} has no model {chosen!r}", hint=f"models of the file: {', '.join(names)}"
        )
    groups: dict[tuple[int, int, int], list[_Row]] = {}
    for row in rows:
        if row.cells["model"] == chosen:
            read = _Row.read(row)
            groups.setdefault((read.instances, read.threads, read.batch), []).append(read)
    memory = [r.memory_bytes for group in groups.values() for r in group if r.memory_bytes]
    alone = {(t, b): _point(group) for (n, t, b), group in groups.items() if n == 1}
    if not alone:
        raise InvalidInput(
            f"{path} has no row of one instance of {chosen!r} alone",
            hint="a profile is measured one instance at a time",
        )
    windows = tuple(
        PlanWindow(*at, point.latency_s, point.stderr_s)
        for at, group in groups.items()
        if at[0] > 1
        for point in [_point(group)]
    )
    return Measured(chosen, Profile(alone, max(memory, default=None)), windows)


def _read_rows(path: Path) -> list[CsvRow]:
    """Return the rows of a file with a header.

    Raises:
        InvalidInput: the file cannot be read or has no rows, a column is missing or there twice, or a row
            has another number of cells.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True, skipinitialspace=True)
            columns = next(reader, [])
            rows = [(reader.line_num, cells) for cells in reader if cells]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidInput(f"cannot read {path}: {why}", hint="name a CSV file in UTF-8") from None
    if missing := [name for name in COLUMNS if name not in columns]:
        hint = f"name its columns {','.join(COLUMNS)} in the first line"
        raise InvalidInput(f"{path} lacks the columns {', '.join(missing)}", hint=hint)
    if twice := [name for name, count in Counter(columns).items() if count > 1]:
        raise InvalidInput(f"{path} has the column {twice[0]} twice", hint="remove one of them")
    if not rows:
        raise InvalidInput(f"{path} has no rows", hint="name a file with measurements")
    read = []
    for number, cells in rows:
        row = CsvRow(f"{path}, row {number}", dict(zip(columns, cells, strict=False)))
        if len(cells) != len(columns):
            raise row.refused("not as many cells as columns")
        read.append(row)
    return read


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One row: its file and line, and its cells by column."""

    where: str
    cells: Mapping[str, str]

    def number(self, column: str, default: str = "") -> float:
        """Return a cell as a number from 0 to `MOST`; an empty one as `default`. Raises InvalidInput."""
        text = self.cells.get(column) or default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= 0.0):
            raise self.refused(f"{column} = {text!r} is not a finite number >= 0")
        if value > MOST:
            raise self.refused(f"{column} = {text!r} is above {MOST:g}")
        return value

    def positive(self, column: str) -> float:
        """Return a cell as a number from `LEAST` to `MOST`. Raises InvalidInput."""
        if (value := self.number(column)) < LEAST:
            raise self.refused(f"{column} = {self.cells[column]!r} must be clearly above zero")
        return value

    def count(self, column: str, default: str = "") -> int:
        """Return a cell as an integer of at least 1. Raises InvalidInput."""
        value = self.number(column, default)
        if value < 1 or not value.is_integer():
            raise self.refused(f"{column} = {self.cells[column]!r} is not an integer >= 1")
        return int(value)

    def refused(self, why: str) -> InvalidInput:
        """Return the error of this row."""
        return InvalidInput(f"{self.where}: {why}", hint=MEND)


@dataclass(frozen=True, slots=True)
class _Row:
    instances: int
    threads: int
    batch: int
    latency_s: float
    stderr_s: float
    energy_j: float | None
    memory_bytes: float | None

    @classmethod
    def read(cls, row: CsvRow) -> _Row:
        """Return a row as numbers. Raises InvalidInput, naming row and column."""
        return cls(
            instances=row.count("instances", "1"),
            threads=row.count("threads"),
            batch=row.count("batch_size"),
            latency_s=row.positive("latency_s"),
            stderr_s=row.number("latency_stderr_s", "0"),
            energy_j=row.positive("energy_j") if row.cells.get("energy_j") else None,
            memory_bytes=row.positive("memory_bytes") if row.cells.get("memory_bytes") else None,
        )


def _point(group: Sequence[_Row]) -> ProfilePoint:
    """Return the mean of rows of one configuration, with its standard error."""
    count = len(group)
    stderr = math.hypot(*(r.stderr_s for r in group)) / count
    if count > 1:
        stderr = max(stderr, statistics.stdev(r.latency_s for r in group) / math.sqrt(count))
    joules = [r.energy_j for r in group if r.energy_j is not None]
    return ProfilePoint(
        statistics.fmean(r.latency_s for r in group),
        stderr,
        statistics.fmean(joules) if joules else None,
    )
