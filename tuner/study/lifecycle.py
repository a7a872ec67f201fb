"""Chooses a study's next step from its trials alone: after a crash the same step results.

BASELINE measures the default. TUNING requests suggestions of the policy; if similar studies agree on a
plan, that is confirmed first. CONFIRMING compares the proposed plan with the baseline in alternating
windows. In HOLDING nothing is tried; only a study that follows a load confirms its setting again at a
higher load (`tuner.study.follow`). A study that only advises stays in PROPOSED until an operator approves;
one with a canary stays in CANARY until the canary's windows confirm its plan. A continuous study asks the
policy round by round and confirms nothing; its policy may need no baseline. If consecutive trials fail,
including one of the baseline, the setting is not the cause: the study is PAUSED.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuner import guard
from tuner.core import (
    DecidesSteps,
    Done,
    Mode,
    Past,
    Phase,
    Plan,
    Policy,
    Safety,
    Study,
    Trial,
    TrialState,
    Try,
    Wait,
    Worth,
    baseline_context,
    comparable,
    render_setting,
    windows,
)
from tuner.study.canary import staged
from tuner.study.confirm import confirming
from tuner.study.follow import up_to_confirmed
from tuner.study.moves import (
    Assign,
    Move,
    Rest,
    Step,
    hold_baseline,
    in_words,
    needed_metrics,
    of_this_phase,
    refusal_of,
    rivals,
    without,
)

BASELINE_WINDOWS = 2
BASELINE_TRIES = 6
FAILED_IN_A_ROW = 4
"""After this number of failed trials in a row the baseline is measured again as a check: our choice."""
LOAD_CHANGED = 2
"""Consecutive trials under another load that show a lasting change of the load."""


def next_step(past: Past, policy: Policy, device: str = "", says: Policy | None = None) -> Step:
    """Return the study's next step. With `device` it is the step of that device alone.

    `says` is the policy whose declarations count, if `policy` is an object that calls it elsewhere.
    """
    return staged(past.study, advised(past, _next(past, policy, device, says or policy)))


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
    waits = f"{step.plan.in_words} awaits approval"
    return replace(step, phase=Phase.PROPOSED, why=f"{waits}: {step.why}; limits: {limits}")


def _next(past: Past, policy: Policy, device: str, says: Policy) -> Step:
    """Return the next step of a study in its present phase."""
    study = past.study
    trials = windows(past.trials, least=Worth.ENDED)
    failing = _failing(past, [t for t in trials if t.device in ("", device)])
    if failing is not None:
        return failing
    if study.phase is Phase.BASELINE:
        return _baseline(past, trials, says)
    if study.phase is Phase.TUNING:
        return _tuning(past, trials, policy, says)
    if study.phase is Phase.CONFIRMING:
        step = up_to_confirmed(past, confirming(past, trials))
        return _with_the_search(past, _searching(past, step))
    return Rest(f"the study is {study.phase}")


def _failing(past: Past, trials: Sequence[Trial]) -> Step | None:
    """Return the step after consecutive failures: measure the baseline, then pause.

    A device that needs an operator (it is lost, or the actuator has paused it) fails at any
    setting, and would fail at every further one.
    """
    study = past.study
    latest = of_this_phase(study, trials)[-FAILED_IN_A_ROW:]
    if len(latest) < FAILED_IN_A_ROW or any(t.state is not TrialState.FAILED for t in latest):
        return None
    why = f"{FAILED_IN_A_ROW} trials in a row failed"
    if any(t.tries(study.baseline) for t in latest):
        reason = latest[-1].reason or "no reason given"
        then = f"correct the cause, then `jouletune study resume {study.id}` or repeat the run"
        return Move(Phase.PAUSED, f"{why}, at the baseline too; last reason: {reason}; {then}")
    if study.phase is Phase.TUNING and not _continuous(study) and past.left <= 0:
        return None
    return Assign(study.baseline, f"{why}: checking that the baseline still works")


def _baseline(past: Past, trials: Sequence[Trial], says: Policy) -> Step:
    """Return the next step of the baseline: a further window, tuning, or a pause with the reason."""
    study = past.study
    if not _needs_baseline(study, says):
        return Move(Phase.TUNING, "no baseline is requested, so no saving is reported")
    phase = of_this_phase(study, trials)
    needed = set(needed_metrics(study))
    good = [t for t in windows(phase, least=Worth.SOLID) if needed <= set(t.shown)]
    if len(good) >= BASELINE_WINDOWS:
        baseline = past.evidence.baseline
        metric = next((c.metric for c in study.constraints if c.limit(baseline) is None), None)
        if metric is not None:
            why = f"{metric} is {baseline[metric].mean:g} at the baseline, so no limit can be relative"
            return Move(Phase.PAUSED, f"{why} to it; set an absolute limit with `constraint set`")
        return Move(Phase.TUNING, f"the baseline was measured in {len(good)} windows")
    if len(phase) >= BASELINE_TRIES:
        last = phase[-1]
        return hold_baseline(
            study,
            past.evidence,
            f"the baseline could not be measured in {len(phase)} windows; the last was "
            f"{last.state}: {last.reason or 'no reason given'}",
        )
    return Assign(study.baseline, f"baseline window {len(good) + 1} of {BASELINE_WINDOWS}")


def _continuous(study: Study) -> bool:
    """Return whether the study decides step by step and never confirms."""
    return study.terms.mode is Mode.CONTINUOUS


def _needs_baseline(study: Study, policy: Policy) -> bool:
    """Return whether the baseline is measured first: not for policies that decide step by step."""
    if not _continuous(study) or not isinstance(policy, DecidesSteps) or policy.needs_baseline:
        return True
    return any(constraint.relative for constraint in study.constraints)


def _of_settings(past: Past, policy: Policy) -> Past:
    """Return a past without the constraints on the whole course: no single setting breaks one."""
    study = past.study
    if not _continuous(study) or not isinstance(policy, DecidesSteps):
        return past
    constraints = tuple(c for c in study.constraints if c.metric not in policy.goals)
    return replace(past, study=replace(study, constraints=constraints))


def _tuning(past: Past, trials: Sequence[Trial], policy: Policy, says: Policy) -> Step:
    """Return the next step of the search."""
    study = past.study
    if past.limits is None and _needs_baseline(study, says):
        return Move(Phase.BASELINE, "the baseline has not been measured")
    moves = _continuous(study) or study.terms.plan_by
    if not moves and _load_changed(study, trials):
        return Move(Phase.BASELINE, "the load has changed since the baseline was measured")
    if (common := _common_plan(past)) is not None:
        return common
    suggestion = policy.suggest(past)
    if isinstance(suggestion, Wait):
        return Rest(suggestion.why)
    judged = _of_settings(past, says)
    if isinstance(suggestion, Done):
        return _proposal(judged, trials, suggestion.plan, suggestion.why)
    if suggestion.context.keys() - study.askable:
        can = ", ".join(sorted(study.askable)) or "nothing"
        why = f"policy {study.policy} requests {in_words(suggestion.context)}"
        return Move(Phase.PAUSED, f"{why}, but a trial of this workload can only set: {can}")
    return _attempt(judged, trials, suggestion)


def _common_plan(past: Past) -> Move | None:
    """Return the move to confirming the plan of similar studies, before the first trial and only once."""
    transfer = past.study.transfer
    if not transfer.plan or any(t.phase is not Phase.BASELINE for t in past.trials):
        return None
    text = render_setting(transfer.plan)
    why = f"{transfer.holders} studies of the same board, workload and versions agree on {text}"
    return Move(Phase.CONFIRMING, f"{why}; verifying it here", Plan.single(transfer.plan))


def _with_the_search(past: Past, step: Assign | Move) -> Assign | Move:
    """Return a step of confirming; a hold's reason also says why the search ended, if one did just now."""
    if not isinstance(step, Move) or step.phase is not Phase.HOLDING or not past.study.reason:
        return step
    plan, by = past.study.plan, past.study.terms.plan_by
    held_before = by and plan is not None and plan.by == by  # it is confirmed at a higher load
    if held_before or not any(t.phase is Phase.TUNING for t in past.trials):
        return step
    return replace(step, why=f"{step.why}; search: {past.study.reason}")


