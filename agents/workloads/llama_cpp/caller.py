"""Our own load on the proxy: streamed completions of given prompts, timed token by token."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from agents.load.generator import CUT_OFF
from tuner.core import Clock

MADE = re.compile(rb'"tokens_predicted":\s*(\d+)')
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
    """Sends one completion after another, each on a connection that is kept."""

    def __init__(
        self, host: str, port: int, deck: PromptDeck, times: TokenTimes, clock: Clock
    ) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
        self._deck, self._times, self._clock = deck, times, clock
        self._closed = False

    def send(self) -> str:
        """Send one, read its stream to the end, and return what went wrong: empty if nothing."""
        try:
            wrong = self._exchange()
        except (OSError, http.client.HTTPException, AttributeError, ValueError) as error:
            # A connection closed by another thread fails in many ways.
            wrong = str(error) or type(error).__name__
            self._connection.close()
        return CUT_OFF if wrong and self._closed else wrong

    def close(self) -> None:
        """Cut the connection."""
        self._closed = True
        connection = self._connection.sock
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
        self._connection.close()

    def _exchange(self) -> str:
        if self._closed:
            return CUT_OFF
        before_s = self._clock.monotonic()
        self._connection.request(
            "POST", "/completion", self._deck.deal(), {"Content-Type": "application/json"}
        )
        response = self._connection.getresponse()
        if response.status != 200:
            response.read()
            return f"HTTP {response.status}"
        made = 0
        while line := response.readline():
            found = MADE.search(line)
            if found is None:
                continue
            now_s, total = self._clock.monotonic(), int(found.group(1))
            if total > made:
                (self._times.gaps_s if made else self._times.first_s).append(now_s - before_s)
                self._times.tokens.append((now_s, total - made))
                before_s, made = now_s, total
        return "" if made else "an answer without a token"


def _body(prompt: str, tokens: int) -> bytes:
    asked = {"prompt": prompt, "n_predict": tokens, "temperature": 0, "stream": True}
    return json.dumps({**asked, "ignore_eos": True}).encode()
