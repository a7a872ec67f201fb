"""Plausibility checks of agents' reports."""

from __future__ import annotations

from dataclasses import replace

from tuner.core import InvalidInput, Outcome, Study, TrialState, implausible, refuse_negative
from tuner.wire import HoldReport


def require_member(device: str, study: Study) -> None:
    """Raise InvalidInput if the reporting device does not belong to the study."""
    if device not in study.devices:
        raise InvalidInput(f"study {study.id} does not have the device {device}")


def credible(outcome: Outcome, study: Study) -> Outcome:
    """Return an outcome without its window if the window's numbers are implausible.

    Raises:
        MeasurementError: a quantity that cannot be negative is below zero.
    """
    window = outcome.measurement
    if window is None:
        return outcome
    refuse_negative(window.estimates, study.quantities)
    why = implausible(window, study.quantities)
    if not why:
        return outcome
    state = TrialState.CONTAMINATED if outcome.state.evidence else outcome.state
    reason = f"implausible: {why}; window discarded; check the meter"
    return Outcome(state=state, reason="; ".join(filter(None, (outcome.reason, reason))))


def held_doubt(message: HoldReport, study: Study) -> str:
    """Return why a held window's numbers are implausible, as text of an event; empty if they are not."""
    window = message.measurement
    why = "" if window is None else implausible(window, study.quantities)
    return why and f"a held window was discarded: {why}; check the meter"


def without_samples(outcome: Outcome) -> Outcome:
    """Return an outcome without the raw values of its window."""
    window = outcome.measurement
    return (
        outcome if window is None else replace(outcome, measurement=replace(window, samples=None))
    )
