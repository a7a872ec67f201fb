"""A stream of events that breaks, stalls or has foreign content."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from types import SimpleNamespace

import httpx2
import pytest

from tests.builders import START
from tuner.client import AsyncClient, Client, asynchronous, blocking
from tuner.client.calls import Reader
from tuner.core import Event, Unauthorised


def sent(number: int, text: str = "x") -> str:
    data = {"at": START.isoformat(), "kind": "drift", "text": text, "id": number}
    return f"id: {number}\nevent: drift\ndata: {json.dumps(data)}\n\n"


class Broken(httpx2.SyncByteStream):
    """A stream that ends with an error."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __iter__(self) -> Iterator[bytes]:
        yield self._text.encode()
        raise httpx2.ReadError("gone")


def test_comments_and_foreign_keys_are_left_out() -> None:
    lines = f"retry: 2000\n\n: nothing new\n\n{sent(1)}data: {{}}\n\ndata: [1\n\n{sent(2, 'y')}"
    reader = Reader()
    events = [event for line in lines.split("\n") if (event := reader.read(line))]
    assert events == [
        Event(at=START, kind="drift", text="x"),
        Event(at=START, kind="drift", text="y"),
    ]
    assert [event.id for event in events] == [1, 2]


def test_after_a_lost_connection_it_goes_on_behind_the_last_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    last_ids: list[str | None] = []
    slept: list[float] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/v1/events":
            return httpx2.Response(200, json=[])
        last_ids.append(request.headers.get("last-event-id"))
        assert request.url.params["study"] == "s1"
        if len(last_ids) == 2:
            raise httpx2.ConnectError("down")
        number = {1: 7, 3: 8, 4: 9}[len(last_ids)]
        return httpx2.Response(200, stream=Broken(sent(number)))

    monkeypatch.setattr(blocking, "time", SimpleNamespace(sleep=slept.append))
    events = Client("http://tuner", transport=httpx2.MockTransport(handle)).follow("s1")
    assert [event.id for event in islice(events, 3)] == [7, 8, 9]
    assert last_ids == [None, "7", "7", "8"]
    assert slept == [blocking.RETRY_S] * 3


def test_a_refusal_ends_the_stream() -> None:
    problem = {"code": "unauthorised", "message": "no"}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(401, json=problem))
    with pytest.raises(Unauthorised, match="no"):
        next(Client("http://tuner", transport=transport).follow(after=5))


class AsyncBroken(httpx2.AsyncByteStream):
    """The same stream for the asyncio client."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._text.encode()
        raise httpx2.ReadError("gone")


def test_an_awaited_follower_also_resumes_behind_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    last_ids: list[str | None] = []
    slept: list[float] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/v1/events":
            return httpx2.Response(200, json=[])
        last_ids.append(request.headers.get("last-event-id"))
        if len(last_ids) == 2:
            raise httpx2.ConnectError("down")
        if len(last_ids) == 4:
            return httpx2.Response(401, json={"code": "unauthorised", "message": "no"})
        number = {1: 7, 3: 8}[len(last_ids)]
        return httpx2.Response(200, stream=AsyncBroken(sent(number)))

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def read() -> list[int]:
        monkeypatch.setattr(asynchronous, "asyncio", SimpleNamespace(sleep=sleep))
        client = AsyncClient("http://tuner", transport=httpx2.MockTransport(handle))
        ids = []
        with pytest.raises(Unauthorised):
            async for event in client.follow(after=6):
                ids.append(event.id)
        return ids

    assert asyncio.run(read()) == [7, 8]
    assert last_ids == ["6", "7", "7", "8"]
    assert slept == [blocking.RETRY_S] * 3
