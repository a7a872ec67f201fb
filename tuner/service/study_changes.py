"""Operators' changes of a study: constraints, exploring, pause and stop, decisions on proposals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.core import (
    HELD,
    PLANNED,
    Conflict,
    Constraint,
    Estimate,
    IllegalTransition,
    InvalidInput,
    Past,
    Phase,
    Plan,
    Safety,
    Study,
    TuningError,
    Unreadable,
    Verdict,
    counted,
    incumbent,
    setting_key,
    trials_spent,
    weigh,
)
from tuner.service.creation import refuse_exploration
from tuner.service.drafts import read_constraints, refuse_unsupported, require
from tuner.service.inventory import device_of
from tuner.service.reports import preview as previewed
from tuner.study.canary import first_phase
from tuner.study.changes import looking_again
from tuner.study.follow import up_to_confirmed
from tuner.study.loop import Loop
from tuner.study.moves import Move
from tuner.wire import Change, ConstraintChange, ConstraintPreview, Decision, ExplorationChange


@looking_again
def constrain(loop: Loop, study: str, change: ConstraintChange) -> None:
    """Replace a study's constraints; raises as `Operations.set_constraints` does."""
    with loop.changes.lock(study):
        current = loop.store.studies.get(study)
        then = _under(loop, current, change)
        if then.constraints == current.constraints:
            return
        requested = ", ".join(change.constraints)
        usual = f"constraints changed to {requested}" if requested else "constraints removed"
        why = change.why or usual
        if _continues(current, then):
            then = loop.changes.with_reason(then)
            revise(loop, then, change.who, why, kind="constraints")
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
    return previewed(current, then, trials, max(0, more))


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


@looking_again
def set_exploration(loop: Loop, study: str, change: ExplorationChange) -> None:
    """Replace the limits of a study's exploring; raises as `Operations.set_exploration` does."""
    with loop.changes.lock(study):
        current = loop.store.studies.get(study)
        if not current.active:
            raise IllegalTransition(f"study {study} is stopped", hint="create a new study")
        if change.exploration == current.exploration:
            return
        changed = replace(current, exploration=change.exploration)
        refuse_exploration(changed, [device_of(loop, name) for name in current.devices])
        why = change.why or f"exploration changed by {change.who}"
        if change.exploration.frozen and not current.exploration.frozen:
            loop.changes.abort(current, f"frozen: {change.exploration.frozen}")
        revise(loop, loop.changes.with_reason(changed), change.who, why, kind="exploration")


def freeze(loop: Loop, study: str, change: Change) -> None:
    """Start no trials until the study is thawed; a held setting stays."""
    _set_frozen(loop, study, change, change.why or f"by {change.who}")


def thaw(loop: Loop, study: str, change: Change) -> None:
    """Let a frozen study start trials again."""
    _set_frozen(loop, study, change, "")


def _set_frozen(loop: Loop, study: str, change: Change, why: str) -> None:
    """Replace the reason of a study's freeze; empty ends the freeze."""
    limits = replace(loop.store.studies.get(study).exploration, frozen=why)
    set_exploration(
        loop, study, ExplorationChange(exploration=limits, who=change.who, why=change.why)
    )


@looking_again
def halt(loop: Loop, study: str, change: Change, phase: Phase = Phase.STOPPED) -> None:
    """Move a study to STOPPED or PAUSED; nothing changes if it is there already.

    Raises:
        NotFound: there is no such study.
        Unreadable: it cannot be read; it can only be stopped.
    """
    with loop.changes.lock(study):
        stored = loop.store.studies.stored(among=[study])
        current = stored[0] if stored else loop.store.studies.get(study)
        if current.phase is phase:
            return
        why = change.why or f"{phase} by {change.who}"
        if isinstance(current, Study):
            moved = current.moved(phase)
            loop.changes.abort(current, why)
            revise(loop, moved, change.who, why)
        elif phase is not Phase.STOPPED:
            raise Unreadable(current.error)
        else:
            loop.changes.end_unreadable(current, change.who, why)


