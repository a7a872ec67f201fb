"""How many agents' requests are worked on at once, and who is told to come again later.

A fleet that comes back at once asks more than a tuner can answer in the time that its agents wait: they
would give up, ask again, and all work would be done for nobody.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.core import Busy, Caller
from tuner.service.gate import refused
from tuner.service.waiting import RECALLED

AT_ONCE = 8
"""So many are worked on: more of them wait for each other, and let the event loop wait for all."""
MOST_WAITING = 100
"""So many wait for their turn: well within the 10 s in which an agent wants its answer."""
MOST_AGAIN_S = 60.0
"""Nobody is sent away for longer; agents do not heed more."""
OF_TRIALS = "/v1/trials/"
FIRST_S = 0.02
"""How long a request takes, as long as that has not been seen."""
WEIGHT = 0.02
"""Of the latest request, in how long one takes."""


class Turns:
    """Gives agents' requests their turns; those that are too many get 503 and when to come again.

    Each is told another time, as many a second as can be worked on. What a running trial hangs on, and
    requests that are asked again at news, wait however many there are. Plain ASGI, within the gate.
    """

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic) -> None:
        self._app, self._clock = app, clock
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        self._takes_s = FIRST_S
        self._next_s = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, in its turn where it is an agent's."""
        if scope["type"] != "http" or not _is_agents(scope):
            await self._app(scope, receive, send)
            return
        if self._waiting >= MOST_WAITING and not _is_due(scope):
            await refused(self._busy())(scope, receive, send)
            return
        receive = await _received(receive)  # a slow sender must not have a turn meanwhile
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        began = self._clock()
        try:
            await self._app(scope, receive, send)
        finally:
            self._turns.release()
            self._takes_s += WEIGHT * (self._clock() - began - self._takes_s)

    def _busy(self) -> Busy:
        now, apart_s = self._clock(), self._takes_s / AT_ONCE
        first = now + MOST_WAITING * apart_s
        self._next_s = max(self._next_s + apart_s, first)
        if self._next_s > now + MOST_AGAIN_S:  # from the beginning: then some are sent away again
            self._next_s = first
        again_s = math.ceil(self._next_s - now)
        return Busy(
            "more agents ask than the tuner can answer",
            hint=f"ask again in {again_s} s",
            again_s=again_s,
        )


def _is_agents(scope: Scope) -> bool:
    caller: Caller | None = getattr(Request(scope).state, "caller", None)
    return caller is not None and caller.machine


def _is_due(scope: Scope) -> bool:
    """Return whether a request is one of the few that must not be sent away."""
    return scope["path"].startswith(OF_TRIALS) or RECALLED in scope.get("state", {})


async def _received(receive: Receive) -> Receive:
    """Wait for the whole of a request; return what receives it once more, and then what follows."""
    messages: list[Message] = []
    while not messages or messages[-1].get("more_body"):
        messages.append(await receive())
    known = iter(messages)

    async def again() -> Message:
        return next(known, None) or await receive()

    return again
