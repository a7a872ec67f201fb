"""The bus within one process: all there is where nothing is shared with another."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tuner.core import Notice

log = logging.getLogger(__name__)

Heard = Callable[[Notice], None]


class LocalBus:
    """Tells the subscribers of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscribers: tuple[Heard, ...] = ()

    def publish(self, notice: Notice) -> None:
        """Tell every subscriber, in the thread of whoever publishes; one that fails is logged."""
        for listener in self._subscribers:
            try:
                listener(notice)
            except Exception:  # what was stored is stored: its writer need not know of a listener
                log.exception("event=subscriber_failed")

    def subscribe(self, listener: Heard) -> Callable[[], None]:
        """Have `heard` called with every notice; return what ends that."""
        with self._lock:
            self._subscribers = (*self._subscribers, listener)

        def end() -> None:
            with self._lock:
                self._subscribers = tuple(s for s in self._subscribers if s is not listener)

        return end

    def listen(self) -> None:
        """Do nothing: there is no other process."""

    def leads(self) -> bool:
        """Return that it does: there is no other."""
        return True

    def lag_s(self) -> float | None:
        """Return nothing: no other process is heard."""
        return None
