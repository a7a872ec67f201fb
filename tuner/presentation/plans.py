"""A plan of several rows as a table: load, setting, what it rests on, limits, and what it saves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuner.core import Plan, Quantities, Row
from tuner.presentation.figures import change, figure, how_many, percent
from tuner.presentation.texts import row_places, row_spans
from tuner.wire import PlanRowView, StudyReport

PLAN_COLUMNS = ("load", "setting", "rests on", "against the limit", "saves")
NOTHING = "–"


def plan_table(report: StudyReport) -> list[tuple[str, ...]]:
    """Return a plan as a table, its head first; nothing where it has one row for all loads.

    A plan by two signals has rows by the first and columns by the second.
    """
    plan, rows = report.study.plan, _rows(report)
    if plan is None or not rows:
        return []
    return [*_cells(plan, rows)] if plan.columns_by else [PLAN_COLUMNS, *rows]


def _cells(plan: Plan, rows: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield the head, then a row for each range between the boundaries of all columns."""
    yield (f"{plan.by} / {plan.columns_by}", *row_spans(plan.across))
    bounds = sorted({row.below for row in plan.rows})
    spans = row_spans(Plan(tuple(Row(below, {}) for below in bounds), plan.by))
    for below, span in zip(bounds, spans, strict=True):
        places = [
            next(n for n, row in enumerate(column.rows) if below <= row.below)
            for column in plan.columns
        ]
        texts = (rows[plan.index(column, place)] for column, place in enumerate(places))
        yield (span, *("; ".join(_shown(text)) for text in texts))


def _shown(row: tuple[str, ...]) -> Iterator[str]:
    """Yield the parts of a row that are not empty, without its load."""
    _, *parts, saves = row
    yield from (part for part in parts if part != NOTHING)
    if saves != NOTHING:
        yield f"saves {saves} against the baseline at this load"


def _rows(report: StudyReport) -> list[tuple[str, ...]]:
    """Return the rows of a plan, in `PLAN_COLUMNS`."""
    plan, base = report.study.plan, report.baseline.setting
    if plan is None or len(plan.rows) != len(report.rows):
        return []
    quantities = report.study.quantities
    places = zip(row_places(plan), report.rows, strict=True)
    return [
        (
            place,
            change(row.setting, base),
            _rests_on(row),
            "; ".join(_limits(row, quantities)) or NOTHING,
            NOTHING if row.saving is None else percent(row.saving.mean, row.saving.stderr),
        )
        for place, row in places
    ]


def plan_lines(report: StudyReport) -> Iterator[str]:
    """Yield the rows of a plan, a sentence each."""
    for row in _rows(report):
        yield f"{row[0]}: {'; '.join(_shown(row))}"


def _rests_on(row: PlanRowView) -> str:
    if not row.windows:
        return NOTHING
    places = ", ".join(f"{at:.4g}" for at in (row.at, row.column_at) if at is not None)
    return how_many(row.windows, "window") + (f" at {places}" if places else "")


def _limits(row: PlanRowView, quantities: Quantities) -> Iterator[str]:
    """Yield for each limit what the row's setting showed of it."""
    for limit in row.limits:
        estimate = row.metrics.get(limit.metric)
        if estimate is not None:
            shown = figure(limit.metric, estimate.mean, declared=quantities)
            yield f"{limit.metric} {shown} (limit {figure(limit.metric, limit.value, declared=quantities)})"
