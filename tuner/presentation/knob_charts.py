"""Charts of the effects of knobs, for plotly.js: as measured, and as predicted by a policy's model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.core import (
    Explanation,
    KnobSlice,
    Limit,
    Setting,
    Value,
    setting_key,
)
from tuner.presentation.charts import (
    BOUND,
    SYMBOLS,
    Chart,
    axis_title,
    group_of,
    hover_text,
    plain,
    scale,
    titled_axes,
)
from tuner.presentation.figures import percent, scale_of
from tuner.presentation.texts import requested_metrics
from tuner.wire import ExplanationView, StudyReport, TrialView


def varying_knobs(trials: Sequence[TrialView]) -> list[str]:
    """Return the knobs of which several values were tried, in their order."""
    values: dict[str, set[Value]] = {}
    for trial in trials:
        for name, value in trial.setting.items():
            values.setdefault(name, set()).add(value)
    return [name for name, tried in values.items() if len(tried) > 1]


def knob_effects(report: StudyReport, trials: Sequence[TrialView]) -> list[tuple[str, Chart]]:
    """Return a chart per varied knob: the objective of each window by the knob's value."""
    view = report.study
    objective = requested_metrics(view)[0]
    unit = scale(report, objective)
    shown = [t for t in trials if objective in t.metrics]
    charts = []
    for name in varying_knobs(shown):
        data: list[Chart] = []
        for group, symbol in SYMBOLS.items():
            own = [t for t in shown if group_of(t) == group and name in t.setting]
            if own:
                data.append(
                    {
                        "name": group, "mode": "markers", "x": [_place(t.setting[name]) for t in own],
                        "y": [t.metrics[objective].mean / unit.size for t in own],
                        "text": [hover_text(t, view) for t in own], "hoverinfo": "text",
                        "marker": {"symbol": symbol, "size": 7, "opacity": 0.7},
                    }
                )  # fmt: skip
        layout = titled_axes(plain(name), axis_title(objective, unit.unit))
        layout["showlegend"] = False
        charts.append((name, {"data": data, "layout": layout}))
    return charts


def parallel(report: StudyReport, trials: Sequence[TrialView]) -> Chart | None:
    """Return parallel coordinates of the varied knobs and the requested metrics, with a line per trial.

    Every axis goes from its smallest to its largest value. Returns None if there are fewer than two
    trials, no varied knob, or no metric.
    """
    view = report.study
    metrics = [m for m in requested_metrics(view) if any(m in t.metrics for t in trials)]
    shown = [t for t in trials if all(m in t.metrics for m in metrics)]
    knobs = varying_knobs(shown)
    if not knobs or not metrics or len(shown) < 2:
        return None
    names = [*knobs, *metrics]
    rows = [[_of(t, name, metrics) for name in names] for t in shown]
    columns = [_Column([row[n] for row in rows]) for n in range(len(names))]
    best = setting_key(report.best.setting) if report.best else None
    groups = ["best" if setting_key(t.setting) == best else group_of(t) for t in shown]
    data: list[Chart] = []
    for group in (*SYMBOLS, "best"):
        x: list[int | None] = []
        y: list[float | None] = []
        text: list[str] = []
        for trial, row, own in zip(shown, rows, groups, strict=True):
            if own == group:
                x += [*range(len(names)), None]
                y += [*(c.place(v) for c, v in zip(columns, row, strict=True)), None]
                text += [hover_text(trial, view)] * (len(names) + 1)
        if x:
            data.append(
                {
                    "name": group, "mode": "lines", "x": x, "y": y, "text": text, "hoverinfo": "text",
                    "opacity": 1.0 if group == "best" else 0.35,
                    "line": {"width": 3 if group == "best" else 1},
                }
            )  # fmt: skip
    ends = [
        {"x": n, "y": y, "text": plain(label), "showarrow": False, "yanchor": anchor}
        for n, (name, column) in enumerate(zip(names, columns, strict=True))
        for y, label, anchor in zip(
            (0.0, 1.0), column.ends(report, name if name in metrics else ""), ("top", "bottom"),
            strict=True,
        )
    ]  # fmt: skip
    ticks = {
        "tickvals": list(range(len(names))),
        "ticktext": [plain(name) for name in names],
        "range": [-0.4, len(names) - 0.6],
        "tickangle": -30,  # to the left: the last name would end beyond the chart
    }
    hidden = {"showticklabels": False, "range": [-0.12, 1.12], "showgrid": False, "zeroline": False}
    return {"data": data, "layout": {"xaxis": ticks, "yaxis": hidden, "annotations": ends}}


@dataclass(frozen=True, slots=True)
class PredictedCurve:
    """A prediction along a knob, the half width of its 95 % band, and its limits, in the axis's unit."""

    mean: Sequence[float]
    reach: Sequence[float]
    limits: Sequence[float]
    axis: str