def _searching(past: Past, step: Assign | Move) -> Assign | Move:
    """Return a step of confirming, or the move to a search if similar studies' plan is not confirmed."""
    verifying = past.study.transfer.plan and not any(t.phase is Phase.TUNING for t in past.trials)
    if not verifying or not isinstance(step, Move) or step.phase is not Phase.HOLDING:
        return step
    if step.plan is None or not all(past.study.rests(row.setting) for row in step.plan.rows):
        return step
    return Move(
        Phase.TUNING, f"the plan of similar studies is not confirmed here; searching; {step.why}"
    )


def _attempt(past: Past, trials: Sequence[Trial], suggestion: Try) -> Step:
    """Try the policy's suggestion, unless the guard objects or the trials are spent."""
    study, refusal = past.study, refusal_of(past, trials, suggestion)
    if refusal is not None:
        why = f"{render_setting(suggestion.setting)} was not tried: {refusal}"
        if _continuous(study):
            return Assign(
                study.baseline, f"{why}; measuring the baseline instead", suggestion.context
            )
    elif past.left <= 0 and not _continuous(study):
        why = f"all {study.terms.trials} trials are used"
    else:
        return Assign(suggestion.setting, suggestion.why, suggestion.context, suggestion.plan)
    best = next(iter(rivals(study, past.evidence)), None)
    if best is None:
        return hold_baseline(study, past.evidence, why)
    return _proposal(past, trials, Plan.single(best.setting), why)


def _load_changed(study: Study, trials: Sequence[Trial]) -> bool:
    """Return whether the latest trials were all contaminated by a load other than the baseline's."""
    present = baseline_context(study, trials)
    latest = of_this_phase(study, trials)[-LOAD_CHANGED:]
    return len(latest) == LOAD_CHANGED and all(
        t.state is TrialState.CONTAMINATED and not t.context and not comparable(t.ran_at, present)
        for t in latest
    )


def _proposal(past: Past, trials: Sequence[Trial], plan: Plan, why: str) -> Move:
    """Move to confirming a plan, unless it is the baseline or the guard objects to a row.

    A continuous study holds it immediately, with the baseline instead of rows that the guard
    refuses.
    """
    study, evidence = past.study, past.evidence
    if all(study.rests(row.setting) for row in plan.rows):
        return hold_baseline(study, evidence, why)
    refused = {
        number: f"{render_setting(row.setting)} cannot be held: {refusal}"
        for number, row in enumerate(plan.rows)
        if (refusal := guard.objection(study, past.behind(plan, row), trials, row.setting))
        is not None
    }
    if _continuous(study):
        why = "; ".join([why, *dict.fromkeys(refused.values())])
        rest = without(study, plan, refused)
        return (
            hold_baseline(study, evidence, why) if rest is None else Move(Phase.HOLDING, why, rest)
        )
    if not refused:
        return Move(Phase.CONFIRMING, why, plan)
    why = next(iter(refused.values()))
    best = next(iter(rivals(study, evidence)), None)
    if best is None:
        return hold_baseline(study, evidence, why)
    return Move(Phase.CONFIRMING, why, Plan.single(best.setting))
