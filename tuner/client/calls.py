"""The request of a verb, and the meaning of its answer or refusal. This module sends nothing itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx2
from pydantic import TypeAdapter, ValidationError

from tuner.core import ConfigError, Event, InvalidInput, LinkError, TuningError, error_of
from tuner.verbs.row import Verb
from tuner.wire import Problem

TIMEOUT_S = 30.0
MOST_ANSWER_BYTES = 1 << 30
"""The largest answer: the history of a fleet takes some hundred megabytes."""


def request(
    http: httpx2.Client | httpx2.AsyncClient, verb: Verb, given: Mapping[str, object]
) -> httpx2.Request:
    """Return the HTTP request of a verb with these arguments."""
    path, body, query = verb.sent(given)
    return http.build_request(
        verb.method,
        path,
        content=body.model_dump_json() if body is not None else None,
        headers={"Content-Type": "application/json"} if body is not None else {},
        params=query,
    )


def read(url: str, verb: Verb, answer: httpx2.Response) -> object:
    """Return the value in a tuner's answer, or raise the error of its refusal.

    Raises:
        LinkError: the answer is not a tuner's.
        TuningError and its kin: the tuner refused, with the error that its answer names.
    """
    if not answer.is_success:
        raise refusal(url, answer)
    try:
        return verb.read(answer.content)
    except ValidationError:
        raise LinkError(
            f"{url}{answer.url.path} sent a response that is not a tuner's",
            hint="check the URL, or upgrade both sides to the same release",
        ) from None


def refusal(url: str, answer: httpx2.Response) -> TuningError:
    """Return the error that a tuner's refusal names; a LinkError if the answer is not a tuner's."""
    try:
        problem = Problem.model_validate_json(answer.content)
    except ValidationError:
        return LinkError(
            f"{url} answered {answer.status_code} {answer.reason_phrase}, but not in a tuner's format",
            hint="check the URL",
        )
    unnamed = InvalidInput if answer.status_code < 500 else TuningError
    return (error_of(problem.code) or unnamed)(problem.message, hint=problem.hint)


def unsent(url: str, error: httpx2.TransportError) -> TuningError:
    """Return the error of a request that got no answer."""
    if isinstance(error, httpx2.UnsupportedProtocol):
        return ConfigError(
            f"{url!r} is not an http URL", hint="check the tuner's URL, e.g. http://127.0.0.1:8790"
        )
    return LinkError(
        f"the tuner at {url} does not answer: {error or type(error).__name__}",
        hint="check the URL, or start it with `jouletune tuner serve`",
    )


STREAM = "/v1/events/stream"
SILENT_S = 60.0
"""A tuner that sends nothing for this many seconds, not even a keep-alive comment, is gone."""

_EVENT = TypeAdapter(Event)


@dataclass
class Place:
    """The place at which a stream continues after it broke: `last` is the id of the last event read."""

    last: int | None

    @property
    def headers(self) -> dict[str, str]:
        """The header that requests all events after the last one; empty before the first event."""
        return {} if self.last is None else {"Last-Event-ID": str(self.last)}

    def passed(self, event: Event) -> None:
        """Move the place to after this event."""
        self.last = event.id or self.last


@dataclass
class Reader:
    """Assembles events from the lines of a stream."""

    data: str = field(default="", init=False)

    def read(self, line: str) -> Event | None:
        """Read a line; return the event that it completes, or None. Unknown entries are skipped."""
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
