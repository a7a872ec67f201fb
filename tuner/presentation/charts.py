"""The pictures of a study, as figures for plotly.js: what was tried, and how the best came about."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.core import Estimate, KnobSlice, Phase, Plan, Prediction, Verdict, quantity_of
from tuner.presentation.figures import change, shown
from tuner.presentation.texts import asked_metrics
from tuner.wire import ExplanationView, SettingView, StudyReport, StudyView, TrialView

Chart = dict[str, Any]

SYMBOLS = {
    "feasible": "circle",
    "infeasible": "x",
    "unsure": "diamond-open",
    "censored": "triangle-right",
}
BESIDE = ("latency_p99_ms", "latency_ms", "throughput_per_s", "power_w")
"""What the objective is drawn against where no constraint says what: the first that was measured."""
DASHES = ("solid", "dash", "dot", "dashdot")
"""What tells the knobs of a plan apart, whatever colours one sees."""
BOUND = 1.96
"""Bars are 95 % intervals."""


def against_limit(
    report: StudyReport, trials: Sequence[TrialView], front: Sequence[SettingView]
) -> Chart | None:
    """Return the objective of every window against the constrained metric, with its limit.

    None where no window shows both.
    """
    view = report.study
    objective, *limited = asked_metrics(view)
    others = [m for m in (*limited, *BESIDE) if m != objective]
    beside = next((m for m in others if any(m in t.metrics for t in trials)), None)
    tried = [t for t in trials if {objective, beside} <= t.metrics.keys()]
    if beside is None or not tried:
        return None
    groups: dict[str, list[TrialView]] = {}
    for trial in tried:
        groups.setdefault(_group(trial), []).append(trial)
    data = [
        _points(name, groups[name], view, beside, objective) for name in SYMBOLS if name in groups
    ]
    data += _front(front, beside, objective)
    for name, marked in (("baseline", report.baseline), ("best", report.best)):
        if marked is not None and {objective, beside} <= marked.metrics.keys():
            data.append(_mark(name, marked, beside, objective))
    limits = [limit.value for limit in view.limits if limit.metric == beside]
    return {
        "data": data,
        "layout": {
            "xaxis": {"title": {"text": _axis(beside, view)}},
            "yaxis": {"title": {"text": _axis(objective, view)}},
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
        },
    }


def course(report: StudyReport, trials: Sequence[TrialView]) -> Chart | None:
    """Return the objective by trial, and the best feasible so far; None before anything was measured."""
    view = report.study
    objective = asked_metrics(view)[0]
    tried = [t for t in trials if objective in t.metrics]
    if not tried:
        return None
    sign = -1.0 if view.objective.startswith("maximize") else 1.0
    best, steps = math.inf, []
    for trial in tried:
        if trial.verdict in (None, Verdict.FEASIBLE) and not trial.censored:
            best = min(best, sign * trial.metrics[objective].mean)
        steps.append(sign * best if math.isfinite(best) else None)
    numbers = [t.number for t in tried]
    return {
        "data": [
            {
                "name": "trials", "mode": "markers", "x": numbers,
                "y": [t.metrics[objective].mean for t in tried],
                "error_y": _bars([t.metrics[objective] for t in tried]),
                "text": [_hover_text(t, view) for t in tried],
                "hoverinfo": "text",
                "marker": {"symbol": [SYMBOLS[_group(t)] for t in tried], "opacity": 0.7},
            },
            {
                "name": "best so far", "mode": "lines", "x": numbers, "y": steps,
                "line": {"shape": "hv"},
            },
        ],
        "layout": {
            "xaxis": {"title": {"text": "trial"}},
            "yaxis": {"title": {"text": _axis(objective, view)}},
        },
    }  # fmt: skip


def knob_slices(told: ExplanationView) -> list[tuple[str, Chart]]:
    """Return, for each knob and metric, what is believed along the knob, with 95 % bands."""
    found = []
    for knob in told.explanation.slices:
        for metric in told.metrics:
            points = [p.predicted[metric] for p in knob.points if metric in p.predicted]
            if len(points) == len(knob.points) > 1:
                limits = [x.value for x in told.limits if x.metric == metric]
                unit = quantity_of(metric, told.quantities).unit
                axis = f"{metric} ({unit})" if unit and unit not in metric else metric
                found.append((f"{knob.knob} and {metric}", _slice(knob, points, limits, axis)))
    return found


def plan_steps(plan: Plan, loads: Mapping[str, float]) -> Chart:
    """Return each number that a plan sets, by its quantity, in shares of its most; and the loads of now.

    `loads` are of the devices that tell theirs, by name.
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
        told = [f"{plain(name)} {value:g}" for value in (*values, values[-1])]
        data.append(
            {
                "name": plain(name), "mode": "lines", "x": [*lows, end], "text": told,
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
            "yaxis": {"title": {"text": "% of the most"}, "range": [-5.0, 105.0]},
        },
    }


