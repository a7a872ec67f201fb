"""Limits of an HTTP response, for its client: bytes, and seconds to come, and never unpacked.

A few kilobytes of gzip become gigabytes; httpx unpacks what it is sent, in memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import httpx


class BoundedTransport(httpx.BaseTransport):
    """Asks for answers as they are, and gives up those that are packed, too long or too slow.

    `body_s` is counted from the head to the end of the body.
    """

    def __init__(
        self,
        inner: httpx.BaseTransport,
        most_bytes: int,
        body_s: float = math.inf,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner, self._most, self._body_s = inner, most_bytes, body_s
        self._monotonic = monotonic

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return an answer whose body is bounded as it is read. Raises httpx.DecodingError."""
        request.headers["Accept-Encoding"] = "identity"
        response = self._inner.handle_request(request)
        coding = response.headers.get("content-encoding", "identity")
        if coding.strip().lower() not in ("", "identity"):
            response.close()
            raise httpx.DecodingError(
                f"the response is compressed ({coding[:40]}), which was not requested",
                request=request,
            )
        stream = response.stream
        assert isinstance(stream, httpx.SyncByteStream)
        until = self._monotonic() + self._body_s
        response.stream = _BoundedStream(stream, self._most, until, self._monotonic)
        return response

    def close(self) -> None:
        """Release connections."""
        self._inner.close()


class _BoundedStream(httpx.SyncByteStream):
    def __init__(
        self,
        inner: httpx.SyncByteStream,
        most: int,
        until: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._inner, self._most, self._until, self._monotonic = inner, most, until, monotonic

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for part in self._inner:
            size += len(part)
            if size > self._most:
                raise httpx.ReadError(f"the response has more than {self._most} bytes")
            if self._monotonic() > self._until:
                raise httpx.ReadTimeout("the response was not complete in time")
            yield part

    def close(self) -> None:
        self._inner.close()
