"""HTTP clients that read answers within limits: `tuner.foreign_bodies` for httpx2.

httpx2 by itself decompresses a body of any size in memory, and reads a slow head or body without an end.
"""

from __future__ import annotations

import asyncio
import math
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2

from tuner.errors import ConfigError
from tuner.foreign_bodies import Body, BodyLate, BodyRefused, parsed, same_place

LATE = "the head of the answer was not complete in time"
ZONE = re.compile(r"%25[^]]*")
PASSED = "passed"
"""The extension of a request whose answer is passed on in parts and not kept: it has no limits."""
BODY_S = "body_s"
"""The extension of a request with its own limit in seconds from the head to the end of the body."""


class BoundedResponse(httpx2.Response):
    """An answer whose JSON has a limit of nesting."""

    def json(self, **_: Any) -> Any:  # noqa: ANN401  httpx2's own
        """Return the value of the JSON body. Raises ValueError."""
        return parsed(self.content)


class BoundedTransport(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """A transport, sync and async, that requests uncompressed answers and gives up long or slow ones.

    A head must be complete within the request's timeouts to connect and to read; `body_s` is the limit in
    seconds from the head to the end of the body. Reading raises httpx2.ReadError or httpx2.ReadTimeout.
    """

    def __init__(
        self,
        inner: Any,  # noqa: ANN401  a transport of either kind
        most_bytes: int,
        body_s: float = math.inf,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner, self._most, self._body_s = inner, most_bytes, body_s
        self._monotonic, self._head = monotonic, _Head()
        if isinstance(pool := getattr(inner, "_pool", None), httpcore2.ConnectionPool):
            pool._network_backend = _Backend(pool._network_backend, self._head)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return an answer whose body is checked against the limits while it is read."""
        self._head.until_s = time.monotonic() + _head_s(request)
        try:
            response = self._inner.handle_request(_uncompressed(request))
        except UnicodeError:  # of a name that DNS cannot have
            raise httpx2.ConnectError(f"no host can be named {request.url.host[:80]}") from None
        finally:
            self._head.until_s = math.inf
        return self._bounded(request, response)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return an answer whose body is checked against the limits while it is read."""
        within_s = _head_s(request)
        answered = self._inner.handle_async_request(_uncompressed(request))
        try:
            response = await asyncio.wait_for(
                answered, within_s if math.isfinite(within_s) else None
            )
        except UnicodeError:
            raise httpx2.ConnectError(f"no host can be named {request.url.host[:80]}") from None
        except asyncio.TimeoutError:
            raise httpx2.ReadTimeout(LATE) from None
        return self._bounded(request, response)

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()

    def _bounded(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        """Return a response with a bounded stream, or as it is if it is passed on."""
        if PASSED in request.extensions:
            return response
        kept = [(k, v) for k, v in response.headers.raw if k.lower() != b"content-encoding"]
        stream = _BoundedStream(response.stream, lambda: self._body(request, response))
        return BoundedResponse(
            response.status_code, headers=kept, stream=stream, extensions=response.extensions
        )

    def _body(self, request: httpx2.Request, response: httpx2.Response) -> Body:
        """Return the reader of a response's body. Raises BodyRefused: a redirect, or its coding."""
        if response.has_redirect_location:
            same_place(str(request.url), response.headers["location"])
        coding = response.headers.get("content-encoding", "").strip().lower()
        body_s = request.extensions.get(BODY_S, self._body_s)
        return Body(self._most, body_s, coding, self._monotonic)


def _uncompressed(request: httpx2.Request) -> httpx2.Request:
    """Return a request for an uncompressed answer, or as it is if the answer is passed on."""
    if PASSED not in request.extensions:
        request.headers["Accept-Encoding"] = "identity"
    if "%25" in request.headers.get("Host", ""):  # a zone has a meaning on this host only: RFC 6874
        request.headers["Host"] = ZONE.sub("", request.headers["Host"])
    return request


def _head_s(request: httpx2.Request) -> float:
    """Return the seconds within which the head of an answer must be complete."""
    given = request.extensions.get("timeout", {})
    limits = [given.get(kind) for kind in ("pool", "connect", "read")]
    return math.inf if None in limits else sum(limits)


class _Head(threading.local):
    """The end of the wait for a head by `time.monotonic`, of the request that this thread makes now."""

    until_s = math.inf


class _Backend(httpcore2.NetworkBackend):
    """A network whose reads end when the head is due: httpcore2's limit restarts with each part."""

    def __init__(self, inner: httpcore2.NetworkBackend, head: _Head) -> None:
        self._inner, self._head = inner, head

    def connect_tcp(self, host: str, *args: Any, **named: Any) -> httpcore2.NetworkStream:  # noqa: ANN401
        """Open a connection whose reads end in time; a URL writes `%` before an IPv6 zone as `%25`."""
        opened = self._inner.connect_tcp(host.replace("%25", "%"), *args, **named)
        return _Connection(opened, self._head)

    def connect_unix_socket(self, *args: Any, **named: Any) -> httpcore2.NetworkStream:  # noqa: ANN401
        """Open a connection whose reads end in time."""
        return _Connection(self._inner.connect_unix_socket(*args, **named), self._head)

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        self._inner.sleep(seconds)


class _Connection(httpcore2.NetworkStream):
    """A connection whose reads end when the head is due."""

    def __init__(self, inner: httpcore2.NetworkStream, head: _Head) -> None:
        self._inner, self._head = inner, head

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read a part. Raises httpcore2.ReadTimeout."""
        left_s = self._head.until_s - time.monotonic()
        if left_s <= 0.0:
            raise httpcore2.ReadTimeout(LATE)
        limit_s = min(left_s, math.inf if timeout is None else timeout)
        return self._inner.read(max_bytes, limit_s if math.isfinite(limit_s) else None)

    def start_tls(self, *args: Any, **named: Any) -> httpcore2.NetworkStream:  # noqa: ANN401
        """Open TLS on the connection."""
        return _Connection(self._inner.start_tls(*args, **named), self._head)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write a part."""
        self._inner.write(buffer, timeout)

    def close(self) -> None:
        """Close the connection."""
        self._inner.close()

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401  httpcore2's own
        """Return a fact about the connection."""
        return self._inner.get_extra_info(info)


class _BoundedStream(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A stream that raises httpx2's errors once a limit is passed."""

    def __init__(self, inner: Any, body: Callable[[], Body]) -> None:  # noqa: ANN401  either kind
        self._inner = inner
        self._add: Callable[[bytes], bytes]
        try:
            self._add = body().add
        except BodyRefused as error:
            self._add = _refusing(error)

    def __iter__(self) -> Iterator[bytes]:
        self._read(b"")
        for part in self._inner:
            yield self._read(part)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._read(b"")
        async for part in self._inner:
            yield self._read(part)

    def _read(self, part: bytes) -> bytes:
        """Return a part, checked and decompressed. Raises httpx2.ReadTimeout, httpx2.ReadError."""
        try:
            return self._add(part)
        except BodyLate as error:
            raise httpx2.ReadTimeout(str(error)) from None
        except BodyRefused as error:
            raise httpx2.ReadError(str(error)) from None

    def close(self) -> None:
        self._inner.close()

    async def aclose(self) -> None:
        await self._inner.aclose()


def _refusing(error: BodyRefused) -> Callable[[bytes], bytes]:
    """Return a function that raises this error for every part, so that httpx2 closes the connection."""

    def refuse(part: bytes) -> bytes:
        raise error

    return refuse


def client(
    most_bytes: int,
    body_s: float = math.inf,
    inner: httpx2.BaseTransport | None = None,
    **options: Any,  # noqa: ANN401  httpx2's own
) -> httpx2.Client:
    """Return a client with these limits. It uses no proxy unless `inner` has one."""
    verify = options.pop("verify", True)
    inner = inner or httpx2.HTTPTransport(verify=verify, trust_env=False)
    transport = BoundedTransport(inner, most_bytes, body_s)
    return httpx2.Client(transport=transport, trust_env=False, **options)


def async_client(
    most_bytes: int,
    body_s: float = math.inf,
    inner: httpx2.AsyncBaseTransport | None = None,
    **options: Any,  # noqa: ANN401  httpx2's own
) -> httpx2.AsyncClient:
    """Return an async client with these limits."""
    given = {name: options.pop(name) for name in ("verify", "limits") if name in options}
    inner = inner or httpx2.AsyncHTTPTransport(trust_env=False, **given)
    transport = BoundedTransport(inner, most_bytes, body_s)
    return httpx2.AsyncClient(transport=transport, trust_env=False, **options)


def outward(url: str) -> httpx2.HTTPTransport:
    """Return a transport to a URL beyond this host, through the environment's proxy, if it names one.

    A proxy without a scheme speaks HTTP, as for curl. Raises ConfigError: the proxy cannot be used.
    """
    parts, proxies = urlsplit(url), getproxies()
    named = proxies.get(parts.scheme) or proxies.get("all")
    if not named or proxy_bypass(parts.hostname or ""):
        return httpx2.HTTPTransport()
    scheme, marked, rest = named.rpartition("://")
    try:
        return httpx2.HTTPTransport(proxy=f"{scheme or 'http'}://{rest}")
    except (ImportError, ValueError, httpx2.InvalidURL):
        raise ConfigError(
            f"the proxy of the environment cannot be used{marked and f': its scheme is {scheme}'}",
            hint=f"set {parts.scheme}_proxy=http://HOST:PORT, or no_proxy={parts.hostname}",
        ) from None
