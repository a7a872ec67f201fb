"""Measures llama-server over a window: tokens, latencies, and accepted draft tokens."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from weakref import WeakSet

from agents.load.generator import REQUESTS, LoadRun, LoadShape, Tally, sent
from agents.load.http_caller import HttpCaller
from agents.load.meter import rate_of, shown_by
from agents.load.window import OpenWindow
from agents.speculation.client import SIGNAL, SpeculationClient
from agents.speculation.messages import SpeculationStats
from tuner.core import (
    Better,
    Clock,
    Context,
    Estimate,
    Kind,
    MeasurementError,
    Metric,
    Quantity,
    Reading,
    Scope,
    TuningError,
    Window,
    quantile_estimate,
    ratio_estimate,
    reraised,
)

SHARE = Quantity("1")
MILLISECONDS = Quantity("ms", Better.LESS, Kind.TIME)
THROUGHPUT = Metric("throughput_per_s", scope=Scope.SERVICE)
STEP = Metric("step_ms", scope=Scope.SERVICE, quantity=MILLISECONDS)
LOAD = Metric(SIGNAL, scope=Scope.SERVICE, quantity=SHARE)
MADE = re.compile(rb'"(?:tokens_predicted|completion_tokens)":\s*(\d+)(?=\D)')
LONGEST_COUNT = 64
ANSWER_S = 120.0


def accepted_metrics(longest: int) -> tuple[Metric, ...]:
    """Return the speculation metrics that a window may report, up to a draft length."""
    positions = [f"accepted_at_{i}" for i in range(1, longest + 1)]
    names = [*positions, "accepted_per_step"]
    shares = [Metric(name, scope=Scope.SERVICE, quantity=SHARE) for name in names]
    return (*shares, LOAD, STEP)


def speculation_shown(
    before: SpeculationStats, now: SpeculationStats, length: int
) -> dict[str, Estimate]:
    """Compute a window's speculation metrics at one draft length from the proxy's counters.

    A server that counts its steps (llama.cpp 0.3.36) also counts accepted tokens by position. Other builds
    do not: the number of steps is then the drafted tokens divided by the length, and `step_ms` is missing,
    because these builds run a plain pass between two steps. Standard errors treat steps as independent.
    If only the mean is available, its variance is at most l·(s - l) (Bhatia and Davis 2000).
    """
    shown: dict[str, Estimate] = {}
    busy_s = now.decoding_busy_s - before.decoding_busy_s
    if busy_s > 0.0:
        shown[SIGNAL] = _mean((now.decoding_s - before.decoding_s) / busy_s, 0.0, 1)
    steps, passes = now.steps - before.steps, now.passes - before.passes
    by_step = now.steps > 0 or length == 0
    if by_step and passes > 0:
        step_ms = 1000.0 * (now.generating_s - before.generating_s) / passes
        shown["step_ms"] = _mean(step_ms, 0.0, passes)
    if length == 0:
        return shown
    if steps > 0:
        counts = _since(now.accepted_by_position, before.accepted_by_position)[:length]
        shares = [min(1.0, count / steps) for count in counts]
        for i, share in enumerate(shares, 1):
            spread = math.sqrt(share * (1.0 - share) / steps)
            shown[f"accepted_at_{i}"] = _mean(share, spread, steps)
        mean = (now.steps_accepted - before.steps_accepted) / steps
        square = math.fsum((2 * i - 1) * share for i, share in enumerate(shares, 1))
        shown["accepted_per_step"] = _mean(
            mean, math.sqrt(max(0.0, square - mean**2) / steps), steps
        )
    elif not by_step and now.drafted > before.drafted:
        steps = max(1, round((now.drafted - before.drafted) / length))
        mean = min(float(length), (now.accepted - before.accepted) / steps)
        spread = math.sqrt(mean * (length - mean) / steps)
        shown["accepted_per_step"] = _mean(mean, spread, steps)
    return shown


class DecodingWindow(OpenWindow):
    """The proxy's counters since the window was opened, for live traffic; no request is sent."""

    def __init__(self, client: SpeculationClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._before = self._stats()
        self._length = self._in_force()
        self._looks = [(clock.monotonic(), self._before)]

    def _shown(self) -> Reading:
        """Read the counters; return the metrics so far. Raises MeasurementError after a restart."""
        before, now = self._before, self._stats()
        if now.incarnation != before.incarnation or now.items < before.items:
            raise MeasurementError("the proxy was restarted", hint="measure again")
        if now.restarts != before.restarts:
            raise MeasurementError("llama-server ended within the window", hint="measure again")
        self._looks.append((self._clock.monotonic(), now))
        totals = {
            "items": float(now.items - before.items),
            "failed": float(now.failed - before.failed),
            "cpu_s": max(0.0, now.cpu_s - before.cpu_s),
        }
        shown = {}
        if self._length is not None:
            shown = speculation_shown(before, now, self._length)
        ratios = self._ratios()
        sure = {name: ratios[name] for name in ratios if name in shown or name == THROUGHPUT.name}
        return Reading(totals, shown | sure)

    def _ratios(self) -> dict[str, Estimate]:
        """Pool the ratios of the readings within the window, if there were enough of them."""
        pairs = [(a, b) for a, b in pairwise(self._looks) if b[0] > a[0]]
        tokens = [(float(b.items - a.items), then - now) for (now, a), (then, b) in pairs]
        passes = [
            (b.generating_s - a.generating_s, float(b.passes - a.passes))
            for (_, a), (_, b) in pairs
        ]
        load = [
            (b.decoding_s - a.decoding_s, b.decoding_busy_s - a.decoding_busy_s)
            for (_, a), (_, b) in pairs
        ]
        ratios = {
            THROUGHPUT.name: ratio_estimate(tokens, 1.0, THROUGHPUT),
            STEP.name: ratio_estimate(passes, 1000.0, STEP),
            SIGNAL: ratio_estimate(load, 1.0, LOAD),
        }
        return {name: estimate for name, estimate in ratios.items() if estimate is not None}

    def _stats(self) -> SpeculationStats:
        """Return the proxy's counters. Raises MeasurementError."""
        with reraised(MeasurementError, TuningError):
            return self._client.stats()

    def _in_force(self) -> int | None:
        """Return the window's draft length, or None if a plan changes it."""
        with reraised(MeasurementError, TuningError):
            followed = self._client.plan()
            knobs = self._client.knobs()
            length = knobs.setting[knobs.length]
        return int(length) if followed is None or len(followed.rows) == 1 else None


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
    """Deal prompts in turn to the next caller, as streamed, greedy completions of exactly `tokens` tokens.

    With a `model` they are in OpenAI's form, and each piece of an answer counts its tokens, as vLLM does.

    No prompt repeats before all others were sent: llama.cpp of 0.3.16 replays its output for the
    last prompt of a slot if the next one is the same, and then accepts every drafted token.
    """

    def __init__(self, prompts: Sequence[str], tokens: int, model: str = "") -> None:
        form: dict[str, object] = {"n_predict": tokens}
        if model:
            usage = {"include_usage": True, "continuous_usage_stats": True}
            form = {"model": model, "max_tokens": tokens, "stream_options": usage}
        form |= {"temperature": 0, "stream": True, "ignore_eos": True}
        self.path = "/v1/completions" if model else "/completion"
        self._bodies = [json.dumps({"prompt": prompt, **form}).encode() for prompt in prompts]
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
            host, port, deck.path, body=deck.deal, timeout_s=ANSWER_S, seen=self._count
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


@dataclass(frozen=True, slots=True)
class PromptMeter:
    """Measure under our own load: callers that stream completions of given prompts."""

    _client: SpeculationClient
    _address: tuple[str, int]
    _deck: PromptDeck
    _shape: LoadShape
    _clock: Clock
    _seed: int
    _runs: WeakSet[LoadRun] = field(default_factory=WeakSet)

    @property
    def context(self) -> Context:
        """The load that is sent."""
        return {SIGNAL: self._shape.context[REQUESTS.name]} if self._shape.context else {}

    def offering(self, context: Context) -> PromptMeter:
        """Return the meter at another load. Raises InvalidInput if the context names none."""
        return replace(self, _shape=LoadShape.from_context(sent(context, SIGNAL)))

    def start(self) -> Window:
        """Start the load. Raises MeasurementError."""
        decoding = DecodingWindow(self._client, self._clock)
        times = TokenTimes()

        def connect() -> PromptCaller:
            return PromptCaller(*self._address, self._deck, times, self._clock)

        began_s = self._clock.monotonic()
        run = LoadRun(connect, self._shape, clock=self._clock, seed=self._seed)
        self._runs.add(run)
        return PromptWindow(run, decoding, times, began_s)

    def close(self) -> None:
        """Stop the load of all open windows."""
        for run in list(self._runs):
            run.stop(grace_s=0.0)


@dataclass(slots=True)
class PromptWindow(OpenWindow):
    """An open window under our load. Tokens and latencies are those that our callers saw."""

    _run: LoadRun
    _decoding: DecodingWindow
    _times: TokenTimes
    _began_s: float

    def _shown(self) -> Reading:
        """Return the metrics so far. Raises MeasurementError."""
        return self._reading(self._decoding.read(), self._run.read())

    def _ended(self) -> Reading:
        """Stop the load and return the window's metrics. Raises MeasurementError."""
        try:
            decoding = self._decoding.stop()
        finally:  # the load ends also if the proxy does not answer
            tally = self._run.stop()
        return self._reading(decoding, tally)

    def _reading(self, decoding: Reading, tally: Tally) -> Reading:
        """Return a reading with the tokens and latencies that our callers saw."""
        timed = [(t - self._began_s, n) for t, n in list(self._times.tokens)]
        within = [(t, n) for t, n in timed if t < tally.seconds]
        latencies = {k: v for k, v in shown_by(tally).items() if k.startswith("latency_")}
        totals = {**decoding.totals, "items": float(sum(n for _, n in within))}
        totals["failed"] = float(tally.failed)
        rate = {THROUGHPUT.name: rate_of(within, tally.seconds)} if within else {}
        estimates = {**decoding.estimates, **latencies, **_token_times(self._times), **rate}
        return replace(decoding, totals=totals, estimates=estimates)


def _token_times(times: TokenTimes) -> dict[str, Estimate]:
    """Return p50 and p99 of the times to the first token and between tokens, in ms."""
    gaps, first = [1000.0 * s for s in times.gaps_s], [1000.0 * s for s in times.first_s]
    shown = {}
    for name, values in (("inter_token", gaps), ("time_to_first_token", first)):
        if values:
            shown[f"{name}_p50_ms"] = quantile_estimate(values, 0.50)
            shown[f"{name}_p99_ms"] = quantile_estimate(values, 0.99)
    return shown


def _since(now: Sequence[int], before: Sequence[int]) -> list[int]:
    """Return the growth of counters by position; a position that is new counts from 0."""
    padded = [*before, *(0 for _ in range(len(now) - len(before)))]
    return [max(0, a - b) for a, b in zip(now, padded, strict=False)]


def _mean(mean: float, stderr: float, n: int) -> Estimate:
    """Return a mean of the service with its standard error."""
    return Estimate.of_mean(mean, stderr, n, scope=Scope.SERVICE)
