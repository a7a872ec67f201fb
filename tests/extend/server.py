"""A server of your own for `make bench-load DEVICE=server:open_server`: one request at a time, two clocks.

A request takes one millisecond per token at the fast clock and two at the slow one. It draws 200 or 80
W while it serves, 50 W while it waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from jouletune_bench.llm import Request, ServedRequest, ServerCounters
from tuner.core import Knob, Role, Setting, Space

SPACE = Space((Knob("gpu.clock_mhz", (600, 1200), 1200, role=Role.CORE_CLOCK),))
BUSY_W, IDLE_W = {600: 80.0, 1200: 200.0}, 50.0


def open_server(requests: Sequence[Request], seed: int) -> OneByOne:
    """Return a server for these requests."""
    return OneByOne(requests)


class OneByOne:
    """Serves in the order of arrival; `sleep` advances its time."""

    space = SPACE

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = list(requests)
        self._mhz, self._now, self._free_s = 1200, 0.0, 0.0
        self._energy = self._busy = 0.0
        self._queue: list[tuple[float, ServedRequest, int]] = []
        self._due: list[tuple[float, float]] = []
        self._arrived = self._served = self._tokens = 0

    def read(self) -> Setting:
        return {"gpu.clock_mhz": self._mhz}

    def apply(self, setting: Setting) -> None:
        SPACE.check({**self.read(), **setting})
        self._mhz = int({**self.read(), **setting}["gpu.clock_mhz"])

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        end = self._now + seconds
        while self._arrived < len(self._requests):
            new = self._requests[self._arrived]
            if new.arrival_s > end:
                break
            each_s = 0.001 * 1200 / self._mhz
            began = max(self._free_s, new.arrival_s)
            first = began + each_s * new.prompt_tokens
            self._free_s = first + each_s * new.output_tokens
            served = ServedRequest(
                new.arrival_s, first - new.arrival_s, each_s, self._free_s - new.arrival_s
            )
            self._queue.append((self._free_s, served, new.prompt_tokens + new.output_tokens))
            self._due.append((began, self._free_s))
            self._arrived += 1
        busy = sum(max(0.0, min(end, b) - max(self._now, a)) for a, b in self._due)
        self._due = [span for span in self._due if span[1] > end]
        self._busy += busy
        self._energy += busy * BUSY_W[self._mhz] + (seconds - busy) * IDLE_W
        self._now = end

    def counters(self) -> ServerCounters:
        waiting = sum(end > self._now for end, _, _ in self._queue)
        return ServerCounters(
            now_s=self._now, energy_j=self._energy, counter_s=self._now, counter_j=self._energy,
            arrived=self._arrived, served=self._served, tokens=self._tokens, busy_s=self._busy,
            throttled_s=0.0, decoding=min(1, waiting), waiting=max(0, waiting - 1),
            decoding_s=self._busy, waiting_s=0.0,
        )  # fmt: skip

    def take(self) -> list[ServedRequest]:
        done = [each for each in self._queue if each[0] <= self._now]
        self._queue = self._queue[len(done) :]
        self._served += len(done)
        self._tokens += sum(tokens for _, _, tokens in done)
        return [served for _, served, _ in done]
