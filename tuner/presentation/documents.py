"""Reports of studies as a document: Markdown with picture files, or one self-contained HTML page."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import unescape
from typing import TYPE_CHECKING, Any

from tuner.core import ConfigError, InvalidInput, Origin, PeriodSaving
from tuner.core import summed as total_of
from tuner.moments import when
from tuner.presentation import reports
from tuner.presentation.charts import Chart, against_limit, course
from tuner.presentation.figures import change, duration, figure, how_many, joined
from tuner.presentation.reports import PLAN_COLUMNS, plan_table
from tuner.presentation.standing import StudyOutcome, applied_now, standing
from tuner.presentation.studies import titled
from tuner.presentation.texts import improvement_of, worth
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
    figure = _empty(7.5, 4.2)
    axes = figure.add_subplot()
    layout = chart["layout"]
    for shape in layout.get("shapes", ()):
        axes.axvline(shape["x0"], color="tab:red", linestyle="--", label=f"limit {shape['x0']:.4g}")
    for trace in chart["data"]:
        _draw(axes, trace)
    axes.set_xlabel(unescape(layout["xaxis"]["title"]["text"]))
    axes.set_ylabel(unescape(layout["yaxis"]["title"]["text"]))
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


COLUMNS = ("study", "device", "workload", "status", ">trials", ">saving", ">saved", "setting")
"""The columns of the overview; a leading `>` marks a column of numbers."""

MOST_DRAWN = 4
"""The most studies of a page with charts, and without folding; a report of one study has its charts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedStudy:
    """A study to be reported, with its Pareto front.

    The reported saving is that of `period`, or the whole saving if `period` is None.
    """

    outcome: StudyOutcome
    front: tuple[SettingView, ...]
    period: PeriodSaving | None = None

    @property
    def saved(self) -> PeriodSaving | None:
        """The saving by holding in the period; None if unknown."""
        saving = self.period or self.outcome.report.bill.whole
        return None if saving is None or saving.saved_j is None else saving

    @property
    def id(self) -> str:
        """The study's id."""
        return self.outcome.report.study.id

    @property
    def title(self) -> str:
        """The title: the study's id and its name."""
        view = self.outcome.report.study
        return f"Study {view.id}: {titled(view)}"

    def charts(self) -> dict[str, Chart]:
        """Return the charts that can be drawn, by title."""
        report, trials = self.outcome.report, self.outcome.trials
        charts = {
            "Trials against the limit, with 95 % intervals": against_limit(
                report, trials, self.front
            ),
            "Trial by trial, and the best so far": course(report, trials),
        }
        return {title: chart for title, chart in charts.items() if chart is not None}

    def lines(self) -> list[str]:
        """Return the report's lines: verdict, bill, and origin of the numbers."""
        main = self.outcome
        return [
            *reports.verdict(main), *reports.account(main), *reports.provenance(main.report)
        ]  # fmt: skip


def overview(reported: Sequence[ReportedStudy]) -> list[tuple[str, ...]]:
    """Return a row per study, with the columns `COLUMNS`."""
    rows: list[tuple[str, ...]] = []
    for one in reported:
        report = one.outcome.report
        view = report.study
        rows.append(
            (
                view.id,
                joined(view.devices),
                view.workload,
                standing(view),
                str(sum(view.trials.values())),
                (applied_now(view) and improvement_of(report)) or "–",
                "–"
                if one.saved is None or one.saved.saved_j is None
                else figure("energy_j", one.saved.saved_j, one.saved.stderr_j or 0.0),
                change(one.outcome.held, view.baseline.setting),
            )
        )
    return rows


