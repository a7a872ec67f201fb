"""Requests that wait: agents' for their turn, long polls for news, reports of holds for their batch."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.core import Busy, Caller, StoreError, TuningError
from tuner.service.access import Access
from tuner.service.http.gate import refused
from tuner.study.answers import News
from tuner.study.loop import Loop
from tuner.study.presence import MOST_AGAIN_S
from tuner.wire import HoldReport, Receipt

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
TOGETHER_S = 0.25
"""Reports within this many seconds are stored together; only the reporting agent waits."""
MOST_TOGETHER = 200
MOST_REPORTS = 5 * MOST_TOGETHER
"""The most reports that wait: after hours without a tuner each agent of a fleet has hundreds to send."""

CallerReport = tuple[Caller, HoldReport]


class Queue:
    """The requests that wait for a turn, the rate of turns, and the times at which refused ones retry.

    If a whole fleet reconnects together, the tuner cannot answer all requests before the agents time out:
    they would retry, and the work on their first requests would be lost.
    """

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


LEAVING_S = 0.25
"""Seconds between two checks of whether the server is about to end."""
RECALL = "recall"


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

    async def for_news(self, receive: Receive, recall: Recall, seconds: float) -> bool:
        """Wait for news, at most `seconds`; return whether the client disconnected meanwhile."""
        running = asyncio.get_running_loop()
        gone = over = False
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds) as waiting:

                def wake() -> None:
                    if not (over or waiting.expired()):
                        waiting.reschedule(running.time())

                def news() -> None:
                    running.call_soon_threadsafe(wake)

                end = self._news.wait(recall.device, recall.mark, news)
                try:
                    await _hung_up(receive)
                    gone = True
                finally:
                    over = True  # news that arrives later has no receiver
                    end()
        return gone


class LongPoll:
    """Calls the application again once there is news, for requests that wait; others pass. Plain ASGI.

    A waiting client costs almost nothing: only its body and the answer so far are kept meanwhile.
    """

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
            left, gone = until - now(), False
            if left > 0.0 and not self._waiting.over:
                gone = await self._waiting.for_news(receive, recall, min(left, recall.look_again_s))
            if gone:
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


log = logging.getLogger(__name__)


class HeldWindows:
    """Collects reports and passes them to the loop in a worker thread. For use in one event loop.

    A transaction for each report would dominate the tuner's work.

    `busy` returns the refusal for a client that must retry because too many reports wait.
    """

    def __init__(self, loop: Loop, access: Access, busy: Callable[[], Busy]) -> None:
        self._loop, self._access, self._busy = loop, access, busy
        self._waiting: list[tuple[CallerReport, asyncio.Future[Receipt]]] = []
        self._taking: asyncio.Task[None] | None = None

    async def report(self, caller: Caller, message: HoldReport) -> Receipt:
        """Return the receipt of a report once it is stored. Raises Busy, and the error of its refusal."""
        if len(self._waiting) >= MOST_REPORTS:
            raise self._busy()
        receipt: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting.append(((caller, message), receipt))
        if self._taking is None or self._taking.done():
            self._taking = asyncio.create_task(self._take())
        return await receipt

    async def _take(self) -> None:
        """Store the waiting reports, batch after batch, and answer their clients."""
        while self._waiting:
            if len(self._waiting) < MOST_TOGETHER:
                await asyncio.sleep(TOGETHER_S)
            some = self._waiting[:MOST_TOGETHER]
            del self._waiting[:MOST_TOGETHER]
            answers: Sequence[Receipt | Exception]
            try:
                answers = await run_in_threadpool(self._taken, [report for report, _ in some])
            except Exception as error:  # noqa: BLE001  the reporting client gets the error
                answers = [error] * len(some)
            for (_, receipt), answer in zip(some, answers, strict=True):
                if receipt.done():  # the client has disconnected
                    continue
                if isinstance(answer, Exception):
                    receipt.set_exception(answer)
                else:
                    receipt.set_result(answer)

    def _taken(self, reports: Sequence[CallerReport]) -> Sequence[Receipt | Exception]:
        """Store a batch; if a report makes it fail, store each report by itself. Raises StoreError."""
        try:
            return self._all(reports)
        except StoreError:
            raise
        except Exception as error:  # storing each report alone shows which one fails
            if len(reports) == 1:
                log.exception(
                    "event=hold_not_taken the hold reported by %s was rejected",
                    reports[0][1].device,
                )
                return [error]
            return [self._taken([one])[0] for one in reports]

    def _all(self, reports: Sequence[CallerReport]) -> Sequence[Receipt | TuningError]:
        """Store the reports of a batch whose callers own their devices, in one call."""
        refused = [self._refusal(caller, message.device) for caller, message in reports]
        own = [message for (_, message), no in zip(reports, refused, strict=True) if no is None]
        answers = iter(self._loop.hold_reports.observe_all(own))
        return [no or next(answers) for no in refused]

    def _refusal(self, caller: Caller, device: str) -> TuningError | None:
        """Return the refusal of a caller that does not own the device, else None."""
        try:
            self._access.require_own(caller, device)
        except TuningError as error:
            return error
        return None
