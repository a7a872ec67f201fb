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
"""Seconds, joules and bytes outside this range are errors, and would overflow or vanish in an average."""


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
    rows = _rows(path)
    names = list(dict.fromkeys(row["model"] for _, row in rows))
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
    for number, row in rows:
        if row["model"] == chosen:
            read = _Row.read(f"{path}, row {number}", row)
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
    def read(cls, where: str, row: Mapping[str, str]) -> _Row:
        """Return a row as numbers. Raises InvalidInput, naming row and column."""
        return cls(
            instances=_count(where, "instances", row.get("instances") or "1"),
            threads=_count(where, "threads", row["threads"]),
            batch=_count(where, "batch_size", row["batch_size"]),
            latency_s=_positive(where, "latency_s", row["latency_s"]),
            stderr_s=_number(where, "latency_stderr_s", row.get("latency_stderr_s") or "0"),
            energy_j=_optional(where, "energy_j", row),
            memory_bytes=_optional(where, "memory_bytes", row),
        )


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Return the rows with their line numbers. Raises InvalidInput: the file is not a complete table."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True, skipinitialspace=True)
            columns = reader.fieldnames or []
            rows = [(reader.line_num, row) for row in reader]
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"cannot read the profile {path}: {error}", hint="name a CSV file in UTF-8"
        ) from error
    except (OSError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidInput(
            f"cannot read the profile {path}: {reason}", hint="name a CSV file"
        ) from error
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        raise InvalidInput(
            f"{path} lacks the columns {', '.join(missing)}",
            hint=f"name its columns {','.join(COLUMNS)} in the first line",
        )
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise InvalidInput(f"{path} has the column {twice[0]} twice", hint="remove one of them")
    if not rows:
        raise InvalidInput(f"{path} has no rows", hint="name a file with measurements")
    for number, row in rows:
        # DictReader files surplus cells under None and fills missing ones with None.
        if None in row or None in row.values():
            raise InvalidInput(f"{path}, row {number}: not as many cells as columns", hint=MEND)
        if not row["model"].strip():
            raise InvalidInput(f"{path}, row {number}: the model has no name", hint=MEND)
    return rows


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


def _number(where: str, column: str, text: str) -> float:
    """Return a cell as a number from 0 to `MOST`. Raises InvalidInput."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0.0):
        raise InvalidInput(f"{where}: {column} = {text!r} is not a finite number >= 0", hint=MEND)
    if value > MOST:
        raise InvalidInput(f"{where}: {column} = {text!r} is above {MOST:g}", hint=MEND)
    return value


def _positive(where: str, column: str, text: str) -> float:
    """Return a cell as a number from `LEAST` to `MOST`. Raises InvalidInput."""
    value = _number(where, column, text)
    if value < LEAST:
        raise InvalidInput(f"{where}: {column} = {text!r} must be clearly above zero", hint=MEND)
    return value


def _optional(where: str, column: str, row: Mapping[str, str]) -> float | None:
    """Return a cell as a positive number, None if it is empty or missing. Raises InvalidInput."""
    text = row.get(column)
    return _positive(where, column, text) if text else None


def _count(where: str, column: str, text: str) -> int:
    """Return a cell as an integer of at least 1. Raises InvalidInput."""
    value = _number(where, column, text)
    if value < 1.0 or not value.is_integer():
        raise InvalidInput(f"{where}: {column} = {text!r} is not an integer >= 1", hint=MEND)
    return int(value)
