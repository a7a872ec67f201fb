"""What all device loops of a process share, and what of each is there to look at."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from agents.holding.journal import Journal
from agents.host.host import Host
from agents.tuner_link.client import TunerClient
from agents.tuner_link.lease import LeaseKeeper
from tuner.core import Applied, Clock, Now


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What all device loops of a process share. `stop` set ends them all.

    `start` is a new word at each start of the process: it distinguishes a question asked twice
    from one asked after a crash.
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
    """How a device's loop stands, for those who only look.

    `applied` is what the loop last knew to be in force, `heard_at` when the tuner last answered it,
    `lease` the one of the trial under way.
    """

    applied: Applied | None = None
    heard_at: datetime | None = None
    lease: LeaseKeeper | None = None

    @contextmanager
    def leased(self, lease: LeaseKeeper) -> Iterator[None]:
        """Have a lease within the block."""
        self.lease = lease
        try:
            yield
        finally:
            self.lease = None
