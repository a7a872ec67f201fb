"""Long polls: requests that are answered once there is news. A waiting client costs almost nothing.

The application answers at once, and may request to be called again once there is news. Meanwhile only the
request's body and its answer so far are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.study.news import News

LEAVING_S = 0.25
"""Seconds between two checks of whether the server is about to end."""
RECALL = "recall"


class Why(Enum):
    """The reason why a wait ended."""

    NEWS = auto()
    TIME = auto()
    GONE = auto()
    """The client disconnected."""


@dataclass(frozen=True, slots=True)
class Recall:
    """A request to be called again once there is news of a device after a mark, or after `look_again_s`.

    It ends after `wait_s` seconds. `on_disconnect` is called if the client disconnects.
    """

    device: str
    mark: int
    wait_s: float
    look_again_s: float
    on_disconnect: Callable[[], None]


def ask_again(request: Request, recall: Recall) -> None:
    """Let an answered request wait for news; the client gets the last answer."""
    setattr(request.state, RECALL, recall)


class Waiters:
    """Wakes the requests that wait for a device's news, and all of them when the server is about to end."""

    def __init__(self, news: News, leaving: Callable[[], bool]) -> None:
        self._news, self._leaving = news, leaving
        self.over = False
        self.at_end: list[Callable[[], None]] = [news.tell_all]

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[None]:
        """Check in the background, within the context, whether the server is about to end."""
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def _watch(self) -> None:
        """Wait until the server is about to end, then call the functions in `at_end`."""
        while not self._leaving():
            await asyncio.sleep(LEAVING_S)
        self.over = True
        for tell in self.at_end:
            tell()

    async def for_news(self, receive: Receive, recall: Recall, seconds: float) -> Why:
        """Wait for news, at most `seconds`, or until the client disconnects; return which it was."""
        running = asyncio.get_running_loop()
        why, over = Why.TIME, False
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds) as waiting:

                def wake() -> None:
                    nonlocal why
                    if not (over or waiting.expired()):
                        why = Why.NEWS
                        waiting.reschedule(running.time())

                def news() -> None:
                    running.call_soon_threadsafe(wake)

                end = self._news.wait(recall.device, recall.mark, news)
                try:
                    await _hung_up(receive)
                    why = Why.GONE
                finally:
                    over = True  # news that arrives later has no receiver
                    end()
        return why


class LongPoll:
    """Calls the application again once there is news, for requests that wait; others pass. Plain ASGI."""

    def __init__(self, app: ASGIApp, waiting: Waiters) -> None:
        self._app, self._waiting = app, waiting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, at once or once there is news."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        now = asyncio.get_running_loop().time
        body, until = Replayed(receive), 0.0
        while True:
            state: dict[str, object] = {**scope.get("state", {})}
            answer: list[Message] = []
            await self._app({**scope, "state": state}, body.again(), _into(answer, state, send))
            recall = state.get(RECALL)
            if not isinstance(recall, Recall):
                return
            until = until or now() + recall.wait_s
            left, why = until - now(), Why.TIME
            if left > 0.0 and not self._waiting.over:
                why = await self._waiting.for_news(receive, recall, min(left, recall.look_again_s))
            if why is Why.GONE:
                recall.on_disconnect()
                return
            if self._waiting.over or until - now() <= 0.0:
                break
        for message in answer:
            await send(message)


class Replayed:
    """A request's body that can be received any number of times."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._received: list[Message] = []

    def again(self) -> Receive:
        """Return a `receive` that starts at the beginning of the body."""
        remaining = iter(tuple(self._received))

        async def receive() -> Message:
            message = next(remaining, None)
            if message is None:
                message = await self._receive()
                if message["type"] == "http.request":
                    self._received.append(message)
            return message

        return receive


def _into(answer: list[Message], state: dict[str, object], send: Send) -> Send:
    """Return a `send` that stores the answer of a waiting request, and sends every other answer."""

    async def take(message: Message) -> None:
        if RECALL in state:
            answer.append(message)
        else:
            await send(message)

    return take


async def _hung_up(receive: Receive) -> None:
    """Return once the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
