"""The tuner's server-sent events, read from a connection that may break: see `tuner.service.feed`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import httpx
from pydantic import TypeAdapter, ValidationError

from tuner.core import Event

STREAM = "/v1/events/stream"
SILENT_S = 60.0
"""A tuner that says nothing for so long, not even that there is nothing, is gone."""
RETRY_S = 2.0

Refuse = Callable[[httpx.Response], Exception]
_EVENT = TypeAdapter(Event)


def followed(
    client: httpx.Client,
    asked: Mapping[str, str],
    refuse: Refuse,
    after: int | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Event]:
    """Yield what comes from now on, or after an event; after a lost connection what came meanwhile, too.

    A study that changed without an event comes as one without an id.

    Raises:
        What `refuse` makes of an answer that is no stream.
    """
    place = _Place(after)
    while True:
        try:
            with client.stream(
                "GET", STREAM, params=dict(asked), headers=place.headers, timeout=SILENT_S
            ) as answer:
                if not answer.is_success:
                    answer.read()
                    raise refuse(answer)
                for event in events(answer.iter_lines()):
                    place.passed(event)
                    yield event
        except httpx.TransportError:
            pass
        sleep(RETRY_S)


async def followed_async(
    client: httpx.AsyncClient,
    asked: Mapping[str, str],
    refuse: Refuse,
    after: int | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[Event]:
    """Yield as `followed` does."""
    place = _Place(after)
    while True:
        try:
            async with client.stream(
                "GET", STREAM, params=dict(asked), headers=place.headers, timeout=SILENT_S
            ) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise refuse(answer)
                reader = _Reader()
                async for line in answer.aiter_lines():
                    if (event := reader.read(line)) is not None:
                        place.passed(event)
                        yield event
        except httpx.TransportError:
            pass
        await sleep(RETRY_S)


def events(lines: Iterable[str]) -> Iterator[Event]:
    """Yield the events of a stream; comments and what is not ours are left out."""
    reader = _Reader()
    for line in lines:
        if (event := reader.read(line)) is not None:
            yield event


@dataclass
class _Place:
    """The event after which a stream goes on once it broke."""

    last: int | None

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.last is None else {"Last-Event-ID": str(self.last)}

    def passed(self, event: Event) -> None:
        self.last = event.id or self.last


@dataclass
class _Reader:
    """Puts the lines of a stream together."""

    data: str = field(default="", init=False)

    def read(self, line: str) -> Event | None:
        """Take a line; return the event that it ends, if it ends one of ours."""
        name, _, value = line.partition(": ")
        if name == "data":
            self.data = value
        if line or not self.data:
            return None
        data, self.data = self.data, ""
        try:
            return _EVENT.validate_json(data)
        except ValidationError:
            return None
