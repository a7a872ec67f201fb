"""Studies that only advise: a plan is proposed instead of held, and waits for an operator's approval."""

from __future__ import annotations

from dataclasses import replace

from tuner.core import Past, Phase, Plan, Safety, render_setting
from tuner.study.moves import Move, Step


def advised(past: Past, step: Step) -> Step:
    """Replace a step's hold with a proposal if the study may only advise.

    A baseline, too, is only proposed: no device is set before approval.
    """
    study = past.study
    if study.terms.safety is not Safety.ADVISE or not isinstance(step, Move):
        return step
    if step.phase is not Phase.HOLDING or step.plan is None:
        return step
    if all(study.rests(row.setting) for row in step.plan.rows):
        return replace(step, phase=Phase.PROPOSED)
    limits = ", ".join(limit.in_short for limit in past.evidence.limits or ()) or "none"
    waits = f"{plan_in_words(step.plan)} awaits approval"
    return replace(step, phase=Phase.PROPOSED, why=f"{waits}: {step.why}; limits: {limits}")


def plan_in_words(plan: Plan) -> str:
    """Return a plan as text: its setting, or each setting with the value from which it applies."""
    if len(plan.rows) == 1:
        return render_setting(plan.rows[0].setting)
    *lower, last = plan.rows
    spans = [f"{plan.by} below {row.below:g}: {render_setting(row.setting)}" for row in lower]
    return "; ".join([*spans, f"else {render_setting(last.setting)}"])
