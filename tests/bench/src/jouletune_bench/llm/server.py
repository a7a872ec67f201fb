"""A language model's server with its own clock: continuous batching, simulated event by event.

After vLLM: waiting requests are prefilled in chunks beside the decoding, first come, first served,
as far as the cache has room. If the cache overflows, the youngest request returns to the queue and
is prefilled again. A step takes the sum of its decode and prefill times, as measured ("mixed" in
the table of `boards`), and runs at the clock at which it began. Left out: prefix caches, host time
between steps beyond that in the table, and temperature.
"""

from __future__ import annotations

import heapq
import logging
import math
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from agents.devices.simulated.device import load_setting, save_setting
from agents.devices.simulated.noise import EPOCH_S, epoch_factors
from jouletune_bench.llm.boards import LlmBoard, Phases
from jouletune_bench.llm.requests import Request, ServedRequest
from tuner.core import Cost, Knob, Role, Setting, Space, StoreError

log = logging.getLogger(__name__)

CLOCK = "gpu.clock_mhz"
TICK_S = 0.1
"""The energy counter's steps, as NVML's (ml.energy)."""


@dataclass(slots=True)
class Job:
    """A request in the server: `filled` of its `tokens` are prefilled; `left` are still to be decoded."""

    request: Request
    tokens: int
    left: int
    filled: int = 0
    first_s: float = math.nan
    joined: int = 0
    decoding: bool = False


@dataclass(frozen=True, slots=True)
class ServerCounters:
    """All counters of a server at one moment; `*_s` of requests integrate their number over time."""

    now_s: float
    energy_j: float
    counter_s: float
    counter_j: float
    arrived: int
    served: int
    tokens: int
    busy_s: float
    throttled_s: float
    decoding: int
    waiting: int
    decoding_s: float
    waiting_s: float


@dataclass(slots=True)
class Segment:
    """A constant state until `end_s`: `steps` of decoding, the first with prefill of `chunks`."""

    end_s: float
    watts: float
    steps: int = 0
    chunks: tuple[tuple[Job, int], ...] = ()
    throttled: float = 0.0


