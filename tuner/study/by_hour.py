"""Plans by the hour of the day: each part of it is confirmed by its own windows alone.

A part without a confirmed setting holds the baseline. Nothing waits for a part of the day: a study
holds the rest of its plan, and continues when that part comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuner.core import (
    ANYWHERE,
    HOUR,
    Context,
    Past,
    Phase,
    Plan,
    Row,
    Trial,
    Worth,
    windows,
)
from tuner.study.confirm import (
    PENDING,
    ConfirmResult,
    Duel,
    alternate,
    duel,
    judged,
    row_text,
    unclear,
)
from tuner.study.moves import Assign, Move, hold_baseline


def confirming_hours(past: Past, plan: Plan) -> Assign | Move:
    """Return the next window for the present hour's row, or in the end the hold."""
    study = past.study
    if plan.by in past.context:
        row = plan.rows[plan.row(past.context)]
        if hour_is_open(past, row):
            return alternate(study, row.setting, ANYWHERE, _windows(past, row))
    results = [_result(past, row) for row in plan.rows]
    kept = tuple(
        row if result.won else replace(row, setting=study.baseline)
        for row, result in zip(plan.rows, results, strict=True)
    )
    texts = [
        row_text(study, plan, row, replace(result, why=result.why or "not confirmed yet"))
        for row, result in zip(plan.rows, results, strict=True)
        if not study.rests(row.setting)
    ]
    why = "; ".join(texts)
    if all(study.rests(row.setting) for row in kept):
        return hold_baseline(study, past.evidence, f"no row of the plan is confirmed ({why})")
    return Move(Phase.HOLDING, why, replace(plan, rows=kept))


def hour_is_open(past: Past, row: Row) -> bool:
    """Return whether further windows may confirm a row."""
    return not past.study.rests(row.setting) and _result(past, row) == PENDING


def hour_duel(past: Past, row: Row) -> Duel | None:
    """Return the metrics of baseline and setting in the windows that confirm a row."""
    return duel(past.study, _windows(past, row), row.setting)


def _result(past: Past, row: Row) -> ConfirmResult:
    there = _windows(past, row)
    result = judged(past.study, row.setting, there, past.at(_at(row)))
    return unclear(there) if result == PENDING else result


def _windows(past: Past, row: Row) -> Sequence[Trial]:
    """Return the confirming windows of a row's setting and of the baseline, in its part of the day."""
    settings = past.study.baseline, row.setting
    return windows(past.trials, *settings, phase=Phase.CONFIRMING, at=_at(row), least=Worth.ENDED)


def _at(row: Row) -> Context:
    return {HOUR: row.at or 0.0}
