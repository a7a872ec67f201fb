"""The one reader of bodies from elsewhere: answers to our requests, and requests to our own servers.

Whoever sends one, it has a limit of bytes after decompression, of nesting, and of seconds to its end; a
redirect stays within its host. `tuner.http_clients` reads answers by it. A test refuses any other reader.
"""

from __future__ import annotations

import asyncio
import json
import math
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import IO, Any
from urllib.parse import urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from tuner.toml import depth_of

MOST_DEPTH = 64
"""Lists and mappings within each other; our own messages have a dozen."""
PART_BYTES = 65_536
CODINGS = ("", "identity", "gzip", "x-gzip", "deflate")
"""What can be unpacked piece by piece, within a limit."""


class BodyRefused(OSError):
    """A body is too large, late or damaged, or elsewhere. Give it up."""


class BodyLate(BodyRefused):
    """A body was not complete in time. Give it up."""


def parsed(body: bytes | str, most_depth: int = MOST_DEPTH) -> Any:  # noqa: ANN401  JSON
    """Return the JSON of a body. Raises ValueError: it is none, or is nested too deeply."""
    try:
        value = json.loads(body)
    except RecursionError:
        raise ValueError(f"nested more than {most_depth} deep") from None
    if depth_of(value, most_depth) > most_depth:
        raise ValueError(f"nested more than {most_depth} deep")
    return value


def same_place(here: str, there: str) -> str:
    """Return where a redirect leads. Raises BodyRefused: to another scheme, host or port."""
    target = urljoin(here, there)
    if urlsplit(target)[:2] != urlsplit(here)[:2]:
        raise BodyRefused(f"{here} is redirected to {target}")
    return target


class Body:
    """A body while it arrives, unpacked; `coding` is that of its bytes.

    Raises BodyRefused from its making: a coding that cannot be unpacked; and from `add`.
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
        # 32 + 15: gzip and zlib, told apart by their heads.
        self._unpacker = zlib.decompressobj(47) if CODINGS.index(coding) > 1 else None
        self._size = 0

    def add(self, part: bytes) -> bytes:
        """Return a part unpacked. Raises BodyRefused: the body is too long, late or damaged."""
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
    """Return the body of a request to a server of ours. Raises BodyRefused, BodyLate."""
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
    """Return the JSON at a URL, by the standard library alone.

    Raises OSError, ValueError, HTTPException.
    """
    handlers = [_Stay(), *([HTTPSHandler(context=tls)] if tls else [])]
    body, whole = Body(most_bytes, within_s), bytearray()
    with build_opener(*handlers).open(
        Request(url, headers=dict(headers)), timeout=within_s
    ) as answer:
        while part := answer.read1(PART_BYTES):  # what is there, so that a drip meets its deadline
            whole += body.add(part)
    return parsed(bytes(whole))
