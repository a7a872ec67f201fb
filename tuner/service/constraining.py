"""Other limits for a study: what was measured is judged again, and it searches on only where it must."""

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
    """Replace the constraints of a study that is locked; raises as `Operations.set_constraints` does."""
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
    """Return what other constraints would change, and change nothing."""
    then = _under(loop, current, change)
    trials = loop.store.trials.list(current.id)
    spent = trials_spent(counted(then, trials))
    more = 0 if _continues(current, then) else then.terms.trials - spent
    return previews.preview(current, then, trials, max(0, more))


def _under(loop: Loop, current: Study, change: ConstraintChange) -> Study:
    """Return a study as it is to continue under other constraints. Raises as `set_constraints` does."""
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
    except TuningError:  # one that cannot be had here: its study's next step says why
        pass
    else:
        refuse_unsupported(changed, policy)
    at_work = changed.resumed() if changed.phase is Phase.PAUSED else changed
    loose = _opens(current.constraints, constraints, baseline)
    if current.proposed is None and entitled(loop, at_work, loosened=loose):
        return changed
    return tuning_on(loop, changed)


def revise(loop: Loop, study: Study, who: str, why: str, kind: str = "") -> None:
    """Store a study's next revision, and tell of it."""
    loop.changes.revise(study, who, why)
    loop.changes.note(kind or str(study.phase), why, study.id)


def tuning_on(loop: Loop, study: Study, *, granting: bool = True) -> Study:
    """Return the study tuning again: its trials count.

    Where its trials are used, half of its first number is granted again. A paused one stays paused, to
    tune when it is resumed.
    """
    spent = trials_spent(counted(study, loop.store.trials.list(study.id)))
    terms = study.terms
    if granting and spent >= terms.trials:
        given = loop.store.studies.revisions(study.id)[0].study.terms.trials
        terms = replace(terms, trials=spent + -(-given // 2))
    tuning = loop.changes.entering(replace(study.moved(Phase.TUNING), terms=terms))
    return tuning.moved(Phase.PAUSED) if study.phase is Phase.PAUSED else tuning


def entitled(loop: Loop, study: Study, *, loosened: bool = False) -> bool:
    """Return whether a study may stay in its phase: its plan is what its history would choose.

    The baseline is held where nothing was proven to beat it: under a loosened limit something may.
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
    """Return whether a study under other constraints searches for nothing else."""
    return (then.phase, then.plan, then.terms) == (now.phase, now.plan, now.terms)


def _opens(
    before: Sequence[Constraint], after: Sequence[Constraint], baseline: Mapping[str, Estimate]
) -> bool:
    """Return whether other constraints allow anything that those before did not.

    Each that was there has to be there still, as tight at least; what cannot be compared opens.
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
    """Return a change of constraints in words."""
    return (
        f"constraints changed to {', '.join(constraints)}" if constraints else "constraints removed"
    )
