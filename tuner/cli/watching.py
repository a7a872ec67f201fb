"""Lists that are redrawn after every change: `--watch`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from queue import Empty, Queue
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.output import console
from tuner.core import Event, TuningError

if TYPE_CHECKING:
    from tuner.verbs.table import Verbs
    from tuner.wire import StudyView

PACE_S = 1.0
"""The shortest time between two redraws."""
LOOK_S = 10.0
"""The longest time between two redraws: a device that goes offline sends no event."""

Watch = Annotated[bool, typer.Option("--watch", help="Redraw after every change, until Ctrl-C.")]


def looks(api: Verbs[StudyView], watch: bool, *, clear: bool = True) -> Iterator[None]:
    """Yield once, and with `watch` again after each change, on a cleared screen, without end."""
    yield
    if not watch:
        return
    screen, changes = console(), _changes(api)
    while True:
        _next(changes)
        time.sleep(PACE_S)
        while not changes.empty():
            _raised(changes.get())
        if clear and screen.is_terminal:
            screen.clear()
        yield


def _changes(api: Verbs[StudyView]) -> Queue[Event | Exception]:
    """Return a queue that a thread fills with every event, and at last with the error that ends it."""
    changes: Queue[Event | Exception] = Queue()
    following = api.follow()

    def follow() -> None:
        try:
            for event in following:
                changes.put(event)
        except TuningError as error:  # raised again by the waiting caller
            changes.put(error)

    Thread(target=follow, name="follow", daemon=True).start()
    return changes


def _next(changes: Queue[Event | Exception]) -> None:
    """Wait for the next change, at most `LOOK_S`."""
    try:
        _raised(changes.get(timeout=LOOK_S))
    except Empty:
        return


def _raised(change: Event | Exception) -> None:
    """Raise a change that is an error."""
    if isinstance(change, Exception):
        raise change
