"""How many agents' requests are worked on at once, and which must retry later.

A fleet that comes back at once asks more than a tuner can answer in the time that its agents wait: they
would give up, retry, and all work would be lost.
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
"""How many are worked on: more of them wait for each other, and let the event loop wait for all."""
MOST_WAITING = 100
"""How many wait for their turn: well within the 10 s in which an agent wants its answer."""
APART_S = 0.02
"""How long after one request the next is done, as long as that has not been seen."""
WEIGHT = 0.02
"""Of the latest request, in how far they are apart."""
HOLDS = "/v1/holds/report"
SHARE = 0.5
"""As much of what can be done is given to who was sent away; the rest asks for the first time."""


class Queue:
    """How many requests wait for their turn, how fast they get it, and when a refused one may retry."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        self._apart_s = APART_S
        self._done_s = clock()
        self._next_s = 0.0

    @property
    def full(self) -> bool:
        """Whether no other program should wait."""
        return self._waiting >= MOST_WAITING

    async def turn(self) -> None:
        """Wait for a turn, to be followed by `done`."""
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1

    def done(self) -> None:
        """End a turn."""
        now = self._clock()
        if self._waiting:  # else they keep the distance of their arrival
            self._apart_s += WEIGHT * (now - self._done_s - self._apart_s)
        self._done_s = now
        self._turns.release()

    def busy(self) -> Busy:
        """Return the refusal of a request."""
        again_s = self.again_s()
        return Busy(
            "the tuner is overloaded by requests of agents",
            hint=f"retry in {again_s} s",
            again_s=again_s,
        )

    def again_s(self) -> int:
        """Return after how many seconds a refused client may retry: each at another time."""
        now, apart_s = self._clock(), self._apart_s / SHARE
        first = now + MOST_WAITING * apart_s
        self._next_s = max(self._next_s + apart_s, first)
        if self._next_s > now + MOST_AGAIN_S:  # from the beginning: then some are sent away again
            self._next_s = first
        return math.ceil(min(self._next_s - now, MOST_AGAIN_S))


class SendAway:
    """Answers agents with 503 and when to come again while too many wait. Plain ASGI, before all else.

    `note` is called for each of them. They are none of those on which a running trial hangs, nor of
    those that wait for news and are repeated.
    """

    def __init__(self, app: ASGIApp, queue: Queue, note: Callable[[], None]) -> None:
        self._app, self._queue, self._note = app, queue, note

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or send it away."""
        if not self._queue.full or scope["type"] != "http" or not _can_wait(scope):
            await self._app(scope, receive, send)
            return
        self._note()
        await refused(self._queue.busy())(scope, receive, send)


class Turns:
    """Gives agents' requests their turns; all others pass.

    Plain ASGI, within the gate: that has received the whole body, so that no slow sender has a turn.
    """

    def __init__(self, app: ASGIApp, queue: Queue) -> None:
        self._app, self._queue = app, queue

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, in its turn where it is an agent's."""
        if scope["type"] != "http" or not _takes_turns(scope):
            await self._app(scope, receive, send)
            return
        await self._queue.turn()
        try:
            await self._app(scope, receive, send)
        finally:
            self._queue.done()


def _can_wait(scope: Scope) -> bool:
    """Return whether a request is an agent's that registers, asks what to do, or reports about a hold."""
    method: str = scope["method"]
    path: str = scope["path"]
    of_device = path.startswith("/v1/devices/")
    return (method == "PUT" and of_device) or (
        method == "POST" and (path == HOLDS or (of_device and path.endswith("/next")))
    )


def _takes_turns(scope: Scope) -> bool:
    """Return whether a request is an agent's and worked on by itself: of holds some are taken at once."""
    caller: Caller | None = getattr(Request(scope).state, "caller", None)
    return caller is not None and caller.machine and scope["path"] != HOLDS
