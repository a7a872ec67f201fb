"""Forwards requests to the active server; answers pass through byte for byte."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterable
from contextlib import suppress

import httpx2
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from agents.workloads.engine.control import EngineControl
from agents.workloads.engine.decoding import DecodingLoad
from agents.workloads.engine.figures import DecodingTotals, Timings, TimingsReader
from agents.workloads.engine.llama import REQUEST_LENGTH
from agents.workloads.engine.server import EngineServer
from tuner.core import DeviceLost
from tuner.foreign_bodies import BodyLate, BodyRefused, received
from tuner.http_clients import PASSED

log = logging.getLogger(__name__)

GENERATING = frozenset(
    {
        *("/completion", "/completions", "/v1/completions", "/infill"),
        *(
            "/chat/completions",
            "/v1/chat/completions",
            "/api/chat",
            "/v1/messages",
            "/v1/responses",
        ),
    }
)
"""The routes that generate tokens, of both READMEs (tools/server)."""
HOP_BY_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te"),
        *(b"trailer", b"transfer-encoding", b"upgrade"),
    }
)
"""RFC 9110, §7.6.1: they are about one connection, not about the message."""
LONGEST_BODY, BODY_S = 100 << 20, 300.0
TIMEOUT = {"connect": 5.0, "read": None, "write": None, "pool": None}
"""A completion has no timeout."""

STALLED_S = 60.0
"""A caller that takes nothing for so long is cut off, as by nginx: each restart would wait for it."""
ATTEMPTS = 3
"""One each on a kept connection that was just closed, on a new one, and at the server that takes over."""
STREAM = b'"stream"'
"""Within a text the quotes would be escaped."""
TRUE = re.compile(rb"\s*:\s*true")

Headers = Iterable[tuple[bytes, bytes]]


class Forwarder:
    """The ASGI application behind all routes that are not the proxy's own.

    A request whose server ends before the answer's first byte is sent again: no client has seen a
    part of it. If the next server ends, too, the request may be the cause and is sent to no third:
    RFC 9110, §9.2.2, advises against a retry of a retry; nginx sends no POST to a second server. If a
    caller disconnects, its request ends at the server, too.
    """

    def __init__(self, control: EngineControl) -> None:
        self._control = control
        self._load = control.load
        self.totals = DecodingTotals()
        self.repeated = 0
        self.lost = 0
        """Requests without an answer, or with one that the engine broke off."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        try:
            body = await received(request.stream(), LONGEST_BODY, BODY_S)
        except ClientDisconnect:
            return
        except BodyLate as error:
            await _refuse(send, 408, str(error))
            return
        except BodyRefused:
            await _refuse(send, 413, f"a request may have at most {LONGEST_BODY} bytes")
            return
        work = asyncio.ensure_future(self._answer(request, body, send))
        disconnected = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({work, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            disconnected.cancel()
            if not work.done():
                work.cancel()
        with suppress(asyncio.CancelledError):
            await work

    async def _answer(self, request: Request, body: bytes, send: Send) -> None:
        """Forward a request; if it generates tokens, set its length and count it."""
        if request.method != "POST" or request.url.path not in GENERATING:
            await self._relay(request, body, send, None)
            return
        length = self._control.request_length()
        limited = with_length(body, length)
        generation = GenerationSeen(self._load, streamed=streams(body))
        try:
            if await self._relay(request, limited, send, generation):
                timings = generation.timings
                self.totals.add(timings)
                generation.failed = False
                if length is not None and timings is not None and limited is not body:
                    self._control.request_showed(length, timings)
        finally:
            generation.end()

    async def _relay(
        self, request: Request, body: bytes, send: Send, generation: GenerationSeen | None
    ) -> bool:
        """Forward a request and its answer; return whether the answer was successful."""
        server: EngineServer | None = None
        ended = set[EngineServer]()
        for attempt in range(ATTEMPTS):
            try:
                server = await self._control.servers.acquire(
                    other_than=server if attempt == ATTEMPTS - 1 else None
                )
            except DeviceLost as error:
                self.lost += 1
                await _refuse(send, 503, str(error))
                return False
            async with server.serving():
                try:
                    response = await server.client.send(_sent(server, request, body), stream=True)
                except httpx2.HTTPError as error:
                    log.warning("event=unanswered path=%s why=%r", request.url.path, str(error))
                    unsent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
                    ended |= set() if unsent else {server}
                    if len(ended) > 1:
                        break
                    self.repeated += 1
                    continue
                try:
                    await _pass(response, send, generation)
                except httpx2.HTTPError:
                    self.lost += 1
                    raise
                finally:
                    await response.aclose()
                return response.is_success
        self.lost += 1
        why = "two engines ended while they had this request; it is sent to no other"
        why = why if len(ended) > 1 else "the engine did not answer; check that it is running"
        await _refuse(send, 502, why)
        return False


class GenerationSeen:
    """The observed progress of a request that generates tokens, from its arrival to its end."""

    def __init__(self, load: DecodingLoad, *, streamed: bool) -> None:
        self._load = load
        self._reader = TimingsReader()
        self._decoding = False
        self.failed = True
        load.arrive()
        if not streamed:
            self._begin()

    @property
    def timings(self) -> Timings | None:
        """The timings of its answer."""
        return self._reader.timings

    def see(self, chunk: bytes) -> None:
        """Scan a piece of its answer."""
        if not self._decoding:
            self._begin()
        self._reader.see(chunk)

    def end(self) -> None:
        """Note its end."""
        self._load.leave(decoding=self._decoding, failed=self.failed)

    def _begin(self) -> None:
        """Count the start of decoding."""
        self._decoding = True
        self._load.begin()


def with_length(body: bytes, length: int | None) -> bytes:
    """Return a request's body with a draft length, unless it sets one itself.

    All else stays byte for byte.
    """
    text = body.lstrip()
    if length is None or not text.startswith(b"{") or f'"{REQUEST_LENGTH}"'.encode() in text:
        return body
    rest = text[1:].lstrip()
    comma = b"" if rest.startswith(b"}") else b", "
    return b'{"%s": %d%s%s' % (REQUEST_LENGTH.encode(), length, comma, rest)


def streams(body: bytes) -> bool:
    """Return whether a request is for a stream; `find` takes 20 ms for 100 MB, a pattern seconds."""
    at = body.find(STREAM)
    while at >= 0 and not TRUE.match(body, at + len(STREAM)):
        at = body.find(STREAM, at + 1)
    return at >= 0


def _sent(server: EngineServer, request: Request, body: bytes) -> httpx2.Request:
    """Return the request as it is forwarded."""
    path, query = request.scope["raw_path"], request.scope["query_string"]
    headers = [*_kept(request.scope["headers"], b"content-length")]
    if streams(body):  # after a stream the server closes the connection without a header
        headers.append((b"connection", b"close"))
    return httpx2.Request(
        request.method,
        httpx2.URL(server.url).copy_with(raw_path=path + b"?" + query if query else path),
        headers=headers,
        content=body if body or request.method in ("POST", "PUT", "PATCH") else None,
        extensions={"timeout": TIMEOUT, PASSED: True},
    )


async def _pass(response: httpx2.Response, send: Send, generation: GenerationSeen | None) -> None:
    """Forward a response as it arrives; end it if its caller does not take it.

    Raises httpx2.HTTPError: the engine cut it off.
    """
    loop, own = asyncio.get_running_loop(), asyncio.current_task()
    assert own is not None
    headers = [*_kept(response.headers.raw)]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    async for chunk in response.aiter_raw():
        if generation is not None:
            generation.see(chunk)
        stalled = loop.call_later(STALLED_S, own.cancel)
        try:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            stalled.cancel()
    await send({"type": "http.response.body", "body": b""})


def _kept(headers: Headers, *without: bytes) -> Headers:
    """Yield the headers that belong to the message, not to the connection."""
    return ((k, v) for k, v in headers if k.lower() not in HOP_BY_HOP and k.lower() not in without)


async def _disconnected(receive: Receive) -> None:
    """Return once the caller has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _refuse(send: Send, status: int, message: str) -> None:
    """Answer in the shape of an engine's own errors."""
    error = {"code": status, "message": message, "type": "unavailable_error"}
    content = json.dumps({"error": error}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
