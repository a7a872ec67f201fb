"""The rows of a plan for operators: the evidence of each, beside the baseline at the same load."""

from __future__ import annotations

from tuner.core import Past, Plan, Row, improvement
from tuner.study.confirm import row_duel
from tuner.wire import PlanRowView


def row_views(past: Past) -> tuple[PlanRowView, ...]:
    """Return the rows of a study's plan; empty if it has one setting for all loads."""
    plan = past.study.plan
    if plan is None or len(plan.rows) < 2:
        return ()
    return tuple(_view(past, plan, row) for row in plan.rows)


def _view(past: Past, plan: Plan, row: Row) -> PlanRowView:
    """Return a row with its metrics: those of its alternating windows, or else of all its windows."""
    behind, objective = past.behind(plan, row), past.study.objective
    candidate = past.at(plan.context(row)).of(row.setting)  # windows at other loads do not count
    confirmed = row_duel(past, plan, row)
    baseline, shown = confirmed or (behind.baseline, candidate.estimates if candidate else {})
    saving = None
    if confirmed is not None and not past.study.rests(row.setting):
        before, after = objective.score(baseline), objective.score(shown)
        if before is not None and after is not None:
            saving = improvement(before, after, objective.sign).share
    return PlanRowView(
        setting=row.setting,
        at=row.at,
        windows=len(candidate.trials) if candidate else 0,
        limits=behind.limits or (),
        metrics=dict(shown),
        baseline=dict(baseline),
        saving=saving,
    )
