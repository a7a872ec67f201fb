"""The load generator, with closed and open loops, for any service with a `LoadCaller`.

It runs inside the agent, on the machine that it measures, so a request must use little CPU time: callers
are threads that block on a socket (`agents.load.http_caller`).
"""

from __future__ import annotations

import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tuner.bounds import redacted, visible
from tuner.core import CYCLE, HIGH, LOW, Clock, Context, InvalidInput, Signal

STEP_S = 0.05
"""The longest sleep of a caller in seconds; it bounds the time until a stop is noticed."""

PAUSE_S = 0.05
"""The wait of a closed-loop caller after a failure in seconds; it limits the load on a dead server."""

CLOSED_LOOP_CALLERS = 4
OPEN_LOOP_CALLERS = 64
"""The most requests in progress at a requested arrival rate; more than any queue for which we plan."""

REQUESTS = Signal("requests_in_system", askable=True)
ARRIVALS = Signal("arrival_rate_per_s", "1/s", askable=True)
"""The signals by which a load can be requested: the number of callers, or the rate of arrivals."""

CROSSING = {f"{REQUESTS.name}{LOW}", f"{REQUESTS.name}{HIGH}", CYCLE}
"""The keys of a context that requests a load which rises and falls."""

UNSENT = "not sent: all callers were busy"

MOST_REASONS = 16
"""The most reasons of failures that are counted apart; beyond, only the part before the colon is."""
SHOWN_REASONS, SHOWN_CHARACTERS = 3, 250


@dataclass(frozen=True, slots=True)
class LoadShape:
    """The pattern by which requests are sent.

    Closed loop (no rate): each of `callers` sends its next request when the last one is answered. Open
    loop: Poisson arrivals at `rate_per_s`, or the arrivals of a trace at `arrivals_s`, which is repeated
    after its mean gap; at most `callers` requests are in progress. With `low` > 0 the number of callers of
    a closed loop rises from `low` to `callers` by doubling and falls back by halving, once per `cycle_s`
    seconds.

    Raises:
        InvalidInput: there are no callers; the rate is not positive and finite, or is given with a trace;
            a cycle takes no time, or `low` is not below `callers`.
    """

    callers: int = CLOSED_LOOP_CALLERS
    rate_per_s: float | None = None
    arrivals_s: tuple[float, ...] = ()
    low: int = 0
    cycle_s: float = 0.0

    @classmethod
    def from_context(cls, context: Context) -> LoadShape:
        """Return the load that a context requests. Raises InvalidInput: it requests no load."""
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
        """Whether each caller sends its next request as soon as its last one is answered."""
        return self.rate_per_s is None and not self.arrivals_s

    @property
    def round_s(self) -> float:
        """The seconds after which a trace is repeated: its duration and one mean gap."""
        return self.arrivals_s[-1] * len(self.arrivals_s) / (len(self.arrivals_s) - 1)

    @property
    def context(self) -> Context:
        """The load that does not depend on the setting: the callers of a steady closed loop.

        Empty for other loads; the rate of an open loop is measured.
        """
        steady = self.closed and not self.low
        return {REQUESTS.name: float(self.callers)} if steady else {}

    def active(self, seconds: float) -> int:
        """Return the number of callers that send `seconds` after the start."""
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
    """Return a requested load with `signal` renamed to `requests_in_system`.

    The signal is the service's count of its requests, which is the number of our callers.

    Raises:
        InvalidInput: the request names both the signal and `requests_in_system`.
    """
    targets = {
        REQUESTS.name + name.removeprefix(signal) if signal and name.startswith(signal) else name: n
        for name, n in context.items()
    }
    if len(targets) != len(context):
        raise InvalidInput(f"{' and '.join(context)} are the same load; set one of them")
    return targets


class LoadCaller(Protocol):
    """A connection to the loaded service; one thread uses it, and another may close it."""

    def send(self) -> str:
        """Send one request, wait for its answer, and return the error; empty on success."""
        ...

    def close(self) -> None:
        """Close the connection; a request in progress fails at once."""
        ...


