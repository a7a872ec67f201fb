"""The proxy's client of one running engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx2
import psutil

from agents.workloads.engine.child import EngineProcess
from agents.workloads.engine.figures import SpeculationCounters, counters_in
from tuner import http_clients
from tuner.core import ActuationError, DeviceLost, MeasurementError, Setting

ANSWER_S = 10.0
MOST_ANSWER_BYTES = 32 * 1024 * 1024
LOOK_S = 0.05
KEPT_S = 2.0
"""Lifetime in s of an idle connection: less than the 5 s after which the server's library closes it."""


class EngineServer:
    """An engine's server on loopback, with its `process` if the proxy started it.

    Raises DeviceLost if it does not answer, and ActuationError if its answer is not as documented.
    """

    def __init__(self, url: str, setting: Setting, process: EngineProcess | None = None) -> None:
        self.url = url
        self.setting = setting
        self.process = process
        # One connection per request, without a limit: the server itself queues requests above its
        # slots.
        self.client = http_clients.async_client(
            MOST_ANSWER_BYTES,
            ANSWER_S,
            base_url=url,
            timeout=ANSWER_S,
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=KEPT_S),
        )
        self.inside = 0
        """The number of requests in the server."""
        self._idle = asyncio.Event()
        self._idle.set()
        self.last_counters = SpeculationCounters()
        """The counters as last read."""
        self._cpu_s = 0.0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Keep the server from being ended within the block."""
        self.inside += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.inside -= 1
            if self.inside == 0:
                self._idle.set()

    async def wait_idle(self) -> None:
        """Wait until the server has no request."""
        await self._idle.wait()

    async def wait_ready(self, within_s: float) -> None:
        """Wait until it has loaded its models. Raises DeviceLost if it ends, or takes longer."""
        deadline = asyncio.get_running_loop().time() + within_s
        while True:
            if self.process is not None and self.process.ended:
                raise self.process.lost("ended before it was ready")
            try:
                if (await self.client.get("/health")).is_success:
                    return
            except httpx2.HTTPError:
                pass
            if asyncio.get_running_loop().time() > deadline:
                raise DeviceLost(
                    f"the engine at {self.url} is not ready after {within_s:g} s",
                    hint="see its log" if self.process is None else f"see {self.process.log}",
                )
            await asyncio.sleep(LOOK_S)

    async def counters(self) -> SpeculationCounters:
        """Return its counters since its start. Raises MeasurementError."""
        try:
            text = (await self.ask("GET", "/metrics")).text
        except ActuationError as error:
            raise MeasurementError(
                error.message, hint="start it with --metrics, or what shows its metrics"
            ) from None
        self.last_counters = counters_in(text, f"{self.url}/metrics")
        return self.last_counters

    def cpu_s(self) -> float:
        """Return the CPU seconds of its processes, vLLM's workers among them; after its end the last."""
        if self.process is not None:
            with suppress(psutil.Error):  # it has ended
                first = psutil.Process(self.process.pid)
                times = [one.cpu_times() for one in (first, *first.children(recursive=True))]
                self._cpu_s = max(self._cpu_s, sum(one.user + one.system for one in times))
        return self._cpu_s

    async def end(self) -> None:
        """Close the connections; end the server if the proxy started it."""
        self.cpu_s()
        await self.client.aclose()
        if self.process is not None:
            await self.process.end()

    async def ask(
        self, method: str, path: str, body: object = None, within_s: float = ANSWER_S
    ) -> httpx2.Response:
        """Send a request and return a successful response."""
        try:
            response = await self.client.request(
                method,
                path,
                json=body,
                timeout=within_s,
                extensions={http_clients.BODY_S: within_s},
            )
        except httpx2.TimeoutException:
            raise ActuationError(
                f"the engine at {self.url} did not answer {method} {path} within {within_s:g} s"
            ) from None
        except httpx2.HTTPError as error:
            raise DeviceLost(
                f"the engine at {self.url} does not answer: {error}",
                hint="check that it is running",
            ) from None
        if not response.is_success:
            raise ActuationError(
                f"the engine at {self.url} refused {method} {path} with HTTP "
                f"{response.status_code}: {response.text[:200]}"
            )
        return response