@looking_again
def resume(loop: Loop, study: str, change: Change) -> None:
    """Continue a paused study in its former phase; an active study that is not paused does not change."""
    with loop.changes.lock(study):
        current = loop.store.studies.get(study)
        if current.phase not in (Phase.PAUSED, Phase.STOPPED):
            return
        why = change.why or f"resumed by {change.who}"
        resumed = current.resumed()
        stays = entitled(loop, resumed)
        if not stays:
            resumed = tuning_on(loop, resumed, granting=False)
        revise(loop, loop.changes.entering(resumed), change.who, why)
        if not stays:
            loop.changes.note_withdrawn(current, why)


@looking_again
def approve(loop: Loop, study: str, decision: Decision) -> None:
    """Hold a study's proposal, first on its canary if it has one. Approving it twice changes nothing.

    Raises:
        NotFound: no study has this id.
        IllegalTransition: it has no proposal, or is paused.
        Conflict: the study has another revision than the operator has seen.
        InvalidInput: the trial that the operator prefers is not proven to keep all limits.
    """
    with loop.changes.lock(study):
        current = loop.store.studies.get(study)
        if current.phase in HELD and current.terms.safety is Safety.ADVISE:
            return
        plan = _chosen(loop, current, decision)
        held = current.moved(first_phase(current, plan), plan)
        _decide(loop, held, plan, decision, "approved")


@looking_again
def reject(loop: Loop, study: str, decision: Decision) -> None:
    """End a study whose proposal the operator rejects. Rejecting it twice changes nothing.

    Raises:
        NotFound: no study has this id.
        IllegalTransition: it has no proposal, or is paused.
        Conflict: the study has another revision than the operator has seen.
    """
    with loop.changes.lock(study):
        current = loop.store.studies.get(study)
        if current.phase is Phase.STOPPED:
            return
        plan = _proposed(current, decision)
        _decide(loop, current.moved(Phase.STOPPED), plan, decision, "rejected")


def _chosen(loop: Loop, study: Study, decision: Decision) -> Plan:
    """Return the plan to hold: the proposal, or the setting of the trial that the operator prefers."""
    proposed = _proposed(study, decision)
    if decision.trial is None:
        return proposed
    past = Past(study=study, trials=tuple(loop.store.trials.list(study.id)))
    trial = next((t for t in past.trials if t.number == decision.trial), None)
    candidate = None if trial is None else past.evidence.of(trial.setting)
    if trial is None or candidate is None or candidate.verdict is not Verdict.FEASIBLE:
        raise InvalidInput(
            f"trial {decision.trial} of study {study.id} is not proven to keep all limits",
            hint=f"choose one of `jouletune best {study.id} --pareto`",
        )
    single = Plan.single(trial.setting)
    step = up_to_confirmed(past, Move(Phase.HOLDING, "approved", single))
    return step.plan if isinstance(step, Move) and step.plan is not None else single


def _proposed(study: Study, decision: Decision) -> Plan:
    """Return a study's proposal; refuse a decision on another revision than the present one."""
    if study.proposed is None:
        raise IllegalTransition(
            f"study {study.id} is {study.phase} and has no proposal",
            hint=f"see `jouletune study show {study.id}`",
        )
    if study.phase is Phase.PAUSED:
        raise IllegalTransition(
            f"study {study.id} is paused", hint=f"`jouletune study resume {study.id}` first"
        )
    if decision.revision not in (None, study.revision):
        raise Conflict(
            f"study {study.id} now proposes revision {study.revision}, not revision {decision.revision}",
            hint=f"see `jouletune study show {study.id}`, then decide again",
        )
    return study.proposed


def _decide(loop: Loop, moved: Study, plan: Plan, decision: Decision, how: str) -> None:
    """Store a decision as the study's next revision, and note it as an event."""
    because = f"; {decision.why}" if decision.why else ""
    why = f"{how} by {decision.who}: {plan.in_words}{because}"
    loop.changes.revise(loop.changes.entering(moved), decision.who, why)
    loop.changes.note(str(moved.phase), why, moved.id)
