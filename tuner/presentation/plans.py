"""A plan of several rows as a table: load, setting, measured windows, limits, and saving."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.core import Quantities
from tuner.presentation.figures import change, figure, how_many, percent
from tuner.presentation.texts import row_spans
from tuner.wire import PlanRowView, StudyReport

PLAN_COLUMNS = ("load", "setting", "rests on", "against the limit", "saves")
NOTHING = "–"


def plan_table(report: StudyReport) -> list[tuple[str, ...]]:
    """Return the rows of a plan, with the columns `PLAN_COLUMNS`.

    Empty without a plan, or if the plan has one setting for all loads.
    """
    plan, base = report.study.plan, report.baseline.setting
    if plan is None or len(plan.rows) != len(report.rows):
        return []
    quantities = report.study.quantities
    spans = zip(row_spans(plan), report.rows, strict=True)
    return [
        (
            f"{plan.by} {span}",
            change(row.setting, base),
            _rests_on(row),
            "; ".join(_limits(row, quantities)) or NOTHING,
            NOTHING if row.saving is None else percent(row.saving.mean, row.saving.stderr),
        )
        for span, row in spans
    ]


def plan_lines(report: StudyReport) -> Iterator[str]:
    """Yield one sentence per row of a plan."""
    for load, setting, rests_on, limits, saves in plan_table(report):
        parts = [f"{load}: {setting}", *(x for x in (rests_on, limits) if x != NOTHING)]
        if saves != NOTHING:
            parts.append(f"saves {saves} against the baseline at this load")
        yield "; ".join(parts)


def _rests_on(row: PlanRowView) -> str:
    """Return the number of windows that a row rests on, and their load."""
    if not row.windows:
        return NOTHING
    return how_many(row.windows, "window") + ("" if row.at is None else f" at {row.at:.4g}")


def _limits(row: PlanRowView, quantities: Quantities) -> Iterator[str]:
    """Yield the measured value of the row's setting for each limit."""
    for limit in row.limits:
        estimate = row.metrics.get(limit.metric)
        if estimate is not None:
            shown = figure(limit.metric, estimate.mean, declared=quantities)
            yield f"{limit.metric} {shown} (limit {figure(limit.metric, limit.value, declared=quantities)})"
