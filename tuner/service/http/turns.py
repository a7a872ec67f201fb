"""Bounds on agents' requests: the number that runs concurrently, and the retry time of refused agents.

If a whole fleet reconnects together, the tuner cannot answer all requests before the agents time out: they
would retry, and the work on their first requests would be lost.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from tuner.core import Busy, Caller
from tuner.service.http.gate import refused
from tuner.study.presence import MOST_AGAIN_S

AT_ONCE = 8
"""The most concurrent requests. More would wait for each other and slow the event loop for all."""
MOST_WAITING = 100
"""The most requests that wait for a turn: well within the 10 s after which an agent gives up."""
APART_S = 0.02
"""Seconds between two finished requests, until this is measured."""
WEIGHT = 0.02
"""The weight of the latest request in the measured time between finished requests."""
HOLDS = "/v1/holds/report"
SHARE = 0.5
"""The share of capacity that is given to refused agents; the rest is for first requests."""


class Queue:
    """The requests that wait for a turn, the rate of turns, and the times at which refused ones retry."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        self._apart_s = APART_S
        self._done_s = clock()
        self._next_s = 0.0

    @property
    def full(self) -> bool:
        """Whether the queue has no room for a further request."""
        return self._waiting >= MOST_WAITING

    async def turn(self) -> None:
        """Wait for a turn; the caller ends it with `done`."""
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1

    def done(self) -> None:
        """End a turn, and update the time between finished requests."""
        now = self._clock()
        if self._waiting:  # otherwise requests only end as far apart as they arrived
            self._apart_s += WEIGHT * (now - self._done_s - self._apart_s)
        self._done_s = now
        self._turns.release()

    def busy(self) -> Busy:
        """Return the refusal of a request, with its time to retry."""
        again_s = self.again_s()
        return Busy(
            "the tuner is overloaded by requests of agents",
            hint=f"retry in {again_s} s",
            again_s=again_s,
        )

    def again_s(self) -> int:
        """Return the seconds after which a refused client may retry; each client gets another time."""
        now, apart_s = self._clock(), self._apart_s / SHARE
        first = now + MOST_WAITING * apart_s
        self._next_s = max(self._next_s + apart_s, first)
        if self._next_s > now + MOST_AGAIN_S:  # start over: some of these are then refused again
            self._next_s = first
        return math.ceil(min(self._next_s - now, MOST_AGAIN_S))


class SendAway:
    """Answers agents with 503 and a time to retry while too many requests wait.

    `note` is called for each of them. Requests on which a running trial depends are never refused, nor
    are long polls that are called again. Plain ASGI, outside all other layers.
    """

    def __init__(self, app: ASGIApp, queue: Queue, note: Callable[[], None]) -> None:
        self._app, self._queue, self._note = app, queue, note

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if not self._queue.full or scope["type"] != "http" or not _can_wait(scope):
            await self._app(scope, receive, send)
            return
        self._note()
        await refused(self._queue.busy())(scope, receive, send)


class Turns:
    """Gives agents' requests their turns; all other requests pass.

    Plain ASGI, inside the gate, which has received the whole body: a slow sender never has a turn.
    """

    def __init__(self, app: ASGIApp, queue: Queue) -> None:
        self._app, self._queue = app, queue

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, in its turn if it is an agent's."""
        if scope["type"] != "http" or not _takes_turns(scope):
            await self._app(scope, receive, send)
            return
        await self._queue.turn()
        try:
            await self._app(scope, receive, send)
        finally:
            self._queue.done()


def _can_wait(scope: Scope) -> bool:
    """Return whether a request may be refused: an agent's registration, poll or report of a hold."""
    method: str = scope["method"]
    path: str = scope["path"]
    of_device = path.startswith("/v1/devices/")
    return (method == "PUT" and of_device) or (
        method == "POST" and (path == HOLDS or (of_device and path.endswith("/next")))
    )


def _takes_turns(scope: Scope) -> bool:
    """Return whether a request needs a turn: an agent's, except reports of holds, which are batched."""
    caller: Caller | None = getattr(Request(scope).state, "caller", None)
    return caller is not None and caller.machine and scope["path"] != HOLDS
