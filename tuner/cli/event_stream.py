"""The tuner's server-sent events, read from a connection that may break: see `tuner.service.feed`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

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
    last = "" if after is None else str(after)
    while True:
        headers = {"Last-Event-ID": last} if last else {}
        try:
            with client.stream(
                "GET", STREAM, params=dict(asked), headers=headers, timeout=SILENT_S
            ) as answer:
                if not answer.is_success:
                    answer.read()
                    raise refuse(answer)
                for event in events(answer.iter_lines()):
                    last = str(event.id) if event.id else last
                    yield event
        except httpx.TransportError:
            pass
        sleep(RETRY_S)


def events(lines: Iterable[str]) -> Iterator[Event]:
    """Yield the events of a stream; comments and what is not ours are left out."""
    kind, data = "", ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            data = value
        elif not line and data:
            if (event := _read(kind, data)) is not None:
                yield event
            kind, data = "", ""


def _read(kind: str, data: str) -> Event | None:
    try:
        return _EVENT.validate_json(data)
    except ValidationError:
        return None
