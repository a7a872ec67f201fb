"""Reports that a tuner is alive: to the other tuners of its database, to systemd and to HTTP clients."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import math
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

import psutil
from starlette.concurrency import run_in_threadpool

from tuner.core import StoreError, TunerReplica
from tuner.notify import notify
from tuner.study.loop import Loop

log = logging.getLogger(__name__)

TELL_S = 10
"""Seconds between two reports of a tuner."""
SILENT = timedelta(seconds=45)
"""A tuner without a report for this long has ended, or does not reach the database."""
FORGOTTEN = timedelta(hours=1)
FRESH_S = 2.0
"""How long the result of a write check is valid, in seconds."""
PATIENCE_S = 3.0
"""How long a client waits for the store before it gets "not ready", in seconds."""


def mark_of(token: str) -> str:
    """Return a mark that differs for different token files: 16 bits, too few to guess a token by."""
    return hmac.new(token.encode(), b"jouletune replica", hashlib.sha256).hexdigest()[:4]


@dataclass(frozen=True)
class Roll:
    """Reports this tuner to the other tuners of its database."""

    loop: Loop
    host: str
    version: str
    token: str
    process: psutil.Process = field(default_factory=psutil.Process)
    id: str = field(default_factory=lambda: secrets.token_hex(4))
    _began: list[TunerReplica] = field(default_factory=list, repr=False)

    def tell(self) -> None:
        """Store this tuner's report. Raises StoreError."""
        store, now = self.loop.store, self.loop.now()
        replica = TunerReplica(
            id=self.id,
            host=self.host,
            version=self.version,
            started_at=self._began[0].started_at if self._began else now,
            seen_at=now,
            leads=store.bus.leads(),
            bus_lag_s=store.bus.lag_s(),
            agents=self.loop.presence.protocols(),
            token_mark=mark_of(self.token),
            cpu_s=sum(self.process.cpu_times()[:2]),
            memory_bytes=self.process.memory_info().rss,
        )
        store.replicas.tell(replica)
        if not self._began:
            self._began.append(replica)
            self._warn(replica)

    def _warn(self, own: TunerReplica) -> None:
        """Log each live tuner of the database that has a different token file."""
        others = [r for r in self.loop.store.replicas.list() if r.id != own.id]
        for other in others:
            if own.seen_at - other.seen_at < SILENT and other.token_mark != own.token_mark:
                log.warning(
                    "event=other_token the tuner %s on %s has a different token file, "
                    "so an admin's token works on one replica only; copy the file to both",
                    other.id,
                    other.host,
                )


class Watchdog:
    """Notifies systemd that the tuner works: its event loop turns, and its worker threads return.

    `ping` runs in a thread of the pool that serves requests. A refusal of the database counts as an
    answer: a restart of the tuner would not help.
    """

    def __init__(self, ping: Callable[[], None]) -> None:
        self._ping = ping
        self._probe: asyncio.Task[None] | None = None

    async def tell(self) -> None:
        """Notify systemd, unless the last ping has not returned, and start the next ping."""
        if self._probe is not None and not self._probe.done():
            log.warning(
                "event=no_ping the database has not answered, so systemd gets no watchdog ping"
            )
            return
        notify("READY=1\nWATCHDOG=1")
        self._probe = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        """Ping the database in a worker thread; its refusal is an answer, too."""
        with suppress(StoreError):
            await run_in_threadpool(self._ping)


class Readiness:
    """Whether the store takes writes: with a full disk it answers reads and stores nothing.

    `check` writes to the store. It runs once at a time and at most every `FRESH_S`, for any number of
    clients: these need no token.
    """

    def __init__(
        self,
        check: Callable[[], None],
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._check, self._patience_s, self._clock = check, patience_s, clock
        self._probe: asyncio.Task[StoreError | None] | None = None
        self._probed_s = -math.inf

    async def prove(self) -> None:
        """Return once the store has taken a write. Raises StoreError, with the reason, if it has not."""
        probe = self._probe
        if probe is None or (probe.done() and self._clock() - self._probed_s >= FRESH_S):
            probe = self._probe = asyncio.create_task(self._ask())
            self._probed_s = self._clock()
        if not probe.done():
            await asyncio.wait({probe}, timeout=self._patience_s)
        if not probe.done():
            raise StoreError(
                f"the database has not taken a write for {self._clock() - self._probed_s:.0f} s",
                hint="check its log, its locks and its disk",
            )
        if refused := probe.result():
            raise StoreError(refused.message, hint=refused.hint)

    async def _ask(self) -> StoreError | None:
        """Return the error of a write check, None if it succeeded."""
        try:
            await run_in_threadpool(self._check)
        except StoreError as error:
            return error
        return None