def _number(value: object) -> float | None:
    return None if isinstance(value, bool | str) or value is None else float(value)  # type: ignore[arg-type]


def _slice(
    knob: KnobSlice, points: Sequence[Prediction], limits: Sequence[float], axis: str
) -> Chart:
    places = [str(v) if isinstance(v, bool | str) else v for v in knob.values]
    measured = [n for n, p in enumerate(knob.points) if p.measured]
    refused = [n for n, p in enumerate(knob.points) if p.refused]
    mean = [p.mean for p in points]
    band = {
        "mode": "lines",
        "hoverinfo": "skip",
        "line": {"width": 0},
        "showlegend": False,
        "x": places,
    }
    marked = [("measured", measured, "circle"), ("refused", refused, "x")]
    return {
        "data": [
            {**band, "name": "band", "y": [p.mean - BOUND * p.sd for p in points]},
            {**band, "name": "band", "y": [p.mean + BOUND * p.sd for p in points], "fill": "tonexty"},
            {"name": "believed", "mode": "lines", "x": places, "y": mean},
            *(
                {
                    "name": name, "mode": "markers", "marker": {"symbol": symbol, "size": 9},
                    "x": [places[n] for n in at], "y": [mean[n] for n in at],
                    "text": [plain(knob.points[n].refused or "measured") for n in at],
                    "hoverinfo": "text",
                }
                for name, at, symbol in marked
                if at
            ),
        ],
        "layout": {
            "xaxis": {"title": {"text": plain(knob.knob)}},
            "yaxis": {"title": {"text": plain(axis)}},
            "shapes": [
                {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y} for y in limits
            ],
        },
    }  # fmt: skip


def _points(name: str, trials: Sequence[TrialView], view: StudyView, x: str, y: str) -> Chart:
    return {
        "name": name,
        "mode": "markers",
        "x": [t.metrics[x].mean for t in trials],
        "y": [t.metrics[y].mean for t in trials],
        "error_x": _bars([t.metrics[x] for t in trials]),
        "error_y": _bars([t.metrics[y] for t in trials]),
        "text": [_hover_text(t, view) for t in trials],
        "hoverinfo": "text",
        "marker": {"symbol": SYMBOLS[name], "size": 8},
    }


def _front(front: Sequence[SettingView], x: str, y: str) -> list[Chart]:
    known = [s for s in front if {x, y} <= s.metrics.keys()]
    points = sorted((s.metrics[x].mean, s.metrics[y].mean) for s in known)
    if len(points) < 2:
        return []
    return [
        {
            "name": "Pareto front", "mode": "lines", "hoverinfo": "skip",
            "x": [a for a, _ in points], "y": [b for _, b in points],
            "line": {"dash": "dot", "shape": "hv"},
        }
    ]  # fmt: skip


def _mark(name: str, found: SettingView, x: str, y: str) -> Chart:
    return {
        "name": name,
        "mode": "markers+text",
        "x": [found.metrics[x].mean],
        "y": [found.metrics[y].mean],
        "text": [name],
        "textposition": "top center",
        "hoverinfo": "skip",
        "marker": {"symbol": "star" if name == "best" else "square", "size": 14},
    }


def _bars(estimates: Sequence[Estimate]) -> Chart:
    return {
        "type": "data",
        "array": [BOUND * e.stderr for e in estimates],
        "thickness": 1,
        "width": 0,
    }


def _group(trial: TrialView) -> str:
    if trial.censored:
        return "censored"
    return str(trial.verdict) if trial.verdict is not None else "unsure"


def _hover_text(trial: TrialView, view: StudyView) -> str:
    has, known = trial.metrics, view.quantities
    lines = [f"trial {trial.number}", change(trial.setting, view.baseline.setting)]
    lines += [f"{m} {shown(m, has, known)}" for m in asked_metrics(view) if m in has]
    if trial.phase is not Phase.TUNING:
        lines[0] += f" ({trial.phase})"
    return "<br>".join(plain(line) for line in lines)


def plain(text: str) -> str:
    """Return text that plotly.js does not take for markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _axis(metric: str, view: StudyView) -> str:
    return axis_title(metric, quantity_of(metric, view.quantities).unit)


def axis_title(metric: str, unit: str) -> str:
    """Return a metric with its unit, once."""
    return plain(f"{metric} ({unit})" if unit and not metric.endswith(f"_{unit}") else metric)
