"""Pausing and stopping of studies: running trials end, devices return to their original settings."""

from __future__ import annotations

from tuner.core import Phase
from tuner.service.constraining import revise
from tuner.study.loop import Loop
from tuner.study.stale import looking_again
from tuner.wire import Change


@looking_again
def halt(loop: Loop, study: str, phase: Phase, change: Change) -> None:
    """Move a study to PAUSED or STOPPED; nothing changes if it is there already. Raises NotFound."""
    with loop.changes.lock(study):
        current = loop.store.studies.get(study)
        if current.phase is not phase:
            why = change.why or f"{phase} by {change.who}"
            moved = current.moved(phase)
            loop.changes.abort(current, why)
            revise(loop, moved, change.who, why)