def summed(reported: Sequence[ReportedStudy]) -> str:
    """Return the saving and the cost of all studies together, in one line."""
    bills = [one.outcome.report.bill for one in reported]
    trials = sum(sum(one.outcome.report.study.trials.values()) for one in reported)
    seconds = math.fsum(bill.seconds for bill in bills)
    studies = how_many(len(reported), "study", "studies")
    text = f"{studies} with {how_many(trials, 'trial')} in {duration(seconds)} of windows so far"
    origins: dict[str, list[PeriodSaving]] = {}
    for one, bill in zip(reported, bills, strict=True):
        if one.saved is not None:
            origins.setdefault(str(bill.origin or Origin.MEASURED), []).append(one.saved)
    if not origins:
        return f"{text}; no saving by holding measured yet"
    measured = sum(map(len, origins.values()))
    partly = f" (by {measured} of them; unknown for the others)" if measured < len(bills) else ""
    for origin, parts in sorted(origins.items(), key=lambda o: o[0] != Origin.MEASURED):
        label = "" if origin == Origin.MEASURED else f", {origin}"
        text += f"; saved by holding: {worth(total_of(parts), bills[0].currency)}{label}"
    return f"{text}{partly}"


def markdown(
    reported: Sequence[ReportedStudy],
    faults: Sequence[str],
    heading: str,
    at: datetime,
    pictures: Mapping[str, str],
) -> str:
    """Return the studies as Markdown, with why others cannot be reported.

    `pictures` are the picture files by study id.
    """
    lines = [f"# {_md(heading)}", f"As of {when(at)}. {_md(summed(reported))}.", ""]
    lines += [f"- {_md(fault)}" for fault in faults] + [""] * bool(faults)
    if len(reported) > 1:
        lines += [*_md_table(COLUMNS, overview(reported)), ""]
    for one in reported:
        lines += [f"## {_md(one.title)}", f"{_md(reports.about(one.outcome))}", ""]
        if one.id in pictures:
            lines += [f"![Energy against latency of the trials]({pictures[one.id]})", ""]
        if compared := list(reports.comparison(one.outcome)):
            lines += [*_md_table(("metric", ">baseline", ">best", ">change"), compared), ""]
        if rows := plan_table(one.outcome.report):
            lines += [*_md_table(PLAN_COLUMNS, rows), ""]
        lines += [*(f"- {_md(_spaced(line))}" for line in one.lines()), ""]
    return "\n".join(lines)


def html(
    reported: Sequence[ReportedStudy], faults: Sequence[str], heading: str, at: datetime
) -> str:
    """Return the studies as one self-contained HTML page that includes its style and pictures.

    `faults` says why others cannot be reported.

    Raises:
        ConfigError: Jinja or matplotlib is not installed.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{error.name} is not installed", hint="pip install 'jouletune[tuner]'"
        ) from None
    templates = Environment(
        loader=PackageLoader("tuner.presentation"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template("report.html").render(
        heading=heading,
        at=when(at),
        summed=summed(reported),
        faults=faults,
        columns=COLUMNS,
        plan_columns=PLAN_COLUMNS,
        overview=overview(reported) if len(reported) > 1 else [],
        folded=len(reported) > MOST_DRAWN,
        studies=[
            {
                "title": one.title,
                "id": one.id,
                "about": reports.about(one.outcome),
                "compared": list(reports.comparison(one.outcome)),
                "plan": plan_table(one.outcome.report),
                "lines": [_spaced(line) for line in one.lines()],
                "charts": {
                    title: Markup(inline(drawn(chart, one.title)))
                    for title, chart in one.charts().items()
                    if len(reported) <= MOST_DRAWN
                },
            }
            for one in reported
        ],
    )


def _spaced(line: str) -> str:
    """Return a line with the blanks after its leading label replaced by a colon."""
    return re.sub(r"^(\w+) {2,}", r"\1: ", line.strip())


def _md(text: str) -> str:
    """Return a text with its Markdown markup escaped."""
    return re.sub(r"([\\`*\[\]<|]|(?<!\w)_|_(?!\w))", r"\\\1", " ".join(text.split()))


def _md_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table; columns with a leading `>` are aligned right."""
    head = [column.lstrip(">") for column in columns]
    rule = ["---:" if column.startswith(">") else "---" for column in columns]
    cells = [[_md(cell) for cell in row] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (head, rule, *cells)]


def _empty(width: float, height: float) -> Figure:
    """Return a picture of this size in inches. Raises ConfigError: matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        hint = "pip install 'jouletune[client]'"
        raise ConfigError("matplotlib is not installed", hint=hint) from None
    return Figure(figsize=(width, height), layout="constrained")
