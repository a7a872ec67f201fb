"""Our own load on the proxy: streamed completions of given prompts, timed token by token."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from agents.load.generator import CUT_OFF
from tuner.core import Clock

MADE = re.compile(rb'"tokens_predicted":\s*(\d+)(?=\D)')
LONGEST_COUNT = 64
HEAD = (
    b"POST /completion HTTP/1.1\r\nHost: %s:%d\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
)
GOOD, END = b"HTTP/1.1 200", b"0\r\n\r\n"
"""A stream comes in chunks: the last one is empty (RFC 9112, §7.1)."""
ANSWER_S = 120.0


@dataclass(slots=True)
class TokenTimes:
    """When tokens came, over all callers of one window.

    `tokens` are (moment in s on the clock, how many) of each piece of an answer, `gaps_s` the time
    between two neighbouring pieces, `first_s` from the request to its first.
    """

    tokens: list[tuple[float, int]] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)


class PromptDeck:
    """Deals the prompts in turn, to whichever caller is next.

    No prompt comes again before all others: llama.cpp of 0.3.16 replays what it made for the last
    prompt of a slot where the next one is the same, and then accepts everything.
    """

    def __init__(self, prompts: Sequence[str], tokens: int) -> None:
        self._bodies = [_body(prompt, tokens) for prompt in prompts]
        self._lock = threading.Lock()
        self._next = 0

    def deal(self) -> bytes:
        """Return the body of the next request."""
        with self._lock:
            body = self._bodies[self._next % len(self._bodies)]
            self._next += 1
        return body


class PromptCaller:
    """Sends one completion after another, each on a connection that is kept.

    A token must cost little here, for the load shares the machine with what it measures: what has come
    is read at once and looked through for the server's own count, and parsed no further.
    """

    def __init__(
        self, host: str, port: int, deck: PromptDeck, times: TokenTimes, clock: Clock
    ) -> None:
        self._address = (host, port)
        self._deck, self._times, self._clock = deck, times, clock
        self._socket: socket.socket | None = None
        self._closed = False

    def send(self) -> str:
        """Send one, read its stream to the end, and return what went wrong: empty if nothing."""
        try:
            wrong = self._exchange()
        except OSError as error:
            wrong = error.strerror or type(error).__name__
        if wrong:
            self._drop()
        return CUT_OFF if wrong and self._closed else wrong

    def close(self) -> None:
        """Cut the connection."""
        self._closed = True
        self._drop()

    def _exchange(self) -> str:
        body = self._deck.deal()
        asked_s = self._clock.monotonic()
        connection = self._socket
        if connection is None:
            connection = self._socket = socket.create_connection(self._address, ANSWER_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._closed:
                return CUT_OFF
        connection.sendall(HEAD % (*self._named, len(body)) + body)
        made, before_s, tail = 0, asked_s, b""
        while not tail.endswith(END):
            chunk = connection.recv(65536)
            if not chunk:
                return "connection closed before the end of an answer"
            if not tail and not chunk.startswith(GOOD):
                return "HTTP " + chunk[9:12].decode("ascii", "replace")
            tail += chunk
            counts = MADE.findall(tail)
            tail = tail[-LONGEST_COUNT:]
            if counts and (total := int(counts[-1])) > made:
                now_s = self._clock.monotonic()
                (self._times.gaps_s if made else self._times.first_s).append(now_s - before_s)
                self._times.tokens.append((now_s, total - made))
                before_s, made = now_s, total
        return "" if made else "an answer without a token"

    @property
    def _named(self) -> tuple[bytes, int]:
        host, port = self._address
        return host.encode(), port

    def _drop(self) -> None:
        connection, self._socket = self._socket, None
        if connection is None:
            return
        with connection, suppress(OSError):
            # Wakes a thread that waits in recv, which close alone would not.
            connection.shutdown(socket.SHUT_RDWR)


def _body(prompt: str, tokens: int) -> bytes:
    asked = {"prompt": prompt, "n_predict": tokens, "temperature": 0, "stream": True}
    return json.dumps({**asked, "ignore_eos": True}).encode()
