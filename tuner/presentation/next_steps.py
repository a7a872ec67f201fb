"""A study's status in one word and one sentence, and the next step for an operator."""

from __future__ import annotations

from tuner.core import Phase
from tuner.presentation.figures import change, joined
from tuner.presentation.standing import SEARCHING, held_against
from tuner.study.moves import LIMIT_NOT_MET
from tuner.wire import RevisionView, StudyView


def status_reason(view: StudyView) -> str:
    """Return the reason for a study's status, as one sentence."""
    if view.error:
        return sentence(view.error)
    if view.stopped and view.phase is not Phase.STOPPED:
        return "All devices are stopped; no setting is tried or held."
    if view.offline and view.phase is not Phase.PAUSED:
        return f"No message from {joined(view.offline)}."
    if view.unmet is not None:
        name, measured, bound = held_against(view, view.unmet)
        metric = view.unmet.metric
        return f"Holding {name}: {metric} is {measured or 'not measured'}, the limit is {bound}."
    if view.capped:
        return sentence(view.capped)
    return sentence(view.phase_why.removeprefix(f"{LIMIT_NOT_MET}: "))


def next_step(view: StudyView) -> str:
    """Return the next step for an operator, by a study's status."""
    if view.error:
        return "Read the tuner's log."
    if view.phase is Phase.STOPPED:
        return "Create a new study to tune these devices again."
    if view.stopped:
        return "Resume all studies on the fleet page."
    if view.offline and view.phase is not Phase.PAUSED:
        return "Start the agents of these devices, or check their network."
    if view.unable:
        return f"Let the device take orders again: {view.unable}"
    if view.unmet is not None:
        return "Loosen the limit, or end the study: no measured setting keeps it."
    if view.capped:
        return "Give the budget more watts, or the device a higher priority."
    return _of_phase(view)


def _of_phase(view: StudyView) -> str:
    """Return the next step for an operator, by the phase of a study without problems."""
    if view.phase is Phase.PROPOSED:
        proposed = view.plan.chief(view.baseline.setting) if view.plan else {}
        return f"Approve or reject the proposed setting: {change(proposed, view.baseline.setting)}."
    if view.phase is Phase.PAUSED:
        return "Resume the study, or end it."
    if view.phase is Phase.CANARY:
        return f"Nothing to do. The other devices follow when {view.terms.canary} confirms it."
    if view.phase in SEARCHING:
        count = sum(view.trials.values())
        most = view.terms.trials
        return f"Nothing to do. {count} trials so far; the policy may make at most {most}."
    return "Nothing to do. The held setting is checked against the limits in every window."


def last_change(revisions: list[RevisionView]) -> RevisionView | None:
    """Return the last revision by a person; None if the tuner made all of them."""
    return next((r for r in reversed(revisions) if r.who not in ("", "tuner")), None)


def sentence(text: str) -> str:
    """Return a text as a sentence: with a capital first letter, unless it is a name, and a full stop."""
    text = text.strip()
    first = text.split(" ", 1)[0]
    capitalised = text if "_" in first or "=" in first else text[:1].upper() + text[1:]
    return (
        capitalised
        if not capitalised or capitalised.endswith((".", "!", "?"))
        else f"{capitalised}."
    )
