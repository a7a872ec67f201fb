"""The operator's log as it grows, for any number of followers: server-sent events.

The format and `Last-Event-ID` are those of https://html.spec.whatwg.org/#server-sent-events. A follower is
a place in one list of the latest entries, not a queue of its own: a client that does not read takes no
memory, and continues from the database where the list has moved on meanwhile.
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

from tuner.core import Event, Events, Notice, Now, RateLimited, StoreError, Topic

log = logging.getLogger(__name__)

T = TypeVar("T")

KEPT = 1_000
"""The given number of the latest entries are kept for followers that are a little behind."""
PAGE = 200
SILENT_S = 15.0
"""After so long without an event a comment is sent: proxies drop connections that say nothing."""
AGAIN_S = 2.0
CHANGED = "changed"
"""A study moved, or a trial of it began or ended: its reader requests it again. It has no id."""
NAMED = re.compile(rb"^event: .*\n", re.MULTILINE)
STREAM_AGAIN_S = 30.0
MOST_STREAMS, MOST_OF_CALLER = 512, 32
RETRY_MS = 2_000
"""When a browser that was dropped comes again."""


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """One entry of the feed as it is sent. `id` is the event's; 0 where nothing is to be caught up."""

    id: int
    study: str
    device: str
    text: bytes


@dataclass(frozen=True, slots=True)
class EventFilter:
    """What a follower wants: of one study or device, or all."""

    study: str | None = None
    device: str | None = None

    def takes(self, entry: FeedEntry) -> bool:
        """Return whether an entry is wanted."""
        return self.study in (None, entry.study) and self.device in (None, entry.device)


class StreamPlaces:
    """How many streams may be open, so that connections are left to health and agents. Of one event loop.

    One caller has a quarter of them at most, and never more than `MOST_OF_CALLER`.
    """

    def __init__(self, most: int) -> None:
        self._most = max(1, min(most, MOST_STREAMS))
        self._per_caller = max(1, min(self._most // 4, MOST_OF_CALLER))
        self._taken: Counter[str] = Counter()

    @contextmanager
    def taken(self, caller: str) -> Iterator[None]:
        """Have a place as long as the context lasts. Raises RateLimited: there is none."""
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
    """What followers get: every event once, by its id; and now and then that a study has changed.

    `over` says that the server is about to end. To be used in one event loop, but for `on_notice`.
    """

    def __init__(self, events: Events, now: Now, over: Callable[[], bool]) -> None:
        self._events, self._now, self._over = events, now, over
        self._entries: deque[FeedEntry] = deque(maxlen=KEPT)
        self._count = 0
        """How many entries there ever were: the place of an entry is its number among them."""
        self._read_to = 0
        self._changed: set[str] = set()
        self._new, self._begun = asyncio.Event(), asyncio.Event()
        self._followers: set[asyncio.Event] = set()
        self._running: asyncio.AbstractEventLoop | None = None
        self._reading: asyncio.Task[None] | None = None

    def on_notice(self, notice: Notice) -> None:
        """Look for what is new, if anybody follows. From any thread."""
        running = self._running
        if running is not None and not running.is_closed():
            running.call_soon_threadsafe(self._note, notice)

    def _note(self, notice: Notice) -> None:
        if notice.topic is Topic.ORDERS and notice.study:
            self._changed.add(notice.study)
        self._new.set()

    def wake(self) -> None:
        """Have every follower look."""
        for follower in self._followers:
            follower.set()

    async def follow(self, event_filter: EventFilter, after: int | None) -> AsyncIterator[bytes]:
        """Give what comes after an event, or else from now on, until the server ends."""
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
                    page = await run_in_threadpool(
                        self._events.after, at, PAGE, event_filter.study, event_filter.device
                    )
                    last = page[-1].id if page else at
                    # At once: the list moves on while the follower takes its time over the page.
                    place = None if len(page) == PAGE else self._place_after(last)
                    for event in page:
                        yield _entry(event).text
                    at = last
                    continue
                entries = self._from(place)
                place += len(entries)
                for entry in entries:
                    if event_filter.takes(entry) and not 0 < entry.id <= at:
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
        skipped = place - (self._count - len(self._entries))
        return list(islice(self._entries, skipped, skipped + PAGE))

    def _start(self) -> asyncio.Event:
        """Begin to read the log, with its first follower; return the event that is set when it is read."""
        if self._reading is None:
            self._running = asyncio.get_running_loop()
            self._new, self._begun = asyncio.Event(), asyncio.Event()
            self._entries.clear()
            self._reading = asyncio.create_task(self._read())
        return self._begun

    def _stop_if_idle(self) -> None:
        if not self._followers and self._reading is not None:
            self._reading.cancel()
            self._reading = self._running = None

    async def _read(self) -> None:
        """Append what is new, and wake the followers; a missing database is queried again."""
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
        while True:
            try:
                return await run_in_threadpool(question, *given)
            except StoreError as error:
                log.warning("event=feed_waits %s", error)
                await asyncio.sleep(AGAIN_S)


async def unnamed(entries: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Give entries without the line that names their kind."""
    async for entry in entries:
        yield NAMED.sub(b"", entry)


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True


def _entry(event: Event) -> FeedEntry:
    text = f"id: {event.id}\n{_sent(event)}"
    return FeedEntry(event.id, event.study, event.device, text.encode())


def _sent(event: Event) -> str:
    data = json.dumps({**asdict(event), "at": event.at.isoformat()})
    kind = event.kind.replace("\n", " ")
    return f"event: {kind}\ndata: {data}\n\n"


def _change(study: str, at: datetime) -> FeedEntry:
    changed = Event(at=at, kind=CHANGED, text="", study=study)
    return FeedEntry(0, study, "", _sent(changed).encode())
