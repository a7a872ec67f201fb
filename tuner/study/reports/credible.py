"""Whether what an agent reports can be true."""

from __future__ import annotations

from tuner.core import InvalidInput, Outcome, Study, TrialState, implausible, refuse_negative
from tuner.wire import HoldReport


def require_member(device: str, study: Study) -> None:
    """Raise InvalidInput where a study does not have the device that reports on it."""
    if device not in study.devices:
        raise InvalidInput(f"study {study.id} does not have the device {device}")


def credible(outcome: Outcome, study: Study) -> Outcome:
    """Return an outcome without a window whose numbers cannot be true.

    Raises:
        MeasurementError: a quantity that has no sign is below zero.
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
    """Return why a held window's numbers cannot be true, as an event says it; empty where they can."""
    window = message.measurement
    why = "" if window is None else implausible(window, study.quantities)
    return why and f"a held window was discarded: {why}; check the meter"
