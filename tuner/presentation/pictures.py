"""The charts of a study's page, drawn by matplotlib for use without a browser."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tuner.core import InvalidInput
from tuner.drawing import empty
from tuner.presentation.charts import Chart, against_limit, course
from tuner.wire import SettingView, StudyReport, TrialView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "feasible": "tab:green",
    "infeasible": "tab:red",
    "unsure": "tab:orange",
    "censored": "tab:purple",
    "baseline": "black",
    "best": "tab:blue",
    "best so far": "tab:blue",
    "Pareto front": "tab:gray",
    "trials": "tab:gray",
}
MARKERS = {
    "circle": "o",
    "x": "x",
    "diamond-open": "d",
    "triangle-right": ">",
    "square": "s",
    "star": "*",
}


def study_picture(
    report: StudyReport, trials: Sequence[TrialView], front: Sequence[SettingView]
) -> Figure:
    """Draw the objective against the limited metric, with one mark per window.

    If no window measured two such metrics, draw the objective by trial.

    Raises:
        ConfigError: matplotlib is not installed.
        InvalidInput: the study has not measured anything yet.
    """
    chart = against_limit(report, trials, front) or course(report, trials)
    if chart is None:
        raise InvalidInput(
            f"study {report.study.id} has measured nothing yet", hint="wait for its baseline"
        )
    return drawn(chart, f"study {report.study.id}")


def drawn(chart: Chart, title: str) -> Figure:
    """Draw a chart of `tuner.presentation.charts`. Raises ConfigError: matplotlib is not installed."""
    figure = empty(7.5, 4.2)
    axes = figure.add_subplot()
    layout = chart["layout"]
    for shape in layout.get("shapes", ()):
        axes.axvline(shape["x0"], color="tab:red", linestyle="--", label=f"limit {shape['x0']:.4g}")
    for trace in chart["data"]:
        _draw(axes, trace)
    axes.set_xlabel(html.unescape(layout["xaxis"]["title"]["text"]))
    axes.set_ylabel(html.unescape(layout["yaxis"]["title"]["text"]))
    axes.set_title(title, fontsize=11)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def svg(figure: Figure) -> str:
    """Return a picture as SVG; equal pictures give equal texts."""
    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context({"svg.hashsalt": "jouletune", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def inline(figure: Figure) -> str:
    """Return a picture as an `<svg>` element for an HTML page."""
    whole = svg(figure)
    return whole[whole.index("<svg") :]


def _draw(axes: Axes, trace: dict[str, Any]) -> None:
    """Draw one trace: lines as steps, other traces as marks with 95 % intervals."""
    name, x, y = trace["name"], trace["x"], trace["y"]
    colour = COLOURS.get(name, "tab:gray")
    if trace["mode"] == "lines":
        points = [(a, b) for a, b in zip(x, y, strict=True) if b is not None]
        if points:
            axes.step(
                *zip(*points, strict=True), where="post", color=colour, linestyle=":", label=name
            )
        return
    bars = {axis: trace.get(f"error_{axis}", {}).get("array") for axis in ("x", "y")}
    if any(bars.values()):
        axes.errorbar(x, y, xerr=bars["x"], yerr=bars["y"], fmt="none", ecolor=colour, alpha=0.4)
    symbol = trace["marker"]["symbol"]
    marker = MARKERS.get(symbol, "o") if isinstance(symbol, str) else "o"
    size = 6.0 * trace["marker"].get("size", 8)
    axes.scatter(
        x,
        y,
        color=colour,
        marker=marker,
        s=size,
        label=f"{name} ({len(x)})" if len(x) > 1 else name,
    )
