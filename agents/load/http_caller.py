"""An HTTP/1.1 caller with little CPU time per request, because the load generator shares the machine.

With 4 callers sending back to back on loopback, a request took about 40 µs of CPU time; `http.client`
took 220 µs and httpx2 1200 µs. At 100 to 300 requests per second it took 100 to 200 µs, because threads
must be woken.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
CUT_OFF = "no response before the stop"
HEAD_END = b"\r\n\r\n"
INTERIM = re.compile(rb"\A(?:HTTP/1\.\d 1\d\d .*?\r\n\r\n)+", re.DOTALL)
"""Heads that precede a response, in any number, asked for or not (RFC 9110, §15.2)."""
PIECE_BYTES = LONGEST_HEAD_BYTES = 65536


class AnswerHead(NamedTuple):
    """The status and header fields of a response; names and values are lower-case.

    `length` is the body's length in bytes, None for a body in chunks. `keep` is whether the connection
    can be reused.
    """

    status: int
    length: int | None
    keep: bool
    fields: Mapping[bytes, bytes]


def parse_head(head: bytes, method: str = "") -> AnswerHead:
    """Parse the head of a response to a request by `method`, given without the empty line after it.

    Raises:
        ValueError: the response is not HTTP/1, or the length of its body is not defined (RFC 9112, §6.3).
    """
    first, *lines = head.split(b"\r\n")
    version, status_text = first.split(b" ", 2)[:2]
    if not version.startswith(b"HTTP/1."):
        raise ValueError("not HTTP/1")
    status, fields = int(status_text), {}
    for line in lines:
        name, _, value = line.partition(b":")
        fields[name.strip().lower()] = value.strip().lower()
    length: int | None = None
    bare = method == "HEAD" or status in (204, 304)
    if bare or fields.get(b"transfer-encoding") != b"chunked":
        text = b"0" if bare else fields.get(b"content-length")
        if text is None or not text.isdigit():
            raise ValueError("no Content-Length")
        length = int(text)
    keep = fields.get(b"connection") != b"close"
    if version == b"HTTP/1.0":
        keep = fields.get(b"connection") == b"keep-alive"
    return AnswerHead(status, length, keep, fields)


class HttpCaller:
    """Sends the same request repeatedly over a kept connection, with a fixed or a changing body.

    The caller reads responses with a Content-Length, the only form in the workload contract, and
    responses in chunks (RFC 9112, §7.1), which Ray's proxy sends. If the server has closed the kept
    connection meanwhile, it is reopened once. Any other error makes the request fail. `seen` receives
    each piece of a response when it arrives, including the head and the chunk sizes.
    """

    def __init__(
        self,
        host: str,
        port: int,
        path: str,
        *,
        method: str = "POST",
        body: bytes | Callable[[], bytes] = b"",
        headers: Mapping[str, str] = NO_HEADERS,
        timeout_s: float = 10.0,
        seen: Callable[[bytes], None] | None = None,
    ) -> None:
        self._address, self._method = (host, port), method
        self._timeout_s, self._seen = timeout_s, seen
        self._socket: socket.socket | None = None
        self._closed = False
        named = f"[{host}]" if ":" in host else host
        sent = {"Host": f"{named}:{port}", "Content-Type": "application/json", **headers}
        lines = [
            f"{method} {path} HTTP/1.1",
            *(f"{name}: {text}" for name, text in sent.items()),
            "",
        ]
        self._head = "\r\n".join(lines).encode("ascii")
        self._next = body if callable(body) else None
        self._request = b"" if callable(body) else self._with(body)

    def send(self) -> str:
        """Send one request and return the error; empty for a response with status 2xx."""
        if self._next is not None:
            self._request = self._with(self._next())
        wrong = self._sent()
        return CUT_OFF if wrong and self._closed else wrong

    def _with(self, body: bytes) -> bytes:
        """Return the bytes of the request with a body."""
        return b"%sContent-Length: %d\r\n\r\n%s" % (self._head, len(body), body)

    def _sent(self) -> str:
        """Send the request, on a new connection if the kept one was closed; return the error."""
        try:
            reused = self._socket is not None
            answer = self._exchange()
            if answer is None and reused and not self._closed:
                answer = self._exchange()
            if answer is None:
                return "connection closed before a response"
        except TimeoutError:
            self._drop()
            return f"no response within {self._timeout_s:g} s"
        except OSError as error:
            self._drop()
            return error.strerror or type(error).__name__
        except ValueError:
            self._drop()
            return "not a complete HTTP/1 response with a Content-Length or chunks"
        return "" if 200 <= answer < 300 else f"HTTP {answer}"

    def close(self) -> None:
        """Close the connection; a request in progress fails at once."""
        self._closed = True
        self._drop()

    def _exchange(self) -> int | None:
        """Send the request and return the status; None if the server closed before the first byte."""
        connection = self._socket
        if connection is None:
            connection = socket.create_connection(self._address, self._timeout_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = connection
            if self._closed:
                self._drop()
                return None
        try:
            connection.sendall(self._request)
            head, body = self._read_head(connection)
        except ConnectionError:
            head, body = b"", b""
        if not head:
            self._drop()
            return None
        answer = parse_head(head, self._method)
        if answer.length is None:
            self._pass_chunks(connection, body)
        else:
            left = answer.length - len(body)
            while left > 0:
                left -= len(self._more(connection))
        if not answer.keep:
            self._drop()
        return answer.status

    def _receive(self, connection: socket.socket) -> bytes:
        """Return the next piece of a response and pass it to `seen`; empty if the connection is closed."""
        piece = connection.recv(PIECE_BYTES)
        if piece and self._seen is not None:
            self._seen(piece)
        return piece

    def _more(self, connection: socket.socket) -> bytes:
        """Return the next piece of a response. Raises ConnectionResetError: the connection is closed."""
        piece = self._receive(connection)
        if not piece:
            raise ConnectionResetError("connection closed during a response")
        return piece

    def _read_head(self, connection: socket.socket) -> tuple[bytes, bytes]:
        """Return a response's head and the body's bytes received with it; both empty if it was closed."""
        data = b""
        while HEAD_END not in INTERIM.sub(b"", data):
            piece = self._receive(connection)
            if not piece or len(data) > LONGEST_HEAD_BYTES:
                if data:
                    raise ValueError("incomplete header")
                return b"", b""
            data += piece
        head, _, body = INTERIM.sub(b"", data).partition(HEAD_END)
        return head, body

    def _pass_chunks(self, connection: socket.socket, data: bytes) -> None:
        """Read a body in chunks and its trailers to the end. Raises ValueError: it is malformed."""
        while True:
            line, data = self._line(connection, data)
            size = int(line.split(b";")[0], 16)
            if size <= 0:
                break
            while len(data) < size + 2:
                data += self._more(connection)
            data = data[size + 2 :]
        while line:
            line, data = self._line(connection, data)

    def _line(self, connection: socket.socket, data: bytes) -> tuple[bytes, bytes]:
        """Return the next line and the bytes received after it. Raises ValueError: it is too long."""
        while b"\r\n" not in data:
            data += self._more(connection)
            if len(data) > LONGEST_HEAD_BYTES and b"\r\n" not in data:
                raise ValueError("line without an end")
        line, _, rest = data.partition(b"\r\n")
        return line, rest

    def _drop(self) -> None:
        """Close the connection, if there is one."""
        connection, self._socket = self._socket, None
        if connection is None:
            return
        with connection, suppress(OSError):
            # Unlike close, shutdown wakes a thread that waits in recv. It fails if the peer closed first.
            connection.shutdown(socket.SHUT_RDWR)
