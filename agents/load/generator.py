"""The one load generator: closed and open loop, against anything that can be sent one request.

It runs inside the agent and shares the machine with what it measures, so a request must cost little:
callers are threads that block on a socket (`agents.load.http_caller`).
"""

from __future__ import annotations

import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tuner.core import CYCLE, HIGH, LOW, Clock, Context, InvalidInput, Signal

STEP_S = 0.05
"""The longest sleep of a caller, so that a stop is noticed soon."""

PAUSE_S = 0.05
"""What a closed-loop caller waits after a failure, so that a dead server is not hammered."""

OPEN_LOOP_CALLERS = 64
"""How many requests of an asked arrival rate may be under way at once: more than any queue we plan for."""

REQUESTS = Signal("requests_in_system", askable=True)
ARRIVALS = Signal("arrival_rate_per_s", "1/s", askable=True)
"""What our load can be requested: a number of callers, or a rate of arrivals."""

CROSSING = {f"{REQUESTS.name}{LOW}", f"{REQUESTS.name}{HIGH}", CYCLE}
"""What a load that goes up and down is requested by."""

UNSENT = "not sent: all callers were busy"


@dataclass(frozen=True, slots=True)
class LoadShape:
    """How requests are sent.

    Closed loop (no rate): each of `callers` sends its next request when the last is answered. Open
    loop: Poisson arrivals at `rate_per_s`, or those of a trace at `arrivals_s`, which begins again after
    its mean gap; at most `callers` are under way at once. With `low` callers a closed loop goes from these
    to `callers` and back, by doubling and halving, in `cycle_s`.

    Raises:
        InvalidInput: no callers, or a rate that is not positive and finite, or a rate and a trace; a round
            of no time, or not from fewer callers to more.
    """

    callers: int = 4
    rate_per_s: float | None = None
    arrivals_s: tuple[float, ...] = ()
    low: int = 0
    cycle_s: float = 0.0

    @classmethod
    def from_context(cls, context: Context) -> LoadShape:
        """Return the load that a context asks for. Raises InvalidInput where it asks for no load."""
        rest = dict(context)
        if rest.keys() == CROSSING:
            low, high = (round(rest[f"{REQUESTS.name}{end}"]) for end in (LOW, HIGH))
            return cls(high, low=low, cycle_s=rest[CYCLE])
        inside, rate = rest.pop(REQUESTS.name, None), rest.pop(ARRIVALS.name, None)
        if rest or (inside is None) is (rate is None):
            raise InvalidInput(
                f"no load can be sent at {', '.join(f'{k} = {v:g}' for k, v in context.items())}",
                hint=f"request {REQUESTS.name} or {ARRIVALS.name}",
            )
        return cls(max(1, round(inside))) if inside is not None else cls(OPEN_LOOP_CALLERS, rate)

    def __post_init__(self) -> None:
        if self.callers < 1:
            raise InvalidInput(f"a load needs at least one caller, not {self.callers}")
        if (self.low or self.cycle_s) and not (
            self.closed and 0 < self.low < self.callers and 0.0 < self.cycle_s < math.inf
        ):
            raise InvalidInput(
                f"no load goes from {self.low} to {self.callers} callers and back in {self.cycle_s:g} s",
                hint="give fewer callers for the low end, and the seconds of a round",
            )
        rate = self.rate_per_s
        if rate is not None and not (math.isfinite(rate) and rate > 0.0):
            raise InvalidInput(f"an arrival rate must be positive and finite, not {rate}")
        if rate is not None and self.arrivals_s:
            raise InvalidInput("a trace has its own rate", hint="leave out the rate")

    @property
    def closed(self) -> bool:
        """Whether a caller waits for its last answer, and nothing else."""
        return self.rate_per_s is None and not self.arrivals_s

    @property
    def round_s(self) -> float:
        """The length of a trace with its last gap, after which it begins again."""
        return self.arrivals_s[-1] * len(self.arrivals_s) / (len(self.arrivals_s) - 1)

    @property
    def context(self) -> Context:
        """The load that is sent whatever the setting; an open loop's rate is measured."""
        steady = self.closed and not self.low
        return {REQUESTS.name: float(self.callers)} if steady else {}

    def active(self, seconds: float) -> int:
        """Return how many callers send so long after the start."""
        if not self.low:
            return self.callers
        doublings = math.ceil(math.log2(self.callers / self.low))
        up = [min(self.callers, self.low << step) for step in range(doublings + 1)]
        steps = [*up, *up[-2:0:-1]]
        return steps[int(seconds / self.cycle_s * len(steps)) % len(steps)]

    def __str__(self) -> str:
        if self.low:
            return f"closed loop of {self.low} to {self.callers} and back in {self.cycle_s:.4g} s"
        if self.closed:
            return f"closed loop of {self.callers}"
        if self.arrivals_s:
            return f"a trace of {len(self.arrivals_s)} arrivals in {self.round_s:.4g} s"
        return f"open loop at {self.rate_per_s:g}/s"


def sent(context: Context, signal: str) -> dict[str, float]:
    """Return a load by a signal as our callers have it: what counts the requests counts callers.

    Raises:
        InvalidInput: it names the callers, too.
    """
    targets = {
        REQUESTS.name + name.removeprefix(signal) if signal and name.startswith(signal) else name: n
        for name, n in context.items()
    }
    if len(targets) != len(context):
        raise InvalidInput(f"{' and '.join(context)} are the same load; set one of them")
    return targets


class LoadCaller(Protocol):
    """One connection to what is loaded; used by one thread, closed by another."""

    def send(self) -> str:
        """Send one request, wait for its answer, and return what went wrong: empty if nothing."""
        ...

    def close(self) -> None:
        """Release the connection; a request under way ends at once, as a failure."""
        ...


