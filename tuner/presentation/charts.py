"""The charts of a study, as figures for plotly.js: its trials, the best so far, and its plan."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.core import Estimate, Phase, Plan, Verdict
from tuner.presentation.figures import ShownUnit, change, scale_of, shown
from tuner.presentation.texts import requested_metrics
from tuner.wire import SettingView, StudyReport, StudyView, TrialView

Chart = dict[str, Any]

SYMBOLS = {
    "feasible": "circle",
    "infeasible": "x",
    "unsure": "diamond-open",
    "censored": "triangle-right",
}
BESIDE = ("latency_p99_ms", "latency_ms", "throughput_per_s", "power_w")
"""Metrics for the other axis of the objective's chart if no constraint has one: the first measured one."""
DASHES = ("solid", "dash", "dot", "dashdot")
"""Line styles that distinguish the knobs of a plan without colours."""
BOUND = 1.96
"""Standard errors from the mean to the end of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Axes:
    """The two metrics of a chart, and their units in the chart."""

    x: str
    y: str
    of_x: ShownUnit
    of_y: ShownUnit

    def titles(self) -> Chart:
        """Return the titles of both axes, with their units."""
        return titled_axes(axis_title(self.x, self.of_x.unit), axis_title(self.y, self.of_y.unit))

    def place(self, by: SettingView) -> tuple[float, float] | None:
        """Return a setting's coordinates; None if one of the two metrics was not measured."""
        if not {self.x, self.y} <= by.metrics.keys():
            return None
        x, y = by.metrics[self.x], by.metrics[self.y]
        return x.mean / self.of_x.size, y.mean / self.of_y.size


def against_limit(
    report: StudyReport, trials: Sequence[TrialView], front: Sequence[SettingView]
) -> Chart | None:
    """Return a chart of the objective against the constrained metric, a mark per window, with the limit.

    Returns None if no window measured both.
    """
    view = report.study
    objective, *limited = requested_metrics(view)
    others = [m for m in (*limited, *BESIDE) if m != objective]
    beside = next((m for m in others if any(m in t.metrics for t in trials)), None)
    tried = [t for t in trials if {objective, beside} <= t.metrics.keys()]
    if beside is None or not tried:
        return None
    groups: dict[str, list[TrialView]] = {}
    for trial in tried:
        groups.setdefault(group_of(trial), []).append(trial)
    axes = Axes(beside, objective, scale(report, beside), scale(report, objective))
    data = [_points(name, groups[name], view, axes) for name in SYMBOLS if name in groups]
    data += _front(front, axes)
    marks, labels = _marks(report, axes)
    data += marks
    limits = [x.value / axes.of_x.size for x in view.limits if x.metric == beside]
    return {
        "data": data,
        "layout": {
            **axes.titles(),
            "shapes": [
                {
                    "type": "line",
                    "yref": "paper",
                    "x0": x,
                    "x1": x,
                    "y0": 0,
                    "y1": 1,
                    "name": "limit",
                }
                for x in limits
            ],
            "annotations": labels
            + [
                {
                    "x": x, "y": 0.02, "yref": "paper", "text": f"limit {x:.4g}", "showarrow": False,
                    "xanchor": "right", "yanchor": "bottom",
                }
                for x in limits
            ],
        },
    }  # fmt: skip


def course(report: StudyReport, trials: Sequence[TrialView]) -> Chart | None:
    """Return a chart of the objective by trial, with the best feasible so far.

    Returns None if no trial measured the objective.
    """
    view = report.study
    objective = requested_metrics(view)[0]
    tried = [t for t in trials if objective in t.metrics]
    if not tried:
        return None
    sign = -1.0 if view.objective.startswith("maximize") else 1.0
    unit = scale(report, objective)
    best, steps = math.inf, []
    for trial in tried:
        if trial.verdict in (None, Verdict.FEASIBLE) and not trial.censored:
            best = min(best, sign * trial.metrics[objective].mean / unit.size)
        steps.append(sign * best if math.isfinite(best) else None)
    numbers = [t.number for t in tried]
    return {
        "data": [
            {
                "name": "trials", "mode": "markers", "x": numbers,
                "y": [t.metrics[objective].mean / unit.size for t in tried],
                "error_y": _bars([t.metrics[objective] for t in tried], unit),
                "text": [hover_text(t, view) for t in tried],
                "hoverinfo": "text",
                "marker": {"symbol": [SYMBOLS[group_of(t)] for t in tried], "opacity": 0.7},
            },
            {
                "name": "best so far", "mode": "lines", "x": numbers, "y": steps,
                "line": {"shape": "hv"},
            },
        ],
        "layout": titled_axes("trial", axis_title(objective, unit.unit)),
    }  # fmt: skip


def scale(report: StudyReport, metric: str) -> ShownUnit:
    """Return the unit in which a study's charts and tables show a metric."""
    views = (report.baseline, report.best)
    means = [by.metrics[metric].mean for by in views if by is not None and metric in by.metrics]
    return scale_of(metric, means[0] if means else 0.0, report.study.quantities)


