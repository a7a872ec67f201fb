"""Limits of a client before authentication: time, connections, bytes and lines of the log.

uvicorn bounds a request's head and the number of requests in progress. It has no deadline for a head or a
body, reads bodies of any length, and lets idle connections use up the open files.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, cast

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tuner.wire import Problem

OWN_FILES = 128
"""Open files reserved for the database, the log and everything but connections."""
BACKLOG = 64
"""Connections that the event loop accepts in one turn; each reaches this module four turns later."""
MOST_UNFINISHED = 1024
HEAD_BYTES = 64 * 1024
"""Room for a request's head, of which h11 accepts 16 KiB, and for the framing of its chunks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """The limits of one caller, and of all callers together.

    `head_s` is counted from the connection, or from the previous response, to the end of a request's
    head; `body_s` from there to the end of its body, and for receiving the response. `request_bytes` are
    all bytes received for one request, with its head and the framing of its chunks. `unfinished` is the
    most connections without a whole request. `running` is the most connections in all; above it requests
    are answered with 503.
    """

    request_bytes: int
    unfinished: int
    running: int
    head_s: float = 10.0
    body_s: float = 60.0

    @classmethod
    def within(cls, files: int, body_bytes: int) -> HttpLimits:
        """Return the limits of a process that may open `files` files, for bodies of `body_bytes`."""
        room = max(files - OWN_FILES - 4 * BACKLOG, 32)
        unfinished = min(MOST_UNFINISHED, room // 4)
        return cls(
            request_bytes=body_bytes + HEAD_BYTES, unfinished=unfinished, running=room - unfinished
        )


class Stage(Enum):
    """The step that a connection waits for."""

    HEAD = auto()
    BODY = auto()
    ANSWERING = auto()
    """The tuner's response: a whole request has arrived, and the caller has no deadline."""
    TAKING = auto()
    """The caller must receive the response, or release a connection that we have closed."""


class LimitedHttp(H11Protocol):
    """uvicorn's HTTP/1.1, with deadlines for the caller and a bound on the bytes it sends.

    If too many connections have no whole request, the oldest of them is dropped: a client that sends its
    request at once is served, even beside many silent ones.
    """

    def __init__(
        self,
        limits: HttpLimits,
        unfinished: dict[LimitedHttp, None],
        dropped: Callable[[], None],
        **server: Any,  # noqa: ANN401 - uvicorn's own
    ) -> None:
        super().__init__(**server)
        self._limits = limits
        self._unfinished = unfinished
        self._dropped = dropped
        self._stage: Stage | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._received = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for a head, and drop the oldest unfinished connection if there are too many."""
        super().connection_made(transport)
        certificate = transport.get_extra_info("peercert")
        if certificate:
            self.app = _with_certificate(self.app, str(certificate.get("subject", "")))
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Count the received bytes and parse them."""
        self._received += len(data)
        if self._received > self._limits.request_bytes:
            most = self._limits.request_bytes
            self._refuse(413, "too_large", f"a request has at most {most} bytes")
            return
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Start to wait for the next request."""
        self._received = 0
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Start to wait for the caller to receive its response."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Return to the stage before the pause."""
        super().resume_writing()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Update the stage; start the deadline of a new stage, or end it while the tuner answers."""
        stage = self._expected_stage()
        if stage is self._stage:
            return
        self._stage = stage
        if stage is Stage.ANSWERING:
            self._forget()
            return
        if self._deadline is not None:
            self._deadline.cancel()
        seconds = self._limits.head_s if stage is Stage.HEAD else self._limits.body_s
        self._deadline = self.loop.call_later(seconds, self._late)
        self._unfinished.setdefault(self)  # a connection that is already in it keeps its age
        if len(self._unfinished) > self._limits.unfinished:
            next(iter(self._unfinished))._drop()

    def _expected_stage(self) -> Stage:
        """Return the stage that follows from the connection's state."""
        if self.flow.write_paused or self.transport.is_closing():
            return Stage.TAKING
        waiting = {h11.IDLE: Stage.HEAD, h11.SEND_BODY: Stage.BODY}
        return waiting.get(self.conn.their_state, Stage.ANSWERING)

    def _forget(self) -> None:
        """Cancel the deadline, and count the connection no longer as unfinished."""
        self._unfinished.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _drop(self) -> None:
        """Abort the connection, and count it as dropped."""
        self._forget()
        self.transport.abort()
        self._dropped()

    def _late(self) -> None:
        """End a connection whose deadline has passed: drop it, or answer 408."""
        if self._expected_stage() is Stage.TAKING:
            self._drop()
        else:
            self._refuse(408, "timeout", "the request did not arrive in time")

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer in place of the application, unless it has already answered, and close the connection."""
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = Problem(code=code, message=message).model_dump_json().encode()
            length = str(len(body))
            headers = {"content-type": "application/json", "content-length": length}
            answer = h11.Response(
                status_code=status, headers=[*headers.items(), ("connection", "close")]
            )
            for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self._watch()


def _with_certificate(app: ASGIApp, subject: str) -> ASGIApp:
    """Return the application with the client's checked certificate, as in ASGI's TLS extension."""

    async def with_subject(scope: Scope, receive: Receive, send: Send) -> None:
        extensions = {**scope.get("extensions", {}), "tls": {"client_cert_name": subject}}
        await app({**scope, "extensions": extensions}, receive, send)

    return with_subject


def limited_http(
    limits: HttpLimits, dropped: Callable[[], None] = lambda: None
) -> type[asyncio.Protocol]:
    """Return the protocol class for all connections of one uvicorn server (its `http=`).

    `dropped` is called for each connection that is dropped, for lack of room or because its caller does
    not receive its response.
    """
    return cast("type[asyncio.Protocol]", partial(LimitedHttp, limits, {}, dropped))


class LogLimit(logging.Filter):
    """Passes a few records from each place in the code, and logs the number of those left out.

    For records that any client can cause: malformed requests, connections without a free file.
    """

    def __init__(
        self, most: int = 10, every_s: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._most, self._every_s, self._clock = most, every_s, clock
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        now, place = self._clock(), (record.pathname, record.lineno)
        began, count = self._seen.get(place, (now, 0))
        if now - began >= self._every_s:
            if count > self._most:
                record.msg = (
                    f"{record.getMessage()} ({count - self._most} similar lines were not logged)"
                )
                record.args = None
            began, count = now, 0
        self._seen[place] = (began, count + 1)
        return count < self._most
