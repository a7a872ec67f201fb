"""Every follower gets every event once, by its id, however slowly it reads, and resumes at its place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.builders import START
from tests.stores import memory_store
from tuner.core import Event, Notice, StoreError, Topic
from tuner.service.http import feed as feeds
from tuner.service.http.feed import CHANGED, KEPT, Feed


class Desk:
    """A store with a feed of its events."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.store, self.patch = memory_store(), patch
        self.over = False
        self.feed = Feed(self.store.events, lambda: START, lambda: self.over)
        self.store.bus.subscribe(self.feed.on_notice)

    def note(self, text: str, study: str = "s1", device: str = "") -> int:
        event = Event(at=START, kind="drift", text=text, study=study, device=device)
        return self.store.events.add(event).id

    def end(self) -> None:
        self.over = True
        self.feed.wake()


async def read(stream: AsyncIterator[bytes]) -> dict[str, Any]:
    """Return the next entry of a stream: its fields, with `data` decoded."""
    async for chunk in stream:
        lines = [line.split(": ", 1) for line in chunk.decode().splitlines() if line]
        entry: dict[str, Any] = dict(lines)
        if "data" in entry:
            return {**entry, "data": json.loads(entry["data"])}
    raise AssertionError("the stream has ended")


async def begun(desk: Desk, after: int | None = None, **only: str) -> AsyncIterator[bytes]:
    """Return a stream whose follower is registered in the feed."""
    stream = desk.feed.follow(after, **only)
    assert (await anext(stream)).startswith(b"retry: ")
    return stream


def played(play: Callable[[Desk], Awaitable[None]]) -> Callable[[pytest.MonkeyPatch], None]:
    """Make a test of a coroutine function, which gets a desk."""

    def test(monkeypatch: pytest.MonkeyPatch) -> None:
        async def within() -> None:
            await asyncio.wait_for(play(Desk(monkeypatch)), 60.0)

        asyncio.run(within())

    return test


@played
async def test_a_follower_gets_all_entries_from_now_on(desk: Desk) -> None:
    desk.note("before")
    stream = await begun(desk)
    following = asyncio.create_task(read(stream))
    await asyncio.sleep(0.05)
    number = desk.note("after", device="sim")
    entry = await following
    assert (entry["id"], entry["event"]) == (str(number), "drift")
    assert entry["data"]["text"] == "after"
    assert (entry["data"]["study"], entry["data"]["device"]) == ("s1", "sim")
    assert entry["data"]["at"] == START.isoformat()


@played
async def test_a_returning_follower_gets_missed_events_without_a_gap(desk: Desk) -> None:
    first = desk.note("seen")
    for n in range(450):  # more than two pages
        desk.note(f"missed {n}")
    stream = await begun(desk, after=first)
    texts = [(await read(stream))["data"]["text"] for _ in range(300)]
    for n in range(30):
        desk.note(f"new {n}")
    texts += [(await read(stream))["data"]["text"] for _ in range(180)]
    expected = [f"missed {n}" for n in range(450)] + [f"new {n}" for n in range(30)]
    assert texts == expected


@played
async def test_a_slow_reader_is_overtaken_and_misses_nothing(desk: Desk) -> None:
    desk.patch.setattr(feeds, "PAGE", 50)
    slow, quick = await begun(desk), await begun(desk)
    desk.note("0")
    assert [(await read(s))["data"]["text"] for s in (slow, quick)] == ["0", "0"]
    count = 3 * KEPT
    for n in range(1, count):
        desk.note(str(n))
        if n % 40 == 0:
            while (await read(quick))["data"]["text"] != str(n):
                pass
    texts = [(await read(slow))["data"]["text"] for _ in range(count - 1)]
    assert texts == [str(n) for n in range(1, count)]
    assert len(desk.feed._entries) <= KEPT


@played
async def test_a_filtered_follower_gets_no_other_study_or_device(desk: Desk) -> None:
    one = await begun(desk, after=0, study="s1")
    other = await begun(desk, after=0, device="b")
    for text, study, device in (("x", "s2", "a"), ("y", "s1", "a"), ("z", "s2", "b")):
        desk.note(text, study, device)
    assert (await read(one))["data"]["text"] == "y"
    assert (await read(other))["data"]["text"] == "z"


@played
async def test_a_changed_study_is_announced_without_an_id(desk: Desk) -> None:
    stream = await begun(desk)
    following = asyncio.create_task(read(stream))
    await asyncio.sleep(0.05)
    desk.store.bus.publish(Notice(Topic.ORDERS, "s1", ("sim",)))
    entry = await following
    assert (entry["event"], entry["data"]["study"]) == (CHANGED, "s1")
    assert "id" not in entry
    desk.note("then")
    assert (await read(stream))["data"]["text"] == "then"


@played
async def test_a_quiet_stream_sends_keep_alives(desk: Desk) -> None:
    desk.patch.setattr(feeds, "SILENT_S", 0.05)
    stream = await begun(desk)
    assert (await anext(stream)).startswith(b": ")


@played
async def test_a_stream_ends_with_its_server_and_leaves_nothing_behind(desk: Desk) -> None:
    stream = await begun(desk)
    asyncio.get_running_loop().call_later(0.05, desk.end)
    assert [chunk async for chunk in stream] == []
    desk.note("nobody follows")
    assert not desk.feed._followers


@played
async def test_an_absent_database_is_queried_again(desk: Desk) -> None:
    desk.patch.setattr(feeds, "AGAIN_S", 0.01)
    stream = await begun(desk)
    following = asyncio.create_task(read(stream))
    await asyncio.sleep(0.05)
    after, failed = desk.store.events.after, list[Any]()

    def away(*given: Any) -> Any:  # noqa: ANN401
        if len(failed) < 3:
            failed.append(given)
            raise StoreError("away")
        return after(*given)

    desk.patch.setattr(desk.store.events, "after", away)
    desk.note("kept")
    assert (await following)["data"]["text"] == "kept"
    assert len(failed) == 3


def test_a_second_event_loop_may_follow_the_same_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch)

    async def play() -> None:
        stream = await begun(desk)
        following = asyncio.create_task(read(stream))
        await asyncio.sleep(0.05)
        desk.note("x")
        assert (await following)["data"]["text"] == "x"
        await stream.aclose()  # type: ignore[attr-defined]

    for _ in range(2):
        asyncio.run(asyncio.wait_for(play(), 30.0))