class LlmServer:
    """Server, actuator and clock in one; `take` returns the requests answered since the last call."""

    def __init__(
        self,
        board: LlmBoard,
        requests: Iterator[Request],
        *,
        seed: int,
        state_file: Path | None = None,
    ) -> None:
        """Start idle at time 0, at the clock of the state file or the highest.

        Raises:
            ConfigError: the state file belongs to another server.
        """
        mhz = board.clocks_mhz
        self.board = board
        self.space = Space(
            (Knob(CLOCK, mhz, mhz[-1], cost=Cost(seconds=board.switch_s[1]), role=Role.CORE_CLOCK),)
        )
        self._lock = threading.RLock()
        self._requests, self._seed = requests, seed
        self._state_file = state_file
        self._set = dict(load_setting(state_file, self.space) if state_file else self.space.default)
        self._mhz = float(self._set[CLOCK])
        self._due_s = math.inf
        self._delays = Random(f"{seed}/switch")
        self._paces: dict[float, tuple[Phases, Phases]] = {}
        self._next = next(requests, None)
        self._waiting: deque[Job] = deque()
        self._ends: list[tuple[int, int, Job]] = []
        self._stack: list[Job] = []
        self._batch = self._context = self._partial = self._step = self._order = 0
        self._segment: Segment | None = None
        self._epoch, self._factors = -1, (1.0, 1.0)
        self._now = self._energy = self._counter = self._counter_at = 0.0
        self._busy = self._throttled = self._decoding_s = self._waiting_s = 0.0
        self._arrived = self._served = self._tokens = 0
        self._done: list[ServedRequest] = []

    def read(self) -> Setting:
        """Return the setting, which takes effect within `switch_s`."""
        return dict(self._set)

    def apply(self, setting: Setting) -> None:
        """Set the clock. Raises UnknownKnob, OutOfRange: nothing was changed."""
        for name, value in setting.items():
            knob = self.space.knob(name)
            setting = {name: knob.values[knob.index(value)]}
        with self._lock:
            if setting and setting[CLOCK] != self._set[CLOCK]:
                self._set[CLOCK] = setting[CLOCK]
                self._due_s = self._now + self._delays.uniform(*self.board.switch_s)
                if self._state_file is not None:
                    try:
                        save_setting(self._state_file, self._set)
                    except StoreError as error:
                        log.warning("the simulated server's clock is not on the disk: %s", error)

    def monotonic(self) -> float:
        """Return the server's own time in seconds since it was opened."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Advance the server's time by `seconds`, in almost no real time."""
        with self._lock:  # windows and the follower of a plan pass time in threads of their own
            end = self._now + max(0.0, seconds)
            while self._now < end:
                if self._segment is None:
                    self._segment = self._begin(end)
                stop = min(end, self._segment.end_s)
                self._pass(stop, self._segment)
                if stop >= self._segment.end_s:
                    segment, self._segment = self._segment, None
                    self._finish(segment)

    def take(self) -> list[ServedRequest]:
        """Return the requests answered since the last call, in the order of their end."""
        done, self._done = self._done, []
        return done

    def counters(self) -> ServerCounters:
        """Return the current counters; `counter_j` is as of `counter_s`, the last tick."""
        with self._lock:
            return ServerCounters(
                self._now,
                self._energy,
                self._counter_at,
                self._counter,
                self._arrived,
                self._served,
                self._tokens,
                self._busy,
                self._throttled,
                self._batch,
                len(self._waiting),
                self._decoding_s,
                self._waiting_s,
            )

    def _begin(self, end: float) -> Segment:
        self._arrive()
        if self._now >= self._due_s:
            self._mhz, self._due_s = float(self._set[CLOCK]), math.inf
        epoch = int(self._now / EPOCH_S)
        if epoch != self._epoch:
            self._epoch, self._factors = epoch, epoch_factors(self._seed, epoch)
        pace, capped = self._pace()
        chunks = self._chunks() if self._waiting else ()
        if chunks:
            return self._mixed(pace, capped, chunks)
        until = min(end, self._due_s, (epoch + 1) * EPOCH_S, self._arrival_s())
        if self._batch:
            return self._decode(pace, max(0.0, until - self._now))
        return Segment(max(until, math.nextafter(self._now, math.inf)), pace.idle_w)

    def _arrival_s(self) -> float:
        return math.inf if self._next is None else self._next.arrival_s

    def _arrive(self) -> None:
        while self._next is not None and self._next.arrival_s <= self._now:
            new = self._next
            self._waiting.append(Job(new, new.prompt_tokens, new.output_tokens))
            self._arrived += 1
            self._next = next(self._requests, None)

    def _pace(self) -> tuple[Phases, Phases]:
        """Return the phases at the current clock, and those that the power limit allows for prefill."""
        pace = self._paces.get(self._mhz)
        if pace is None:
            board, low, high = self.board, float(self.board.clocks_mhz[0]), self._mhz
            if board.at(high).prefill_w > board.limit_w:
                for _ in range(24):
                    middle = (low + high) / 2.0
                    fits = board.at(middle).prefill_w <= board.limit_w
                    low, high = (middle, high) if fits else (low, middle)
                high = low
            pace = self._paces[self._mhz] = (board.at(self._mhz), board.at(high))
        return pace

    def _room(self) -> int:
        """Return the free tokens of the cache, less one step of the decoding requests."""
        return self.board.kv_tokens - self._context - self._partial - self._batch

    def _chunks(self) -> tuple[tuple[Job, int], ...]:
        """Return the parts of the queue to prefill in the next step; empty if the cache has no room."""
        budget, room = self.board.chunk_tokens - self._batch, self._room()
        places = self.board.most_requests - self._batch
        chunks: list[tuple[Job, int]] = []
        for job in self._waiting:
            left = job.tokens - job.filled
            fits = left <= room or not (self._batch or chunks)
            if budget <= 0 or len(chunks) >= places or not fits:
                break
            now = min(left, budget)
            chunks.append((job, now))
            budget, room = budget - now, room - left
        return tuple(chunks)

    def _mixed(self, pace: Phases, capped: Phases, chunks: tuple[tuple[Job, int], ...]) -> Segment:
        a, b, c = capped.prefill
        slower, hungrier = self._factors
        fill_s = 0.0 if self._batch else a
        for job, tokens in chunks:
            fill_s += b * tokens + c * tokens * (2 * job.filled + tokens)
        step_s = self._step_s(pace) if self._batch else 0.0
        joules = fill_s * min(capped.prefill_w, self.board.limit_w)
        joules += step_s * self._decode_w(pace)
        self._partial += sum(tokens for _, tokens in chunks)
        seconds = fill_s + step_s
        throttled = fill_s * slower if capped is not pace and capped != pace else 0.0
        return Segment(
            self._now + seconds * slower, joules / seconds * hungrier, 1, chunks, throttled
        )

    def _step_s(self, pace: Phases) -> float:
        alpha, beta, gamma, delta = pace.decode
        batch = self._batch
        return alpha + beta * batch + gamma * self._context + delta * batch * batch

    def _decode_w(self, pace: Phases) -> float:
        base, each = pace.decode_w
        return min(self.board.limit_w, base + each * self._batch)

    def _decode(self, pace: Phases, seconds: float) -> Segment:
        """Return the decode steps until the next event, ending at it or one step after it."""
        self._make_room()
        slower, hungrier = self._factors
        growth = pace.decode[2] * self._batch
        first, budget_s = self._step_s(pace), seconds / slower
        linear = first - growth / 2.0
        steps = 2.0 * budget_s / (linear + math.sqrt(linear * linear + 2.0 * growth * budget_s))
        soonest = self._ends[0][0] - self._step
        space = (self.board.kv_tokens - self._context) // self._batch
        count = max(1, min(math.ceil(steps), soonest, space))
        took = count * first + growth * count * (count - 1) / 2.0
        return Segment(self._now + took * slower, self._decode_w(pace) * hungrier, count)

    def _make_room(self) -> None:
        """Return the youngest requests to the queue until all others can decode one token more."""
        while self._batch > 1 and self._context + self._batch > self.board.kv_tokens:
            job = self._stack.pop()
            if not job.decoding:
                continue
            held = job.tokens + self._step - job.joined
            job.left -= self._step - job.joined
            job.tokens, job.filled, job.decoding = held, 0, False
            self._batch -= 1
            self._context -= held
            self._waiting.appendleft(job)
        while self._ends and not self._ends[0][2].decoding:
            heapq.heappop(self._ends)

    def _pass(self, stop: float, segment: Segment) -> None:
        seconds = stop - self._now
        self._energy += segment.watts * seconds
        self._decoding_s += self._batch * seconds
        self._waiting_s += len(self._waiting) * seconds
        if segment.steps:
            self._busy += seconds
        self._now = stop
        tick = math.floor(stop / TICK_S + 1e-9) * TICK_S
        if tick > self._counter_at:
            self._counter_at = tick
            self._counter = self._energy - segment.watts * min(seconds, stop - tick)

    def _finish(self, segment: Segment) -> None:
        self._step += segment.steps
        self._context += segment.steps * self._batch
        self._tokens += segment.steps * self._batch
        self._throttled += segment.throttled
        while self._ends and (self._ends[0][0] <= self._step or not self._ends[0][2].decoding):
            job = heapq.heappop(self._ends)[2]
            if job.decoding:
                self._batch -= 1
                self._context -= job.tokens + self._step - job.joined
                self._answer(job)
        for job, tokens in segment.chunks:
            job.filled += tokens
            self._tokens += tokens
            if job.filled >= job.tokens:
                self._join(job)

    def _join(self, job: Job) -> None:
        """Move a prefilled request to the decoding ones; its first token is done."""
        self._waiting.remove(job)
        self._partial -= job.tokens
        if math.isnan(job.first_s):
            job.first_s = self._now
        job.left -= 1
        if job.left <= 0:
            self._answer(job)
            return
        job.joined, job.decoding = self._step, True
        self._batch += 1
        self._context += job.tokens
        self._order += 1
        heapq.heappush(self._ends, (self._step + job.left, self._order, job))
        self._stack = [*(j for j in self._stack if j.decoding), job]

    def _answer(self, job: Job) -> None:
        job.decoding = False
        self._served += 1
        request = job.request
        further = request.output_tokens - 1
        tpot = (self._now - job.first_s) / further if further else 0.0
        self._done.append(
            ServedRequest(
                request.arrival_s,
                job.first_s - request.arrival_s,
                tpot,
                self._now - request.arrival_s,
            )
        )
