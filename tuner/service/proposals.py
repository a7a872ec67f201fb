"""An operator's decision on a study's proposal: approved or rejected."""

from __future__ import annotations

from tuner.core import (
    HELD,
    Conflict,
    IllegalTransition,
    InvalidInput,
    Past,
    Phase,
    Plan,
    Safety,
    Study,
    Verdict,
)
from tuner.study.advice import plan_in_words
from tuner.study.canary import first_phase
from tuner.study.follow import up_to_confirmed
from tuner.study.loop import Loop
from tuner.study.moves import Move
from tuner.study.stale import looking_again
from tuner.wire import Decision


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
    why = f"{how} by {decision.who}: {plan_in_words(plan)}{because}"
    loop.changes.revise(loop.changes.entering(moved), decision.who, why)
    loop.changes.note(str(moved.phase), why, moved.id)
