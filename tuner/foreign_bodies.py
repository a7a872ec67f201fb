"""The only reader of HTTP bodies from elsewhere: answers to our requests, and requests to our servers.

Every body has a limit of bytes after decompression, of nesting, and of seconds to its end; a redirect stays
on its host. `tuner.http_clients` uses it for answers. A test refuses any other reader.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import IO, Any
from urllib.parse import urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from tuner.toml import depth_of

LINE_ENDS = re.compile(r"[\r\n]+")
MOST_DEPTH = 64
"""The deepest nesting of lists and mappings; our own messages nest a dozen deep."""
PART_BYTES = 65_536
UNPACKED = ("", "identity")
"""The codings that a request to one of our servers may have."""
CODINGS = (*UNPACKED, "gzip", "x-gzip", "deflate")
"""The codings that can be decompressed in parts, within a limit."""


class BodyRefused(OSError):
    """A body is too large, late or damaged, or is redirected to another host. Discard it."""


class BodyLate(BodyRefused):
    """A body was not complete in time. Discard it."""


def parsed(body: bytes | str, most_depth: int = MOST_DEPTH) -> Any:  # noqa: ANN401  JSON
    """Return the value of a JSON body. Raises ValueError: it is not JSON, or is nested too deeply."""
    try:
        value = json.loads(body)
    except RecursionError:
        raise ValueError(f"nested more than {most_depth} deep") from None
    if depth_of(value, most_depth) > most_depth:
        raise ValueError(f"nested more than {most_depth} deep")
    return value


def lines(text: str) -> list[str]:
    """Return the lines of a text; U+2028 and U+0085, which JSON and labels may have, end none."""
    return LINE_ENDS.split(text)


def same_place(here: str, there: str) -> str:
    """Return the target of a redirect. Raises BodyRefused: its scheme, host or port is another one."""
    target = urljoin(here, there)
    if urlsplit(target)[:2] != urlsplit(here)[:2]:
        raise BodyRefused(f"{here} is redirected to {target}")
    return target


class Body:
    """A body that is decompressed while it arrives; `coding` is its content coding.

    Raises BodyRefused: the coding cannot be decompressed.
    """

    def __init__(
        self,
        most_bytes: int,
        within_s: float = math.inf,
        coding: str = "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if coding not in CODINGS:
            raise BodyRefused(f"the body is packed as {coding[:40]}")
        self._most, self._monotonic = most_bytes, monotonic
        self._until = monotonic() + within_s
        # 32 + 15: zlib detects gzip or zlib by the header.
        self._unpacker = zlib.decompressobj(47) if CODINGS.index(coding) > 1 else None
        self._size = 0

    def add(self, part: bytes) -> bytes:
        """Return a part, decompressed. Raises BodyRefused: the body is too long, late or damaged."""
        if self._unpacker is not None:
            try:
                part = self._unpacker.decompress(part, self._most - self._size + 1)
            except zlib.error as error:
                raise BodyRefused(f"the body cannot be unpacked: {error}") from None
        self._size += len(part)
        if self._size > self._most:
            raise BodyRefused(f"the body has more than {self._most} bytes")
        if self._monotonic() > self._until:
            raise BodyLate("the body was not complete in time")
        return part


async def received(parts: AsyncIterator[bytes], most_bytes: int, within_s: float) -> bytes:
    """Return the body of a request to one of our servers. Raises BodyRefused, BodyLate."""
    body, whole = Body(most_bytes), bytearray()

    async def read() -> None:
        async for part in parts:
            whole.extend(body.add(part))

    try:
        await asyncio.wait_for(read(), within_s)
    except asyncio.TimeoutError:
        raise BodyLate("the body was not complete in time") from None
    return bytes(whole)


class _Stay(HTTPRedirectHandler):
    """A handler that refuses redirects to another scheme, host or port."""

    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Any,  # noqa: ANN401
        newurl: str,
    ) -> Request | None:
        same_place(req.full_url, newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetched(
    url: str,
    headers: Mapping[str, str],
    most_bytes: int,
    within_s: float,
    tls: ssl.SSLContext | None,
) -> Any:  # noqa: ANN401  JSON
    """Return the JSON at a URL, with the standard library only.

    Raises OSError, ValueError, HTTPException.
    """
    handlers = [_Stay(), *([HTTPSHandler(context=tls)] if tls else [])]
    body, whole = Body(most_bytes, within_s), bytearray()
    with build_opener(*handlers).open(
        Request(url, headers=dict(headers)), timeout=within_s
    ) as answer:
        while part := answer.read1(PART_BYTES):  # one read, then `add` checks the time
            whole += body.add(part)
    return parsed(bytes(whole))