class _Column:
    """An axis of the parallel coordinates; numbers are placed by size, other values in text order."""

    def __init__(self, values: Sequence[Value]) -> None:
        self.values = sorted(set(values), key=lambda v: (isinstance(v, bool | str), str(v)))
        self.numbers = not any(isinstance(v, bool | str) for v in self.values)
        sizes = [float(v) for v in self.values] if self.numbers else [0.0]
        self.least, self.most = min(sizes), max(sizes)

    def place(self, value: Value) -> float:
        """Return a value's position on the axis, from 0 to 1."""
        if not self.numbers:
            return self.values.index(value) / max(1, len(self.values) - 1)
        return (float(value) - self.least) / ((self.most - self.least) or 1.0)

    def ends(self, report: StudyReport, metric: str) -> tuple[str, str]:
        """Return the labels of the smallest and the largest value, with the unit of a metric."""
        if not self.numbers:
            return str(self.values[0]), str(self.values[-1])
        if not metric:
            return f"{self.least:g}", f"{self.most:g}"
        unit = scale(report, metric)
        least, most = self.least / unit.size, self.most / unit.size
        return f"{least:.4g} {unit.unit}", f"{most:.4g} {unit.unit}"


def importance(explanation: Explanation, objective: str) -> dict[str, float]:
    """Return each knob's share of the predicted effect on the objective, largest first; the sum is 1.

    A knob's effect is the range of the predicted mean along its slice, with all other knobs fixed.
    """
    ranges: dict[str, float] = {}
    for knob in explanation.slices:
        means = [p.predicted[objective].mean for p in knob.points if objective in p.predicted]
        ranges[knob.knob] = max(means) - min(means) if means else 0.0
    whole = sum(ranges.values())
    shares = {knob: part / whole if whole else 0.0 for knob, part in ranges.items()}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def importance_bars(shares: dict[str, float]) -> Chart:
    """Return the shares of `importance` as a bar chart, the largest at the top."""
    knobs = list(shares)[::-1]
    return {
        "data": [
            {
                "name": "importance", "type": "bar", "orientation": "h",
                "x": [100.0 * shares[k] for k in knobs], "y": [plain(k) for k in knobs],
                "text": [percent(shares[k]) for k in knobs], "hoverinfo": "text",
            }
        ],
        "layout": {
            "xaxis": {"title": {"text": "% of the predicted effect"}, "range": [0, 105]},
            "yaxis": {"type": "category"},
        },
    }  # fmt: skip


def knob_slices(model: ExplanationView, held: Setting | None = None) -> list[tuple[str, Chart]]:
    """Return a chart per knob and metric: the prediction along the knob with its 95 % band.

    Crosses mark values that are predicted to break a limit. The held setting is a star, never a cross.
    """
    charts = []
    for knob in model.explanation.slices:
        for metric in model.metrics:
            points = [p.predicted[metric] for p in knob.points if metric in p.predicted]
            if len(points) == len(knob.points) > 1:
                unit = scale_of(metric, points[0].mean, model.quantities)
                limits = [x.value / unit.size for x in model.limits if x.metric == metric]
                mean = [p.mean / unit.size for p in points]
                reach = [BOUND * p.sd / unit.size for p in points]
                axis = axis_title(metric, unit.unit)
                curve = PredictedCurve(mean, reach, limits, axis)
                chart = _slice(knob, curve, _broken(knob, model.limits), held)
                charts.append((f"{knob.knob} and {metric}", chart))
    return charts


def _broken(knob: KnobSlice, limits: Sequence[Limit]) -> set[int]:
    """Return the indices of a knob's values that are predicted to break a limit."""
    return {
        n
        for n, point in enumerate(knob.points)
        for limit in limits
        if limit.metric in point.predicted and not limit.holds(point.predicted[limit.metric].mean)
    }


def _slice(knob: KnobSlice, curve: PredictedCurve, broken: set[int], held: Setting | None) -> Chart:
    """Return the chart of one metric's prediction along one knob."""
    places = [_place(v) for v in knob.values]
    star = setting_key(held) if held is not None else None
    stars = [n for n, p in enumerate(knob.points) if setting_key(p.setting) == star]
    measured = [n for n, p in enumerate(knob.points) if p.measured and n not in (*stars, *broken)]
    mean, limits = curve.mean, curve.limits
    low = [m - r for m, r in zip(mean, curve.reach, strict=True)]
    high = [m + r for m, r in zip(mean, curve.reach, strict=True)]
    band = {
        "mode": "lines",
        "hoverinfo": "skip",
        "line": {"width": 0},
        "showlegend": False,
        "x": places,
    }
    marked = [
        ("measured", measured, "circle", 9),
        ("breaks a limit", sorted(broken - {*stars}), "x", 9),
        ("held", stars, "star", 14),
    ]
    return {
        "data": [
            {**band, "name": "band", "y": low},
            {**band, "name": "band", "y": high, "fill": "tonexty"},
            {"name": "predicted", "mode": "lines", "x": places, "y": mean},
            *(
                {
                    "name": name, "mode": "markers", "marker": {"symbol": symbol, "size": size},
                    "x": [places[n] for n in at], "y": [mean[n] for n in at],
                    "text": [plain(knob.points[n].refused or name) for n in at],
                    "hoverinfo": "text",
                }
                for name, at, symbol, size in marked
                if at
            ),
        ],
        "layout": {
            **titled_axes(plain(knob.knob), curve.axis),
            "shapes": [
                {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y} for y in limits
            ],
        },
    }  # fmt: skip


def _place(value: Value) -> Value:
    """Return a knob's value as a coordinate: a bool as text."""
    return str(value) if isinstance(value, bool | str) else value


def _of(trial: TrialView, name: str, metrics: Sequence[str]) -> Value:
    """Return a trial's mean of a metric, or its value of a knob."""
    return trial.metrics[name].mean if name in metrics else trial.setting.get(name, "–")
