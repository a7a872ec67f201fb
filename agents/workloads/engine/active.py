"""The active server of an engine, and its replacement by another one without losing a request."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from agents.workloads.engine.figures import SpeculationCounters
from agents.workloads.engine.live import changed_live
from agents.workloads.engine.server import EngineServer
from tuner.core import ActuationError, DeviceLost, MeasurementError, Setting, TuningError

log = logging.getLogger(__name__)

DRAIN_S = 120.0
"""Time in s that a change waits for the remaining requests of the server before last."""
RETRY_S = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Delays in s before further attempts to restart a server that has ended."""

WAIT_S, ALONE_S = 60.0, 900.0
"""Time in s that a request waits for a server: during a restart, and where each change takes one."""

StartServer = Callable[[Setting], Awaitable[EngineServer]]


class ActivePassive:
    """One active server; during a change a second, which takes over once it is ready and checked.

    The former server gets no new request, finishes those it has, and is then ended; if the two do not fit
    `beside` each other, this comes first, and new requests wait. A server that ends unexpectedly is
    restarted at the same setting; requests wait for it.
    """

    def __init__(self, start: StartServer, *, beside: bool = True) -> None:
        self._start, self._beside = start, beside
        self.active: EngineServer | None = None
        """The active server; None during a start or restart."""
        self._ready = asyncio.Condition()
        self._changing = asyncio.Lock()
        self._former: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._ended = SpeculationCounters()
        self._gone_cpu_s = 0.0
        self._draining: EngineServer | None = None
        self.switches = 0
        self.restarts = 0
        self.switch_s = 0.0
        """Duration in s of the last change, until the new server was active."""

    async def acquire(
        self, within_s: float | None = None, other_than: EngineServer | None = None
    ) -> EngineServer:
        """Return the active server, waiting for it. Raises DeviceLost: none is active in time."""

        def is_ready() -> bool:
            return self.active is not None and self.active is not other_than

        def left_s() -> float:
            usual_s = WAIT_S if self._beside or self.active is not None else ALONE_S
            return since_s + (usual_s if within_s is None else within_s) - now()

        now = asyncio.get_running_loop().time
        since_s = now()
        # Between the end of a wait and this task's turn another change may begin.
        while not is_ready() and left_s() > 0.0:
            async with self._ready:
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._ready.wait_for(is_ready), left_s())
        if self.active is None:
            raise DeviceLost(
                "no server of the engine is ready", hint="it is restarting; check its log"
            )
        return self.active

    async def change(self, setting: Setting) -> None:
        """Replace the server with one at another setting.

        Raises:
            ActuationError, DeviceLost: it does not start, or its setting has no effect; the former
                server stays active, or is started again.
        """
        async with self._changing:
            active = self.active
            if active is not None and (
                active.setting == setting or await changed_live(active, setting)
            ):
                return
            await self._two_at_most()
            began = time.monotonic()
            former = self.active
            if former is not None and not self._beside:
                await self._make_room(former)
            try:
                fresh = await self._start(setting)
            except Exception:
                if former is not None and not self._beside:
                    self._watch = asyncio.create_task(self._start_again(former.setting))
                raise
            if self._beside:
                self._draining = former
            await self._activate(fresh)
            self.switch_s = time.monotonic() - began
            if former is not None:
                self.switches += 1
                if self._beside:
                    self._former = asyncio.create_task(self._retire(former))

    async def counters(self) -> SpeculationCounters:
        """Return the sum of the counters of all servers so far. Raises MeasurementError."""
        total, active = self._ended, self.active
        if self._draining is not None:
            total = total.plus(self._draining.last_counters)
        if active is None:
            return total
        async with active.serving():
            return total.plus(await active.counters())

    def cpu_s(self) -> float:
        """Return the CPU seconds of all servers so far."""
        servers = (self.active, self._draining)
        return self._gone_cpu_s + sum(one.cpu_s() for one in servers if one is not None)

    @property
    def pids(self) -> list[int]:
        """The processes of the servers that the proxy started."""
        servers = (self.active, self._draining)
        return [s.process.pid for s in servers if s is not None and s.process is not None]

    async def close(self) -> None:
        """End all servers, with their requests."""
        tasks = [task for task in (self._watch, self._former) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in (self.active, self._draining):
            if server is not None:
                await server.end()
        self.active = self._draining = None

    async def _make_room(self, server: EngineServer) -> None:
        """End the active server once its requests are finished. Raises ActuationError."""
        if self._watch is not None:
            self._watch.cancel()
        self._draining, self.active = server, None
        try:
            await asyncio.wait_for(server.wait_idle(), DRAIN_S)
        except asyncio.TimeoutError:
            self._draining = None
            await self._activate(server)
            raise ActuationError(
                f"the engine still has {server.inside} requests after {DRAIN_S:g} s",
                hint="retry when they are answered",
            ) from None
        await self._retire(server)

    async def _two_at_most(self) -> None:
        """Wait for the server before the active one to finish. Raises ActuationError."""
        if self._former is None:
            return
        done, _ = await asyncio.wait({self._former}, timeout=DRAIN_S)
        if not done:
            waiting = self._draining.inside if self._draining is not None else 0
            raise ActuationError(
                f"the former server still has {waiting} requests after {DRAIN_S:g} s",
                hint="retry when they are answered",
            )

    async def _activate(self, server: EngineServer) -> None:
        """Make a server the active one, and watch it if the proxy started it."""
        if self._watch is not None:
            self._watch.cancel()
        async with self._ready:
            self.active = server
            self._ready.notify_all()
        if server.process is not None:
            self._watch = asyncio.create_task(self._keep_up(server))

    async def _retire(self, server: EngineServer) -> None:
        """End a server once its requests are finished."""
        await server.wait_idle()
        with suppress(MeasurementError):
            await server.counters()
        self._account(server)
        self._draining = None
        await server.end()

    def _account(self, server: EngineServer) -> None:
        """Add a server's counters to the totals before it ends."""
        self._ended = self._ended.plus(server.last_counters)
        self._gone_cpu_s += server.cpu_s()

    async def _keep_up(self, server: EngineServer) -> None:
        """Restart a server whenever it has ended unexpectedly, without a time limit."""
        assert server.process is not None
        status = await server.process.wait()
        log.error("event=server_ended url=%s status=%d", server.url, status)
        self._account(server)
        self.active = None
        await server.end()
        await self._start_again(server.setting)

    async def _start_again(self, setting: Setting) -> None:
        """Start a server at a setting, without a time limit; requests wait for it."""
        for attempt in itertools.count():
            async with self._changing:
                try:
                    fresh = await self._start(setting)
                except TuningError as error:
                    wait_s = RETRY_S[min(attempt, len(RETRY_S) - 1)]
                    log.error("event=not_restarted why=%r again_in_s=%g", str(error), wait_s)
                else:
                    self.restarts += 1
                    self._watch = None  # which is the current task
                    await self._activate(fresh)
                    return
            await asyncio.sleep(wait_s)
