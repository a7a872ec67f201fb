"""The chart of a device over time: latency with its limit, power, applied settings, and events."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from tuner.core import (
    Applied,
    Event,
    Level,
    Limit,
    Quantities,
    Setting,
    WindowPoint,
    quantity_of,
)
from tuner.presentation.charts import Chart, axis_title, plain
from tuner.presentation.figures import change, figure

GAP = 6.0
"""A line is interrupted at gaps longer than this many times the median gap between windows."""
ROWS = (str(Level.ORIGINAL), str(Level.FAILSAFE), str(Level.TRIAL), str(Level.HOLD))


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedSpan:
    """An applied setting with its end; `by` is the source of the order, as text."""

    applied: Applied
    until: datetime
    by: str


def device_timeline(
    curves: Sequence[tuple[str, Sequence[WindowPoint]]],
    limit: Limit | None,
    spans: Sequence[AppliedSpan],
    events: Sequence[Event],
    within: tuple[datetime, datetime],
    default: Setting,
    declared: Quantities,
) -> Chart:
    """Return the chart of a device over the time `within`.

    `curves` are the windows of at most two metrics. `limit` is drawn on the curve of its metric.
    """
    data: list[Chart] = []
    axes: Chart = {}
    shapes: list[Chart] = []
    places = ([0.6, 1.0], [0.26, 0.52]) if len(curves) > 1 else ([0.3, 1.0],)
    for number, ((metric, points), place) in enumerate(zip(curves, places, strict=False)):
        axis = f"y{number + 2}"
        unit = quantity_of(metric, declared).unit
        data += _curve(metric, points, axis, declared)
        axes[f"yaxis{number + 2}"] = {
            "domain": place, "title": {"text": axis_title(metric, unit)},
        }  # fmt: skip
        if limit is not None and limit.metric == metric:
            shapes.append(
                {"type": "line", "xref": "paper", "yref": axis, "x0": 0, "x1": 1,
                 "y0": limit.value, "y1": limit.value}
            )  # fmt: skip
    data += _applied(spans, default)
    if events:
        data.append(
            {
                "name": "events", "mode": "markers", "x": [_utc(e.at) for e in events],
                "y": ["events"] * len(events), "hoverinfo": "text+x",
                "text": [plain(f"{e.kind}: {e.text[:160]}") for e in events],
                "marker": {"symbol": "diamond", "size": 9},
            }
        )  # fmt: skip
    return {
        "data": data,
        "layout": {
            "height": 520,
            "xaxis": {"type": "date", "anchor": "y", "range": [_utc(at) for at in within]},
            "yaxis": {
                "domain": [0.0, 0.18], "type": "category", "categoryorder": "array",
                "categoryarray": [*ROWS, "events"],
            },
            **axes,
            "shapes": shapes,
        },
    }  # fmt: skip


def _curve(
    metric: str, points: Sequence[WindowPoint], axis: str, declared: Quantities
) -> list[Chart]:
    """Return the traces of a metric's mean and highest value over time, interrupted at gaps."""
    gaps = [(b.at - a.at).total_seconds() for a, b in pairwise(points)]
    longest = timedelta(seconds=GAP * statistics.median(gaps)) if gaps else timedelta()
    x: list[str | None] = []
    rows: list[WindowPoint | None] = []
    for before, point in zip((None, *points), points, strict=False):
        if before is not None and point.at - before.at > longest:
            x.append(None)
            rows.append(None)
        x.append(_utc(point.at))
        rows.append(point)
    text = [
        plain(
            f"{metric} {figure(metric, p.mean, declared=declared)} "
            f"({figure(metric, p.least, declared=declared)} to {figure(metric, p.most, declared=declared)})"
        )
        if p
        else ""
        for p in rows
    ]
    mode = "lines" if len(points) > 1 else "markers"
    return [
        {"name": "highest", "mode": mode, "x": x, "y": [p.most if p else None for p in rows],
         "yaxis": axis, "line": {"width": 1, "dash": "dot"}, "hoverinfo": "skip", "showlegend": False},
        {"name": plain(metric), "mode": mode, "x": x, "y": [p.mean if p else None for p in rows],
         "yaxis": axis, "text": text, "hoverinfo": "text+x"},
    ]  # fmt: skip


def _applied(spans: Sequence[AppliedSpan], default: Setting) -> list[Chart]:
    """Return a trace per level, in which each setting is a bar over the time that it was applied."""
    data: list[Chart] = []
    for level in ROWS:
        own = [span for span in spans if str(span.applied.level) == level]
        x: list[str | None] = []
        text: list[str] = []
        for span in own:
            label = plain(f"{change(span.applied.setting, default)}, {span.by}")
            x += [_utc(span.applied.at), _utc(span.until), None]
            text += [label, label, ""]
        if own:
            data.append(
                {
                    "name": level, "mode": "lines+markers", "x": x, "y": [level] * len(x),
                    "text": text, "hoverinfo": "text+x", "line": {"width": 8},
                    "marker": {"size": 8, "symbol": "line-ns-open"}, "showlegend": False,
                }
            )  # fmt: skip
    return data


def _utc(at: datetime) -> str:
    """Return a time in UTC as ISO 8601 with a resolution of 1 s."""
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
