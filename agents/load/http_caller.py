"""One HTTP/1.1 caller that costs little: the load generator shares the machine with the workload.

Back to back on loopback with 4 callers it took some 40 µs of CPU a request, `http.client` 220 and httpx
1200; at 100 to 300 requests a second, with threads to wake up, 100 to 200 µs.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
CUT_OFF = "no response before the stop"
HEAD_END = b"\r\n\r\n"
PIECE_BYTES = LONGEST_HEAD_BYTES = 65536


class AnswerHead(NamedTuple):
    """The status and fields of an answer; names and values are lower-case.

    `length` is that of its body in bytes, None where that comes in chunks; `keep` is whether the
    connection can be used again.
    """

    status: int
    length: int | None
    keep: bool
    fields: Mapping[bytes, bytes]


def parse_head(head: bytes) -> AnswerHead:
    """Return the head of an answer, without the empty line after it.

    Raises:
        ValueError: it is no HTTP/1, or does not say where its body ends (RFC 9112, §6.3).
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
    if fields.get(b"transfer-encoding") != b"chunked":
        text = b"0" if status == 204 else fields.get(b"content-length")
        if text is None or not text.isdigit():
            raise ValueError("no Content-Length")
        length = int(text)
    keep = fields.get(b"connection") != b"close"
    if version == b"HTTP/1.0":
        keep = fields.get(b"connection") == b"keep-alive"
    return AnswerHead(status, length, keep, fields)


class HttpCaller:
    """Sends one fixed request again and again over one kept connection, or one with each next body.

    Understands answers with a Content-Length, which is all that the workload contract allows, and
    those in chunks (RFC 9112, §7.1), which Ray's proxy sends. A kept connection that the server
    closed meanwhile is opened again once; anything else that goes wrong is the answer's failure.
    `seen` is given every piece of an answer, head and chunk sizes too, as soon as it has come.
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
        self._address = (host, port)
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
        """Send once and return what went wrong: empty for an answer with status 2xx."""
        if self._next is not None:
            self._request = self._with(self._next())
        wrong = self._sent()
        return CUT_OFF if wrong and self._closed else wrong

    def _with(self, body: bytes) -> bytes:
        return b"%sContent-Length: %d\r\n\r\n%s" % (self._head, len(body), body)

    def _sent(self) -> str:
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
        """Cut the connection."""
        self._closed = True
        self._drop()

    def _exchange(self) -> int | None:
        """Return the answer's status, None where the server closed before a first byte."""
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
        answer = parse_head(head)
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
        piece = connection.recv(PIECE_BYTES)
        if piece and self._seen is not None:
            self._seen(piece)
        return piece

    def _more(self, connection: socket.socket) -> bytes:
        piece = self._receive(connection)
        if not piece:
            raise ConnectionResetError("connection closed during a response")
        return piece

    def _read_head(self, connection: socket.socket) -> tuple[bytes, bytes]:
        """Return an answer's head and the part of its body that came along; empty at a closed end."""
        data = b""
        while HEAD_END not in data:
            piece = self._receive(connection)
            if not piece or len(data) > LONGEST_HEAD_BYTES:
                if data:
                    raise ValueError("incomplete header")
                return b"", b""
            data += piece
        head, _, body = data.partition(HEAD_END)
        return head, body

    def _pass_chunks(self, connection: socket.socket, data: bytes) -> None:
        """Read a body in chunks to its end, and its trailers. Raises ValueError."""
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
        """Return the next line and what came along after it."""
        while b"\r\n" not in data:
            data += self._more(connection)
            if len(data) > LONGEST_HEAD_BYTES and b"\r\n" not in data:
                raise ValueError("line without an end")
        line, _, rest = data.partition(b"\r\n")
        return line, rest

    def _drop(self) -> None:
        connection, self._socket = self._socket, None
        if connection is None:
            return
        with connection, suppress(OSError):
            # Wakes a thread that waits in recv, which close alone would not; the peer may be faster.
            connection.shutdown(socket.SHUT_RDWR)