@dataclass(frozen=True, slots=True)
class Tally:
    """What a load has shown so far.

    `seconds` runs from the start to the reading or the stop. `arrived_at_s` is when each request was
    due, `completed_at_s` when each good one was answered (seconds since the start), `latencies_s`
    how long those took from the moment they were **due**, so that a stall counts against every
    request it delayed (the "coordinated omission" of Gil Tene's wrk2). All are in order of
    completion or dispatch. `failures` counts by reason.
    """

    seconds: float
    arrived_at_s: tuple[float, ...]
    completed_at_s: tuple[float, ...]
    latencies_s: tuple[float, ...]
    failures: Mapping[str, int]

    @property
    def failed(self) -> int:
        """Requests that were not answered well."""
        return sum(self.failures.values())


class LoadRun:
    """One bounded run of load; it can be read while it continues, and stopped.

    `connect` gives each caller its own connection. The arrivals of an open loop depend on the seed
    alone. The run ends by itself after `max_requests` or `max_s` seconds.
    """

    def __init__(
        self,
        connect: Callable[[], LoadCaller],
        shape: LoadShape,
        *,
        clock: Clock,
        seed: int = 0,
        max_requests: int = 1_000_000,
        max_s: float = 3600.0,
    ) -> None:
        self._shape = shape
        self._clock = clock
        self._rng = random.Random(seed)
        self._max_requests = max_requests
        self._max_s = max_s
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._busy = 0
        self._stopping = threading.Event()
        self._taken = 0
        self._arrived: list[float] = []
        self._completed: list[float] = []
        self._latencies: list[float] = []
        self._failures: Counter[str] = Counter()
        self._ended_at: float | None = None
        self._callers = [connect() for _ in range(shape.callers)]
        self._began = clock.monotonic()
        self._due = self._began
        self._threads = [
            threading.Thread(target=self._work, args=(n, c), name="load", daemon=True)
            for n, c in enumerate(self._callers)
        ]
        for thread in self._threads:
            thread.start()

    def read(self) -> Tally:
        """Return the tally so far."""
        with self._lock:
            ended = self._clock.monotonic() if self._ended_at is None else self._ended_at
            return Tally(
                ended - self._began,
                tuple(self._arrived),
                tuple(self._completed),
                tuple(self._latencies),
                dict(self._failures),
            )

    def wait(self) -> Tally:
        """Return the tally once the run has reached one of its bounds."""
        for thread in self._threads:
            thread.join()
        return self.stop()

    def stop(self, grace_s: float = 2.0) -> Tally:
        """Send no more, give what is under way `grace_s` to be answered, and return the tally.

        What is not answered by then is cut off and counted as failed, and so is what was due before
        the stop but found no free caller. Stopping twice returns the same.
        """
        with self._lock:
            if self._ended_at is None:
                self._ended_at = self._clock.monotonic()
                self._count_unsent(self._ended_at)
            self._stopping.set()
        deadline = self._clock.monotonic() + grace_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - self._clock.monotonic()))
        for caller in self._callers:
            caller.close()
        for thread in self._threads:
            thread.join(timeout=1.0)
        return self.read()

    def _work(self, number: int, caller: LoadCaller) -> None:
        while self._takes_part(number) and (due := self._next()) is not None:
            wrong = caller.send()
            now = self._clock.monotonic()
            with self._lock:
                self._busy -= 1
                if wrong:
                    self._failures[wrong] += 1
                else:
                    self._completed.append(now - self._began)
                    self._latencies.append(now - due)
            if wrong and self._shape.closed:
                self._reach(now + PAUSE_S)

    def _takes_part(self, number: int) -> bool:
        """Wait until this caller is one of those that send; False where the run was stopped before."""
        while number >= self._shape.active(self._clock.monotonic() - self._began):
            if self._stopping.is_set():
                return False
            self._clock.sleep(STEP_S)
        return True

    def _next(self) -> float | None:
        """Return when the next request was due, once it is; None where there is none any more.

        One caller waits for that moment, the others for their turn: many idle ones cost nothing.
        """
        with self._turn:
            due = self._take()
            if due is None or not self._reach(due):
                return None
            with self._lock:
                self._busy += 1
                self._arrived.append(due - self._began)
            return due

    def _take(self) -> float | None:
        """Return when the next request is due, None where there is none."""
        with self._lock:
            if self._stopping.is_set() or self._taken >= self._max_requests:
                return None
            due = self._next_due(self._clock.monotonic())
            if due - self._began >= self._max_s:
                return None
            self._taken += 1
            self._due = due
            return due

    def _next_due(self, now: float) -> float:
        shape = self._shape
        if shape.arrivals_s:
            rounds, n = divmod(self._taken, len(shape.arrivals_s))
            return self._began + rounds * shape.round_s + shape.arrivals_s[n]
        rate = shape.rate_per_s
        return now if rate is None else self._due + self._rng.expovariate(rate)

    def _reach(self, moment: float) -> bool:
        """Sleep until `moment`; False where the run was stopped before it."""
        while (left := moment - self._clock.monotonic()) > 0.0:
            if self._stopping.is_set():
                return False
            self._clock.sleep(min(left, STEP_S))
        return True

    def _count_unsent(self, until: float) -> None:
        """Count the arrivals of an open loop that were due but that no caller was free to take."""
        if self._shape.closed:
            return
        # A free caller is about to take what is due just now: that is the stop's doing.
        spared_s = STEP_S if self._busy < len(self._callers) else 0.0
        until = min(until, self._began + self._max_s) - spared_s
        while self._taken < self._max_requests and (due := self._next_due(until)) <= until:
            self._taken += 1
            self._due = due
            self._arrived.append(due - self._began)
            self._failures[UNSENT] += 1