@dataclass(frozen=True, slots=True)
class Tally:
    """The results of a load so far.

    `seconds` is the time from the start to the reading or the stop. `arrived_at_s` has the time at which
    each request was due, and `completed_at_s` the time at which each successful one was answered, both in
    seconds since the start. `latencies_s` has the time from due to answered, so that a stall counts for
    every request that it delayed (the "coordinated omission" of Gil Tene's wrk2). Arrivals are in order of
    dispatch, the others in order of completion. `failures` counts failed requests by reason.
    """

    seconds: float
    arrived_at_s: tuple[float, ...]
    completed_at_s: tuple[float, ...]
    latencies_s: tuple[float, ...]
    failures: Mapping[str, int]

    @property
    def failed(self) -> int:
        """The number of failed requests."""
        return sum(self.failures.values())


def by_reason(failures: Mapping[str, int]) -> str:
    """Return the numbers of failed requests by reason, the most frequent first; empty for none.

    A server may write anything into a reason, also a URL's password. A message with a control character is
    refused.
    """
    first = Counter(failures).most_common(SHOWN_REASONS)
    shown = [f"{n} × {visible(redacted(why)[:SHOWN_CHARACTERS])}" for why, n in first]
    other = sum(failures.values()) - sum(n for _, n in first)
    return ", ".join([*shown, *([f"{other} for other reasons"] if other else [])])


class LoadRun:
    """One bounded run of load, which can be read while it runs, and stopped.

    `connect` makes a separate connection for each caller. The arrivals of an open loop depend only on
    its rate and the seed. The run ends without a stop after `max_requests` requests or `max_s` seconds.
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
        """Wait until the run reaches one of its bounds; return the tally."""
        for thread in self._threads:
            thread.join()
        return self.stop()

    def stop(self, grace_s: float = 2.0) -> Tally:
        """Stop the run, wait up to `grace_s` seconds for requests in progress, and return the tally.

        Requests without an answer by then are cut off and count as failed. So do requests that were due
        before the stop but for which no caller was free. A second call returns the same tally.
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
        """Send requests as one caller until the run ends, and record each result."""
        while self._takes_part(number) and (due := self._next()) is not None:
            wrong = caller.send()
            now = self._clock.monotonic()
            with self._lock:
                self._busy -= 1
                if wrong:
                    apart = wrong in self._failures or len(self._failures) < MOST_REASONS
                    self._failures[wrong if apart else wrong.partition(":")[0]] += 1
                else:
                    self._completed.append(now - self._began)
                    self._latencies.append(now - due)
            if wrong and self._shape.closed:
                self._reach(now + PAUSE_S)

    def _takes_part(self, number: int) -> bool:
        """Wait until this caller is among the active ones; return False if the run was stopped before."""
        while number >= self._shape.active(self._clock.monotonic() - self._began):
            if self._stopping.is_set():
                return False
            self._clock.sleep(STEP_S)
        return True

    def _next(self) -> float | None:
        """Wait until the next request is due; return its due time, or None if the run has ended.

        Only one caller waits for that time. The others wait for a lock, so idle callers use no CPU time.
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
        """Take the next request; return its due time, or None if the run has ended."""
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
        """Return the due time of the next request, by trace or rate; in a closed loop, `now`."""
        shape = self._shape
        if shape.arrivals_s:
            rounds, n = divmod(self._taken, len(shape.arrivals_s))
            return self._began + rounds * shape.round_s + shape.arrivals_s[n]
        rate = shape.rate_per_s
        return now if rate is None else self._due + self._rng.expovariate(rate)

    def _reach(self, moment: float) -> bool:
        """Sleep until `moment`; return False if the run was stopped before."""
        while (left := moment - self._clock.monotonic()) > 0.0:
            if self._stopping.is_set():
                return False
            self._clock.sleep(min(left, STEP_S))
        return True

    def _count_unsent(self, until: float) -> None:
        """Count as failed the open-loop arrivals that were due but for which no caller was free."""
        if self._shape.closed:
            return
        # With a free caller, requests due within its last sleep are unsent only because of the stop.
        spared_s = STEP_S if self._busy < len(self._callers) else 0.0
        until = min(until, self._began + self._max_s) - spared_s
        while self._taken < self._max_requests and (due := self._next_due(until)) <= until:
            self._taken += 1
            self._due = due
            self._arrived.append(due - self._began)
            self._failures[UNSENT] += 1
