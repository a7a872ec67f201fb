"""A series of repeated readings: the times of its steps, their sizes, and its sum."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

Row = tuple[float, ...]


def series(seconds: float, every_s: float, read: Callable[[], Row]) -> list[Row]:
    """Return rows of the elapsed time and the readings, about every `every_s`."""
    rows: list[Row] = []
    began = time.monotonic()
    while (now := time.monotonic() - began) < seconds:
        rows.append((now, *read()))
        time.sleep(max(0.0, every_s - (time.monotonic() - began - now)))
    return rows


def steps(rows: Sequence[Row], column: int) -> list[tuple[float, float]]:
    """Return the times at which a column changed, with the new values."""
    known = [(row[0], row[column]) for row in rows if not math.isnan(row[column])]
    return [now for before, now in pairwise(known) if now[1] != before[1]]


def described(moved: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return the steps of a series: their number, interval in ms, and quantum in its unit.

    The quantum is the greatest common divisor of the steps.
    """
    if len(moved) < 2:
        return {"steps": len(moved)}
    gaps = sorted((b[0] - a[0]) * 1000.0 for a, b in pairwise(moved))
    sizes = [round(abs(b[1] - a[1])) for a, b in pairwise(moved)]
    return {
        "steps": len(moved),
        "interval_ms": {
            "p5": round(gaps[len(gaps) // 20], 2),
            "p50": round(statistics.median(gaps), 2),
            "p95": round(gaps[len(gaps) * 19 // 20], 2),
            "most": round(gaps[-1], 2),
        },
        "quantum": math.gcd(*sizes),
        "step_p50": statistics.median(sizes),
        "backwards": sum(b[1] < a[1] for a, b in pairwise(moved)),
    }


def ratio(rows: Sequence[Row], moved: Sequence[tuple[float, float]], column: int) -> float | None:
    """Return the counter's joules over the integral of a power, from its first step to its last."""
    if len(moved) < 2:
        return None
    between = [
        (row[0], row[column])
        for row in rows
        if moved[0][0] <= row[0] <= moved[-1][0] and not math.isnan(row[column])
    ]
    joules = sum((b[0] - a[0]) * (a[1] + b[1]) / 2000.0 for a, b in pairwise(between))
    return round((moved[-1][1] - moved[0][1]) / 1000.0 / joules, 4) if joules > 0.0 else None


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the minimum, the median and the maximum; empty without values."""
    if not values:
        return {}
    return {"least": min(values), "p50": statistics.median(values), "most": max(values)}
