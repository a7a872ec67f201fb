"""One HTTP/1.1 connection to a tuner, without its own thread: ten thousand fit into a process."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from agents.load.http_caller import HEAD_END, parse_head
from agents.tuner_link.client import PATIENCE_S
from tuner.core import ConfigError, LinkError

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

BUFFER_BYTES = 16 * 1024
"""The read-ahead of an answer; asyncio's 64 kB would be most of an agent's memory."""


@dataclass(frozen=True, slots=True)
class TunerAddress:
    """The address of a tuner from its URL; `tls` is None for plain HTTP."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, url: str, tls: ssl.SSLContext | None = None) -> TunerAddress:
        """Return the address in a URL. Raises ConfigError: it has none."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if host is None or parts.scheme not in ("http", "https"):
            raise ConfigError(f"{url!r} is no tuner's address", hint="write http://HOST:PORT")
        secure = parts.scheme == "https"
        return cls(host, port or (443 if secure else 80), tls if secure else None)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The answer: its status, its body, and its `Retry-After` in seconds (text)."""

    status: int
    body: bytes
    retry_after: str = ""


class AgentConnection:
    """One caller's connection, opened when needed and again after it was dropped. For one task."""

    __slots__ = ("_address", "_streams", "_token")

    def __init__(self, address: TunerAddress, token: str) -> None:
        self._address, self._token = address, token
        self._streams: Streams | None = None

    async def ask(self, method: str, path: str, body: str = "", wait_s: float = 0.0) -> HttpAnswer:
        """Return the answer to a request, for which the tuner may take `wait_s`.

        An idle connection may be closed by now: then a second one is tried.

        Raises:
            LinkError: there is no answer, or it is not HTTP.
        """
        message = self._message(method, path, body)
        try:
            async with asyncio.timeout(wait_s + PATIENCE_S):
                if self._streams is not None:
                    with suppress(OSError, EOFError):
                        return await self._exchanged(self._streams, message)
                self.close()
                self._streams = await asyncio.open_connection(
                    self._address.host,
                    self._address.port,
                    ssl=self._address.tls,
                    limit=BUFFER_BYTES,
                )
                return await self._exchanged(self._streams, message)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            self.close()
            where = f"{self._address.host}:{self._address.port}"
            why = str(error) or type(error).__name__
            raise LinkError(f"cannot reach the tuner at {where}: {why}") from error

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    def _message(self, method: str, path: str, body: str) -> bytes:
        content = body.encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._address.host}\r\n"
            f"Authorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        return head.encode() + content

    async def _exchanged(self, streams: Streams, message: bytes) -> HttpAnswer:
        reader, writer = streams
        try:
            writer.write(message)
            head = parse_head((await reader.readuntil(HEAD_END)).removesuffix(HEAD_END))
            if head.length is None:
                raise ValueError("the tuner answers in chunks")
            body = await reader.readexactly(head.length)
        except BaseException:
            self.close()
            raise
        if not head.keep:
            self.close()
        return HttpAnswer(head.status, body, head.fields.get(b"retry-after", b"").decode("latin-1"))
