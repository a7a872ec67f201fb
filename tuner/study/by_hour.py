"""Plans by the hour of the day: each part of it is confirmed by its own windows alone.

A part without a confirmed setting holds the baseline. Nothing waits for a part of the day: a study
holds the rest of its plan, and continues when that part comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuner.core import (
    ANYWHERE,
    Past,
    Phase,
    Plan,
    Row,
    Trial,
    hour_at,
    part_of_day,
    setting_key,
)
from tuner.study.confirm import (
    CONFIRM_TRIES,
    PENDING,
    ConfirmResult,
    Duel,
    alternate,
    duel,
    judged,
    lost,
    row_text,
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
    windows = _windows(past, row)
    result = judged(past.study, row.setting, windows, past.at({past.study.terms.plan_by: _of(row)}))
    if result == PENDING and len(windows) >= 2 * CONFIRM_TRIES:
        return lost(f"{len(windows)} confirming windows gave no clear result")
    return result


def _windows(past: Past, row: Row) -> Sequence[Trial]:
    """Return the confirming windows of a row's setting and of the baseline, in its part of the day."""
    study, part = past.study, part_of_day(_of(row))
    mine = {setting_key(study.baseline), setting_key(row.setting)}
    return [
        t
        for t in past.trials
        if t.phase is Phase.CONFIRMING
        and t.state.final
        and setting_key(t.setting) in mine
        and part_of_day(_hour(t, study.terms.plan_by)) == part
    ]


def _hour(trial: Trial, by: str) -> float:
    """Return the hour at which a trial was measured, or else begun."""
    return trial.ran_at.get(by, hour_at(trial.started_at))


def _of(row: Row) -> float:
    return 0.0 if row.at is None else row.at