def plan_steps(plan: Plan, loads: Mapping[str, float]) -> Chart:
    """Return a chart of a plan: each numeric knob by the plan's quantity, in % of its maximum.

    `loads` are the current loads by device, of the devices that report them; they are marked.
    """
    lows = [0.0, *(row.below for row in plan.rows[:-1])]
    end = 1.25 * max(lows[-1], *loads.values(), 1.0)
    names = [k for k, v in plan.rows[0].setting.items() if _number(v) is not None]
    data: list[Chart] = []
    for name in names:
        values = [_number(row.setting.get(name)) or 0.0 for row in plan.rows]
        most = max(values)
        if most <= 0.0 or len(set(values)) == 1:
            continue
        labels = [f"{plain(name)} {value:g}" for value in (*values, values[-1])]
        data.append(
            {
                "name": plain(name), "mode": "lines", "x": [*lows, end], "text": labels,
                "y": [100.0 * value / most for value in (*values, values[-1])],
                "hoverinfo": "text",
                "line": {"shape": "hv", "width": 2, "dash": DASHES[len(data) % len(DASHES)]},
            }
        )  # fmt: skip
    data += [
        {
            "name": "now", "mode": "markers+text", "x": [value], "y": [0.0], "hoverinfo": "text",
            "text": [f"{plain(device)}: {value:.3g} now"], "textposition": "top center",
            "marker": {"symbol": "triangle-up", "size": 14}, "showlegend": False,
        }
        for device, value in loads.items()
    ]  # fmt: skip
    return {
        "data": data,
        "layout": {
            "xaxis": {"title": {"text": plain(plan.by)}, "range": [0.0, end]},
            "yaxis": {"title": {"text": "% of the maximum"}, "range": [-5.0, 105.0]},
        },
    }


def _number(value: object) -> float | None:
    """Return a knob's value as a number; None for a text, a bool or no value."""
    return None if isinstance(value, bool | str) or value is None else float(value)  # type: ignore[arg-type]


def _points(name: str, trials: Sequence[TrialView], view: StudyView, axes: Axes) -> Chart:
    """Return the trace of a group of trials, with 95 % intervals."""
    x, y = axes.x, axes.y
    return {
        "name": name,
        "mode": "markers",
        "x": [t.metrics[x].mean / axes.of_x.size for t in trials],
        "y": [t.metrics[y].mean / axes.of_y.size for t in trials],
        "error_x": _bars([t.metrics[x] for t in trials], axes.of_x),
        "error_y": _bars([t.metrics[y] for t in trials], axes.of_y),
        "text": [hover_text(t, view) for t in trials],
        "hoverinfo": "text",
        "marker": {"symbol": SYMBOLS[name], "size": 8},
    }


def _front(front: Sequence[SettingView], axes: Axes) -> list[Chart]:
    """Return the trace of the Pareto front; empty with fewer than two points."""
    points = sorted(p for s in front if (p := axes.place(s)) is not None)
    if len(points) < 2:
        return []
    return [
        {
            "name": "Pareto front", "mode": "lines", "hoverinfo": "skip",
            "x": [a for a, _ in points], "y": [b for _, b in points],
            "line": {"dash": "dot", "shape": "hv"},
        }
    ]  # fmt: skip


def _marks(report: StudyReport, axes: Axes) -> tuple[list[Chart], list[Chart]]:
    """Return the marks of baseline and best, and their labels, which are placed away from each other."""
    best = None if report.best is None else axes.place(report.best)
    base = axes.place(report.baseline)
    high, right = True, True
    if best is not None and base is not None:
        high, right = base[1] >= best[1], base[0] >= best[0]
    marks: list[Chart] = []
    labels: list[Chart] = []
    for name, symbol, place, up, to_right in (
        ("baseline", "square", base, high, right), ("best", "star", best, not high, not right),
    ):  # fmt: skip
        if place is None:
            continue
        x, y = place
        marks.append(
            {
                "name": name, "mode": "markers", "x": [x], "y": [y], "hoverinfo": "skip",
                "marker": {"symbol": symbol, "size": 14},
            }
        )  # fmt: skip
        labels.append(
            {
                "x": x, "y": y, "text": name, "showarrow": True, "arrowhead": 0,
                "ax": 44 if to_right else -44, "ay": -34 if up else 34,
            }
        )  # fmt: skip
    return marks, labels


def _bars(estimates: Sequence[Estimate], unit: ShownUnit) -> Chart:
    """Return the error bars of 95 % intervals."""
    return {
        "type": "data",
        "array": [BOUND * e.stderr / unit.size for e in estimates],
        "thickness": 1,
        "width": 0,
    }


def group_of(trial: TrialView) -> str:
    """Return the group of a trial, a key of `SYMBOLS`: `censored` if it was cut short, else its verdict."""
    if trial.censored:
        return "censored"
    return str(trial.verdict) if trial.verdict is not None else "unsure"


def hover_text(trial: TrialView, view: StudyView) -> str:
    """Return a trial's number, setting and metrics, one per line."""
    has, quantities = trial.metrics, view.quantities
    lines = [f"trial {trial.number}", change(trial.setting, view.baseline.setting)]
    lines += [f"{m} {shown(m, has, quantities)}" for m in requested_metrics(view) if m in has]
    if trial.phase is not Phase.TUNING:
        lines[0] += f" ({trial.phase})"
    return "<br>".join(plain(line) for line in lines)


def plain(text: str) -> str:
    """Return a text with its markup escaped for plotly.js."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def titled_axes(x: str, y: str) -> Chart:
    """Return the titles of both axes."""
    return {"xaxis": {"title": {"text": x}}, "yaxis": {"title": {"text": y}}}


def axis_title(metric: str, unit: str) -> str:
    """Return a metric with its unit, unless the metric's name ends with the unit."""
    return plain(f"{metric} ({unit})" if unit and not metric.endswith(f"_{unit}") else metric)
