"""Changes of a study's constraints: its history is judged again, and it searches only if needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.core import (
    PLANNED,
    Constraint,
    Estimate,
    IllegalTransition,
    Past,
    Phase,
    Study,
    TuningError,
    Verdict,
    counted,
    incumbent,
    setting_key,
    trials_spent,
    weigh,
)
from tuner.service import previews
from tuner.service.drafts import read_constraints, refuse_unsupported, require
from tuner.service.inventory import device_of
from tuner.study.loop import Loop
from tuner.wire import ConstraintChange, ConstraintPreview


def constrain(loop: Loop, study: str, change: ConstraintChange) -> None:
    """Replace a study's constraints, under its lock; raises as `Operations.set_constraints` does."""
    current = loop.store.studies.get(study)
    then = _under(loop, current, change)
    if then.constraints == current.constraints:
        return
    why = change.why or _changed_to(change.constraints)
    if _continues(current, then):
        revise(loop, loop.changes.with_reason(then), change.who, why, kind="constraints")
    else:
        loop.changes.abort(current, "the constraints changed")
        kind = "constraints" if then.phase is Phase.PAUSED else ""
        revise(loop, then, change.who, why, kind)
        loop.changes.note_withdrawn(current, why)


def preview(loop: Loop, current: Study, change: ConstraintChange) -> ConstraintPreview:
    """Return the effect of other constraints on a study, and change nothing."""
    then = _under(loop, current, change)
    trials = loop.store.trials.list(current.id)
    spent = trials_spent(counted(then, trials))
    more = 0 if _continues(current, then) else then.terms.trials - spent
    return previews.preview(current, then, trials, max(0, more))


def _under(loop: Loop, current: Study, change: ConstraintChange) -> Study:
    """Return the study as it continues under other constraints. Raises as `set_constraints` does."""
    baseline = weigh(current, loop.store.trials.list(current.id)).baseline
    constraints = read_constraints(change.constraints, baseline)
    if not current.active:
        raise IllegalTransition(
            f"study {current.id} is stopped; its constraints can no longer change",
            hint="create a new study",
        )
    for device in (device_of(loop, name) for name in current.devices):
        for constraint in constraints:
            require(device, constraint.metric, current)
    changed = replace(current, constraints=constraints)
    if constraints == current.constraints:
        return changed
    try:
        policy = loop.policies(current.policy)
    except TuningError:  # not available here: the study's next step reports the reason
        pass
    else:
        refuse_unsupported(changed, policy)
    at_work = changed.resumed() if changed.phase is Phase.PAUSED else changed
    loose = _opens(current.constraints, constraints, baseline)
    if current.proposed is None and entitled(loop, at_work, loosened=loose):
        return changed
    return tuning_on(loop, changed)


def revise(loop: Loop, study: Study, who: str, why: str, kind: str = "") -> None:
    """Store a study's next revision, and note it as an event."""
    loop.changes.revise(study, who, why)
    loop.changes.note(kind or str(study.phase), why, study.id)


def tuning_on(loop: Loop, study: Study, *, granting: bool = True) -> Study:
    """Return the study back in tuning; its trials so far still count.

    If it has used all its trials, it is granted half of its first number again, unless `granting` is False.
    A paused study stays paused, and tunes once it is resumed.
    """
    spent = trials_spent(counted(study, loop.store.trials.list(study.id)))
    terms = study.terms
    if granting and spent >= terms.trials:
        given = loop.store.studies.revisions(study.id)[0].study.terms.trials
        terms = replace(terms, trials=spent + -(-given // 2))
    tuning = loop.changes.entering(replace(study.moved(Phase.TUNING), terms=terms))
    return tuning.moved(Phase.PAUSED) if study.phase is Phase.PAUSED else tuning


def entitled(loop: Loop, study: Study, *, loosened: bool = False) -> bool:
    """Return whether a study may stay in its phase: its history still leads to its plan.

    `loosened`: other limits allow more than before. A held baseline may not stay then, as a setting may now
    be proven to beat it.
    """
    if study.plan is None or study.phase not in PLANNED:
        return True
    if loosened and all(study.rests(row.setting) for row in study.plan.rows):
        return False
    past = Past(study=study, trials=tuple(loop.store.trials.list(study.id)))
    evidence, plan = past.evidence, study.plan
    best = incumbent(study, evidence)
    if best is None or setting_key(best.setting) not in {
        setting_key(row.setting) for row in plan.rows
    }:
        return False
    rows = [row for row in plan.rows if not study.rests(row.setting)]
    if evidence.broken is not None:
        allowed = len(rows) == len(plan.rows)
    else:
        base, own = (study.objective.score(x) for x in (evidence.baseline, best.estimates))
        allowed = not (base and own and study.objective.better(base.mean, own.mean))
    candidates = [past.behind(plan, row).of(row.setting) for row in rows]
    return allowed and all(c and c.verdict is Verdict.FEASIBLE for c in candidates)


def _continues(now: Study, then: Study) -> bool:
    """Return whether a study keeps its phase, plan and number of trials under other constraints."""
    return (then.phase, then.plan, then.terms) == (now.phase, now.plan, now.terms)


def _opens(
    before: Sequence[Constraint], after: Sequence[Constraint], baseline: Mapping[str, Estimate]
) -> bool:
    """Return whether other constraints allow anything that the earlier ones did not.

    They do unless each earlier constraint is still there, at least as tight. A limit that cannot be
    compared counts as looser.
    """

    def as_tight(old: Constraint) -> bool:
        bound = old.limit(baseline)
        return any(
            (new.metric, new.op) == (old.metric, old.op)
            and (value := new.limit(baseline)) is not None
            and bound is not None
            and (value <= bound if old.op == "<=" else value >= bound)
            for new in after
        )

    return not all(map(as_tight, before))


def _changed_to(constraints: Sequence[str]) -> str:
    """Return the reason for a change of constraints, if the operator gives none."""
    return (
        f"constraints changed to {', '.join(constraints)}" if constraints else "constraints removed"
    )
