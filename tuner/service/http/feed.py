"""The operator's log as server-sent events, for any number of followers.

The format and `Last-Event-ID` are those of https://html.spec.whatwg.org/#server-sent-events. A follower
is a place in one shared list of the latest entries, without a queue per follower: a client that does not
read takes no memory, and continues from the database if its entries have left the list.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

import db
from tuner.core import Event, Notice, Now, RateLimited, StoreError, Topic

log = logging.getLogger(__name__)

T = TypeVar("T")

KEPT = 1_000
"""The number of latest entries that are kept for followers that lag a little."""
PAGE = 200
SILENT_S = 15.0
"""After this many seconds without an event a comment is sent: proxies drop silent connections."""
AGAIN_S = 2.0
CHANGED = "changed"
"""The kind of an event without an id: a study changed, or one of its trials began or ended.

A reader then requests the study again.
"""
NAMED = re.compile(rb"^event: .*\n", re.MULTILINE)
STREAM_AGAIN_S = 30.0
MOST_STREAMS, MOST_OF_CALLER = 512, 32
RETRY_MS = 2_000
"""The time after which a disconnected browser reconnects, in milliseconds."""


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """One entry of the feed as it is sent.

    `id` is the event's; 0 for a changed study, which is not sent again after a lost connection.
    """

    id: int
    study: str
    device: str
    text: bytes


class StreamPlaces:
    """A bound on open streams, which leaves connections to health checks and agents.

    One caller has a quarter of the places at most, and never more than `MOST_OF_CALLER`. For use in one
    event loop.
    """

    def __init__(self, most: int) -> None:
        self._most = max(1, min(most, MOST_STREAMS))
        self._per_caller = max(1, min(self._most // 4, MOST_OF_CALLER))
        self._taken: Counter[str] = Counter()

    @contextmanager
    def taken(self, caller: str) -> Iterator[None]:
        """Take a place for the length of the context. Raises RateLimited: no place is free."""
        if self._taken[caller] >= self._per_caller:
            raise RateLimited(
                f"the token {caller} has {self._per_caller} event streams open",
                hint="close one, or use another token",
                again_s=STREAM_AGAIN_S,
            )
        if self._taken.total() >= self._most:
            raise RateLimited(
                f"{self._most} event streams are open",
                hint="poll GET /v1/events?after=ID instead",
                again_s=STREAM_AGAIN_S,
            )
        self._taken[caller] += 1
        try:
            yield
        finally:
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]


class Feed:
    """Sends followers every event once, by its id, and notices that a study has changed.

    `over` returns whether the server is about to end. For use in one event loop, except `on_notice`.
    """

    def __init__(self, events: db.Events, now: Now, over: Callable[[], bool]) -> None:
        self._events, self._now, self._over = events, now, over
        self._entries: deque[FeedEntry] = deque(maxlen=KEPT)
        self._count = 0
        """The number of entries ever added; the place of an entry is its number among them."""
        self._read_to = 0
        self._changed: set[str] = set()
        self._new, self._begun = asyncio.Event(), asyncio.Event()
        self._followers: set[asyncio.Event] = set()
        self._running: asyncio.AbstractEventLoop | None = None
        self._reading: asyncio.Task[None] | None = None

    def on_notice(self, notice: Notice) -> None:
        """Read new events if there is a follower. Safe from any thread."""
        running = self._running
        if running is not None and not running.is_closed():
            running.call_soon_threadsafe(self._note, notice)

    def _note(self, notice: Notice) -> None:
        """Note a changed study, and wake the reader of the log."""
        if notice.topic is Topic.ORDERS and notice.study:
            self._changed.add(notice.study)
        self._new.set()

    def wake(self) -> None:
        """Wake every follower."""
        for follower in self._followers:
            follower.set()

    async def follow(
        self, after: int | None, study: str | None = None, device: str | None = None
    ) -> AsyncIterator[bytes]:
        """Yield the entries after an event, or from now on, until the server ends.

        With `study` or `device`, yield only those of this study and this device.
        """
        new = asyncio.Event()
        self._followers.add(new)
        try:
            await self._start().wait()
            at = await run_in_threadpool(self._events.newest) if after is None else after
            place: int | None = None
            yield f"retry: {RETRY_MS}\n\n".encode()
            while not self._over():
                new.clear()
                if place is None or place < self._count - len(self._entries):
                    page = await run_in_threadpool(self._events.after, at, PAGE, study, device)
                    last = page[-1].id if page else at
                    # Before the page is sent: the list moves on while a slow follower reads the page.
                    place = None if len(page) == PAGE else self._place_after(last)
                    for event in page:
                        yield _entry(event).text
                    at = last
                    continue
                entries = self._from(place)
                place += len(entries)
                for entry in entries:
                    own = study in (None, entry.study) and device in (None, entry.device)
                    if own and not 0 < entry.id <= at:
                        at = entry.id or at
                        yield entry.text
                if not entries and not await _set_within(new, SILENT_S):
                    yield b": nothing new\n\n"
        finally:
            self._followers.discard(new)
            self._stop_if_idle()

    def _place_after(self, event: int) -> int:
        """Return the place of the first entry later than an event."""
        first = self._count - len(self._entries)
        later = (n for n, entry in enumerate(self._entries, first) if entry.id > event)
        return next(later, self._count)

    def _from(self, place: int) -> list[FeedEntry]:
        """Return the kept entries from a place on, at most `PAGE`."""
        skipped = place - (self._count - len(self._entries))
        return list(islice(self._entries, skipped, skipped + PAGE))

    def _start(self) -> asyncio.Event:
        """Start to read the log for the first follower; return the event that is set once it has begun."""
        if self._reading is None:
            self._running = asyncio.get_running_loop()
            self._new, self._begun = asyncio.Event(), asyncio.Event()
            self._entries.clear()
            self._reading = asyncio.create_task(self._read())
        return self._begun

    def _stop_if_idle(self) -> None:
        """Stop reading the log after the last follower has left."""
        if not self._followers and self._reading is not None:
            self._reading.cancel()
            self._reading = self._running = None

    async def _read(self) -> None:
        """Append new entries and wake the followers, without end; wait while the database is away."""
        self._read_to = await self._answer_of(self._events.newest)
        self._begun.set()
        while True:
            await self._new.wait()
            self._new.clear()
            changed, self._changed = self._changed, set()
            page = await self._answer_of(self._events.after, self._read_to, PAGE)
            self._read_to = page[-1].id if page else self._read_to
            if len(page) == PAGE:
                self._new.set()
            changes = (_change(study, self._now()) for study in sorted(changed))
            for entry in (*map(_entry, page), *changes):
                self._entries.append(entry)
                self._count += 1
            self.wake()

    async def _answer_of(self, question: Callable[..., T], *given: int) -> T:
        """Return the answer of the database, and retry until it answers."""
        while True:
            try:
                return await run_in_threadpool(question, *given)
            except StoreError as error:
                log.warning("event=feed_waits %s", error)
                await asyncio.sleep(AGAIN_S)


async def unnamed(entries: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield entries without the line that names their kind."""
    async for entry in entries:
        yield NAMED.sub(b"", entry)


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    """Return whether an event is set within some seconds."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True


def _entry(event: Event) -> FeedEntry:
    """Return the feed's entry of a stored event."""
    text = f"id: {event.id}\n{_sent(event)}"
    return FeedEntry(event.id, event.study, event.device, text.encode())


def _sent(event: Event) -> str:
    """Return the lines that name an event's kind and carry its data."""
    data = json.dumps({**asdict(event), "at": event.at.isoformat()})
    kind = event.kind.replace("\n", " ")
    return f"event: {kind}\ndata: {data}\n\n"


def _change(study: str, at: datetime) -> FeedEntry:
    """Return the entry for a changed study; it has no id."""
    changed = Event(at=at, kind=CHANGED, text="", study=study)
    return FeedEntry(0, study, "", _sent(changed).encode())
