"""Pausing and stopping of studies: running trials end, devices return to their original settings."""

from __future__ import annotations

from tuner.core import Phase, Study, Unreadable
from tuner.service.constraining import revise
from tuner.study.loop import Loop
from tuner.study.stale import looking_again
from tuner.wire import Change


@looking_again
def halt(loop: Loop, study: str, phase: Phase, change: Change) -> None:
    """Move a study to PAUSED or STOPPED; nothing changes if it is there already.

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
