"""The objects that all device loops of a process share, and a loop's state for other threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from agents.holding.journal import Journal
from agents.host.machine import Host
from agents.tuner_link.client import TunerClient
from agents.tuner_link.lease import LeaseKeeper
from tuner.core import Applied, Clock, Now


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The objects that all device loops of a process share. Setting `stop` ends every loop.

    `start` is a random word for each start of the process. With it the tuner distinguishes a repeated
    request from a request after a crash.
    """

    link: TunerClient
    journal: Journal
    host: Host
    clock: Clock
    now: Now
    stop: threading.Event
    start: str


@dataclass
class LoopStatus:
    """The state of a device's loop, for other threads.

    `applied` is the last setting that the loop saw in force, `heard_at` the time of the tuner's last
    answer, and `lease` that of the current trial.
    """

    applied: Applied | None = None
    heard_at: datetime | None = None
    lease: LeaseKeeper | None = None

    @contextmanager
    def leased(self, lease: LeaseKeeper) -> Iterator[None]:
        """Show a lease within the block."""
        self.lease = lease
        try:
            yield
        finally:
            self.lease = None
