"""Columns of a table: each is confirmed by the windows at its own value of the second signal.

A setting is held up to the highest value that its windows confirm, and as far up the first signal as they
confirm there. At a lower value the next higher column counts; above the highest the baseline is held.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tuner.core import LOAD_REACH, LOAD_STEP, Past, Plan, Row, Trial, confirms_at, setting_key


@dataclass(frozen=True)
class PlanColumn:
    """A column of a plan at a value of the second signal; a plan by one signal is one column.

    `near` has the windows that may be compared there; `past` lacks those of settings at a lower value,
    which confirm nothing.
    """

    plan: Plan
    near: Past
    past: Past


def column_at(past: Past, plan: Plan, value: float | None) -> PlanColumn:
    """Return the column of a plan at a value of the second signal; None: unknown, or no second signal."""
    by = past.study.terms.columns_by
    at = {} if value is None else {by: value}
    columns = plan.columns
    part = columns[plan.across.row(at)] if plan.columns_by else columns[0]
    return (
        PlanColumn(part, past.near(at), windows_at(past, value))
        if at
        else PlanColumn(part, past, past)
    )


def present_column(past: Past, plan: Plan) -> PlanColumn:
    """Return the column of a plan at the present value of the second signal."""
    return column_at(past, plan, past.context.get(past.study.terms.columns_by))


def windows_at(past: Past, value: float | None) -> Past:
    """Return the past near a value of the second signal; of lower windows, the baseline's alone."""
    by = past.study.terms.columns_by
    if value is None or not by:
        return past
    near = past.near({by: value})
    own = [t for t in near.trials if past.study.rests(t.setting) or _confirms(t, by, value)]
    return replace(near, trials=tuple(own))


def _confirms(trial: Trial, by: str, value: float) -> bool:
    return by in trial.ran_at and confirms_at(trial.ran_at[by], value)


def reaches_further(plan: Plan, above: Plan) -> bool:
    """Return whether a column has a setting that the one above lacks, or holds it up to a higher load."""
    reached = {setting_key(row.setting): row.below for row in above.rows}
    return any(
        row.below > LOAD_STEP * reached.get(setting_key(row.setting), 0.0) for row in plan.rows
    )


def continued(plan: Plan, above: Plan) -> Plan:
    """Return a column with the rows of the one above it beyond its own, in place of the baseline."""
    low = plan.rows[-2].below
    rest = [row for row in above.rows if row.below > low]
    first = rest[0] if rest[0].at is None or rest[0].at >= low else replace(rest[0], at=None)
    return replace(plan, rows=(*plan.rows[:-1], first, *rest[1:]))


def confirmed_column(kept: Plan, row: Row) -> float | None:
    """Return the value of the second signal that a cell is confirmed at, else its own."""
    if row.column_at is None:
        return None
    key, most = setting_key(row.setting), row.column_at * LOAD_REACH
    same = [r.column_at for r in kept.rows if r.column_at and setting_key(r.setting) == key]
    return max((value for value in same if value <= most), default=row.column_at)
