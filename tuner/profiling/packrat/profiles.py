"""Read a table of measured batch latencies, from which Packrat plans without measuring.

The table is CSV with the columns `model, threads, batch_size, latency_s`. Optional columns are
`latency_stderr_s`, `energy_j` (per item), `memory_bytes` (of one instance) and `instances`. A row
with more than one instance is a plan measured side by side: each instance has `batch_size` items, and
the latency is the slowest one's. Other columns are ignored.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from policies.packrat.interference import PlanWindow
from policies.packrat.profile import Profile, ProfilePoint
from tuner.core import InvalidInput, NotFound
from tuner.profiling.tables import CsvRow, read_rows

COLUMNS = ("model", "threads", "batch_size", "latency_s")


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
    rows = read_rows(path, COLUMNS)
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
