"""Load generator for the proxy: streamed completions of given prompts, timed token by token."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from agents.load.http_caller import HttpCaller
from tuner.core import Clock

MADE = re.compile(rb'"tokens_predicted":\s*(\d+)(?=\D)')
LONGEST_COUNT = 64
ANSWER_S = 120.0


@dataclass(slots=True)
class TokenTimes:
    """Token timestamps of all callers in one window.

    `tokens` holds pairs (clock time in s, number of tokens) for each piece of an answer. `gaps_s`
    holds the seconds between two neighbouring pieces, `first_s` those from a request to its first
    piece.
    """

    tokens: list[tuple[float, int]] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)


class PromptDeck:
    """Deal prompts in turn to the next caller.

    No prompt repeats before all others were sent: llama.cpp of 0.3.16 replays its output for the
    last prompt of a slot if the next one is the same, and then accepts every drafted token.
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
    """Send one completion after another over a kept-alive connection.

    The load shares the machine with the server under test, so a token must cost little CPU: the
    bytes are searched for the server's own count, and their JSON is not parsed.
    """

    def __init__(
        self, host: str, port: int, deck: PromptDeck, times: TokenTimes, clock: Clock
    ) -> None:
        self._times, self._clock = times, clock
        self._http = HttpCaller(
            host, port, "/completion", body=deck.deal, timeout_s=ANSWER_S, seen=self._count
        )
        self.close = self._http.close
        self._before_s, self._made, self._tail = 0.0, 0, b""

    def send(self) -> str:
        """Send one request, read its stream to the end, and return the error, or an empty text."""
        self._before_s, self._made, self._tail = self._clock.monotonic(), 0, b""
        wrong = self._http.send()
        return wrong or ("" if self._made else "an answer without a token")

    def _count(self, piece: bytes) -> None:
        """Count the tokens in a piece of an answer, and note the time."""
        tail = self._tail + piece
        counts = MADE.findall(tail)
        self._tail = tail[-LONGEST_COUNT:]
        if counts and (total := int(counts[-1])) > self._made:
            now_s = self._clock.monotonic()
            gaps_s = self._times.gaps_s if self._made else self._times.first_s
            gaps_s.append(now_s - self._before_s)
            self._times.tokens.append((now_s, total - self._made))
            self._before_s, self._made = now_s, total


def _body(prompt: str, tokens: int) -> bytes:
    """Return the JSON body of a streamed, greedy completion of exactly `tokens` tokens."""
    request = {"prompt": prompt, "n_predict": tokens, "temperature": 0, "stream": True}
    return json.dumps({**request, "ignore_eos": True}).encode()
