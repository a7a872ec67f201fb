"""A server that runs at its default while requests wait, so that the fastest clock serves a burst."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jouletune_bench.llm import Request, ServedRequest, ServerCounters, ServesRequests
from tests.bench.load.servers import Opener, quantile
from tuner.core import Setting, Space

LOOK_S = 0.5
SELDOM, LEAST = 0.95, 2.0
"""The escape begins when more requests wait than at the default for this share of the time, and more than
this number.
"""
SERVED = 0.85
"""It ends once this share of its peak number of requests in the server is left."""
SMOOTH_S = 30.0
"""Time constant of the rate."""
QUEUE_S = 1800.0
"""The time for which the default is observed before a study."""


class Escaping:
    """Any server; `apply` sets the setting outside an escape, and `read` returns it."""

    def __init__(self, inner: ServesRequests, queue: float, rate: float = math.inf) -> None:
        """Escape while more than `queue` requests wait, or more than `rate` arrive per second."""
        self.space: Space = inner.space
        self.answered: list[ServedRequest] = []
        self._inner, self._queue, self.above = inner, queue, rate
        self._wanted = dict(inner.read())
        self._most = 0
        self._last = inner.counters()
        self.rate, self.top = 0.0, 0.0

    def read(self) -> Setting:
        """Return the setting outside an escape."""
        return dict(self._wanted)

    def apply(self, setting: Setting) -> None:
        """Set the setting outside an escape."""
        self._wanted |= setting
        if not self._most:
            self._inner.apply(setting)

    def monotonic(self) -> float:
        """Return the server's time."""
        return self._inner.monotonic()

    def counters(self) -> ServerCounters:
        """Return the current counters."""
        return self._inner.counters()

    def take(self) -> list[ServedRequest]:
        """Return the requests answered since the last call, and store them for the judge."""
        new = self._inner.take()
        self.answered += new
        return new

    def sleep(self, seconds: float) -> None:
        """Advance the time, and check the queue every half second."""
        end = self.monotonic() + seconds
        while (left := end - self.monotonic()) > 1e-9:
            self._inner.sleep(min(LOOK_S, left))
            self._look()

    def _look(self) -> None:
        now, last = self._inner.counters(), self._last
        seconds = now.now_s - last.now_s
        if seconds <= 0.0:
            return
        self._last = now
        self.rate += ((now.arrived - last.arrived) / seconds - self.rate) * (
            1.0 - math.exp(-seconds / SMOOTH_S)
        )
        self.top = max(self.top, self.rate)
        inside = now.waiting + now.decoding
        before = self._most
        if now.waiting > self._queue or self.rate > self.above:
            self._most = max(self._most, inside, 1)
        elif inside <= SERVED * self._most:
            self._most = 0
        if bool(before) != bool(self._most):
            self._inner.apply(self.space.default if self._most else self._wanted)


def queue_of(open_server: Opener, requests: Sequence[Request], seed: int, seconds: float) -> float:
    """Return the number of waiting requests that the default exceeds in 5 % of the time, at least 2."""
    server = open_server(requests, seed)
    seen = []
    while server.monotonic() < seconds:
        server.sleep(LOOK_S)
        seen.append(float(server.counters().waiting))
    return max(LEAST, quantile(seen, SELDOM))


def escaping(open_server: Opener, queue: float, rate: float = math.inf) -> Opener:
    """Return a function that opens servers with the escape."""
    return lambda requests, seed: Escaping(open_server(requests, seed), queue, rate)
