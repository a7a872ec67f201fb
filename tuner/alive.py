"""The word to systemd's watchdog: given only while what is asked of the store comes back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from starlette.concurrency import run_in_threadpool

from tuner.core import StoreError
from tuner.notify import notify

log = logging.getLogger(__name__)


class Alive:
    """Tells systemd that the tuner works: its event loop turns, and its worker threads come back.

    `ping` is asked in one of the threads that requests run in. A database that refuses has answered,
    too: starting the tuner again would mend nothing.
    """

    def __init__(self, ping: Callable[[], None]) -> None:
        self._ping = ping
        self._asked: asyncio.Task[None] | None = None

    async def tell(self) -> None:
        """Say so, unless the ping of last time is still out, and ask again."""
        if self._asked is not None and not self._asked.done():
            log.warning("a ping of the database is still out: systemd is not told that we live")
            return
        notify("READY=1\nWATCHDOG=1")
        self._asked = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        with suppress(StoreError):
            await run_in_threadpool(self._ping)
