"""Whether the tuner is alive, for systemd's watchdog, and ready, for HTTP clients."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress

from starlette.concurrency import run_in_threadpool

from tuner.core import StoreError
from tuner.notify import notify

log = logging.getLogger(__name__)


class Watchdog:
    """Tells systemd that the tuner works: its event loop turns, and its worker threads come back.

    `ping` runs in one of the threads that requests run in. A database that refuses has answered,
    too: a restart of the tuner would not help.
    """

    def __init__(self, ping: Callable[[], None]) -> None:
        self._ping = ping
        self._probe: asyncio.Task[None] | None = None

    async def tell(self) -> None:
        """Say so, unless the ping of last time is still out, and ask again."""
        if self._probe is not None and not self._probe.done():
            log.warning(
                "event=no_ping the database has not answered, so systemd gets no watchdog ping"
            )
            return
        notify("READY=1\nWATCHDOG=1")
        self._probe = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        with suppress(StoreError):
            await run_in_threadpool(self._ping)


FRESH_S = 2.0
"""How long it is believed that the store took a write, or did not."""
PATIENCE_S = 3.0
"""How long a client waits for the store before it gets "not ready"."""


class Readiness:
    """Whether the store takes writes: a full disk answers every question, and keeps nothing.

    `check` writes something. It runs once at a time and every `FRESH_S` at most, however many ask:
    its clients have no token.
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
        """Return quietly when the store takes writes. Raises StoreError: says why not."""
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
        try:
            await run_in_threadpool(self._check)
        except StoreError as error:
            return error
        return None
