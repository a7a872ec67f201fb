"""Streamed answers of an OpenAI API (`/v1/completions`): time to first token, time per output token.

The load shares the machine with the server, so an answer's pieces are searched by pattern instead of
parsed as JSON. The definitions are those of `vllm bench serve`: TTFT is the time from the request to the
first piece; TPOT is the time from the first to the last piece, per token after the first. With one
difference: a piece without text, like one with only a role, is not the first, unless the answer has no
text at all.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Any

from agents.load.generator import LoadCaller, LoadRun, Tally, by_reason
from agents.load.http_caller import CUT_OFF
from agents.load.meter import LoadMeter, LoadWindow, rate_of
from tuner.core import (
    Better,
    Clock,
    Estimate,
    Kind,
    MeasurementError,
    Metric,
    OverDevices,
    OverWindows,
    Quantity,
    Reading,
    Scope,
    Window,
    quantile_estimate,
)
from tuner.foreign_bodies import parsed

EVENT = re.compile(rb"data: ?\{")
FAILED_STREAM = "an error in the stream"
USAGE = re.compile(rb'"completion_tokens"\s*:\s*(\d+)')
TEXT = re.compile(rb'"(?:text|content|reasoning_content|reasoning)"\s*:\s*"[^"]')
"""The text of an answer, or of the reasoning before it."""
LONGEST_USAGE = 2000
"""The bytes at an answer's end that are searched for its number of tokens."""
NO_USAGE = "an answer without its number of tokens"
NEXT_STEPS = {
    "HTTP 400": "shorten prompt and output of the load: they may exceed the model's context",
    "HTTP 401": "give an address that needs no API key, or the key in headers of [load]",
    "HTTP 403": "give an address that needs no API key, or the key in headers of [load]",
    "HTTP 404": "check that the server offers /v1/completions for this model",
    "HTTP 429": "lower the rate or the callers of the load, or raise the server's limit of requests",
    "HTTP 503": "wait until the model is loaded, or lower the rate or the callers of the load",
    NO_USAGE: "take a version of the server that reports `usage` in its streams",
}
"""The next step for each error of a load's answers."""
MOST_REFUSED = 0.01
"""A window is invalid if more than two requests, and more than this share, were refused; our choice."""
PAUSE_S = 1.0
"""Idle seconds after which a request counts as a first one: the server may have to load the model again."""
FIRST = "first_request_ms"
LIMITS = ("ttft_ms", "tpot_ms")
"""The metrics whose limits decide whether a request counts as good."""

SHARES = (50, 95, 99)
"""The quantiles of TTFT and TPOT in percent."""
TAIL_MS = Quantity("ms", Better.LESS, Kind.TIME, over_windows=OverWindows.TAIL)
FIRST_MS = Quantity("ms", Better.LESS, Kind.TIME)
GOODPUT = Quantity("1/s", Better.MORE, over_devices=OverDevices.LEAST)

Connect = Callable[[Callable[[bytes], None]], LoadCaller]
"""Creates a caller that passes the pieces of its answers to a function."""


@dataclass(slots=True)
class StreamTimes:
    """The times that the callers of one window measured.

    `quiet_since_s` is the time at which the last request ended, `inside` the number of requests in
    progress, and `pieces` the number of pieces of answers that are in progress or failed.
    """

    quiet_since_s: float
    inside: int = 0
    after_pause_ms: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)
    per_token_ms: list[float] = field(default_factory=list)
    ended: list[tuple[float, bool]] = field(default_factory=list)
    """Per answer: the time of its last piece in s, and whether it kept the limits."""
    ended_tokens: int = 0
    pieces: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def tokens(self) -> int:
        """All tokens so far; an answer that is in progress or failed counts one token per piece."""
        with self.lock:
            return self.ended_tokens + self.pieces


class StreamCaller:
    """Sends one request after another over a kept connection, and times the pieces of each answer."""

    def __init__(
        self, connect: Connect, times: StreamTimes, clock: Clock, limits: Mapping[str, float]
    ) -> None:
        self._times, self._clock, self._limits = times, clock, limits
        self._http = connect(self._look)
        self.close = self._http.close
        self._events, self._first_s, self._last_s, self._tail = 0, 0.0, 0.0, b""
        self._text = False

    def send(self) -> str:
        """Send one request, read its stream to the end, and return the error; empty on success."""
        self._events, self._tail, self._text = 0, b"", False
        began_s = self._clock.monotonic()
        times = self._times
        with times.lock:
            after_pause = not times.inside and began_s - times.quiet_since_s >= PAUSE_S
            times.inside += 1
        wrong = self._http.send()
        with times.lock:
            times.inside -= 1
            times.quiet_since_s = self._clock.monotonic()
        # The first line is the status, or the end of one that is cut off.
        wrong = wrong or stream_error(self._tail.partition(b"\n")[2])
        usage = USAGE.findall(self._tail)
        tokens = int(usage[-1]) if usage else 0
        if wrong or not tokens or not self._events:
            return wrong or NO_USAGE  # its pieces stay counted, because the server decoded them
        with times.lock:
            times.pieces -= self._events
            shown = {"ttft_ms": 1000.0 * (self._first_s - began_s)}
            times.first_ms.append(shown["ttft_ms"])
            if after_pause:
                times.after_pause_ms.append(shown["ttft_ms"])
            if tokens > 1:
                shown["tpot_ms"] = 1000.0 * (self._last_s - self._first_s) / (tokens - 1)
                times.per_token_ms.append(shown["tpot_ms"])
            good = all(shown.get(name, 0.0) <= limit for name, limit in self._limits.items())
            times.ended.append((self._last_s, good))
            times.ended_tokens += tokens
        return ""

    def _look(self, piece: bytes) -> None:
        """Record the time of a piece with an event or the first text; either may span two pieces."""
        whole, seen = self._tail + piece, len(self._tail)
        events = sum(match.end() > seen for match in EVENT.finditer(whole, max(0, seen - 6)))
        self._tail = whole[-LONGEST_USAGE:]
        begins = not self._text and TEXT.search(whole) is not None
        if not events and not begins:
            return
        now_s = self._clock.monotonic()
        if begins or not self._events:
            self._first_s = now_s
        self._text = self._text or begins
        self._last_s = now_s
        self._events += events
        with self._times.lock:
            self._times.pieces += events


@dataclass(frozen=True, eq=False)
class StreamMeter(LoadMeter):
    """Measures a service under our load of streamed answers; its items are output tokens.

    A request counts for `goodput_per_s` if it keeps the `limits` (`ttft_ms`, `tpot_ms`).
    """

    limits: Mapping[str, float] = field(kw_only=True)

    def start(self) -> Window:
        """Start the load. Raises MeasurementError: the service does not report its totals."""
        totals, times = self._counting(), StreamTimes(self._clock.monotonic())

        def counted() -> Mapping[str, float]:
            return {"items": float(times.tokens), **totals()}

        def connect() -> StreamCaller:
            return StreamCaller(self._connect, times, self._clock, self.limits)

        began_s = self._clock.monotonic()
        run = LoadRun(connect, self._shape, clock=self._clock, seed=self._seed)
        self._runs.add(run)
        return StreamWindow(
            LoadWindow(run, counted, self._counted, self._shape.callers),
            run,
            times,
            began_s,
            self.limits,
        )


@dataclass(frozen=True)
class StreamWindow:
    """An open window under a load of streamed answers."""

    _window: LoadWindow
    _run: LoadRun
    _times: StreamTimes
    _began_s: float
    _limits: Mapping[str, float]

    def read(self) -> Reading:
        """Return the window's metrics so far. Raises MeasurementError."""
        return self._with(self._window.read())

    def stop(self) -> Reading:
        """Stop the load and return the window's metrics. Raises MeasurementError."""
        reading = self._with(self._window.stop())
        tally = self._run.read()
        if not tally.completed_at_s and set(tally.failures) <= {CUT_OFF}:
            raise MeasurementError(
                f"no answer ended within {tally.seconds:.0f} s",
                hint="give a longer --window, or ask for fewer tokens: --generate-load output=N",
            )
        return reading

    def _with(self, reading: Reading) -> Reading:
        """Return a reading with the metrics of streamed answers instead of the rate of requests."""
        times, tally = self._times, self._run.read()
        seconds = tally.seconds
        _demand_few_refusals(tally)
        with times.lock:
            ended, first, per_token, after_pause = (
                list(times.ended),
                list(times.first_ms),
                list(times.per_token_ms),
                list(times.after_pause_ms),
            )
        estimates = dict(reading.estimates)
        estimates.pop(
            "throughput_per_s", None
        )  # it is per request; the agent derives the rate of tokens
        for name, values in (("ttft", first), ("tpot", per_token)):
            if values:
                for share in SHARES:
                    estimates[f"{name}_p{share}_ms"] = quantile_estimate(values, share / 100.0)
        if len(after_pause) > 1:
            spread = stdev(after_pause) / math.sqrt(len(after_pause))
            estimates[FIRST] = Estimate.of_mean(
                fmean(after_pause), spread, len(after_pause), scope=Scope.SERVICE
            )
        if ended and seconds > 0.0 and self._limits:
            good = [(moment - self._began_s, int(kept)) for moment, kept in ended]
            if any(moment < seconds for moment, _ in good):  # otherwise all ended after the reading
                estimates["goodput_per_s"] = rate_of(good, seconds)
        return replace(reading, estimates=estimates)


def stream_error(answer: bytes) -> str:
    """Return the error in an answer with status 200, in the form of any engine; empty if it has none.

    It is an event with `error`, a text or an object (guidellm 743, huggingface_hub 1651), an event of the
    type `error`, a field `error:` (llama.cpp 14566), or a JSON object that is no event.
    """
    kind = b""
    for line in answer.splitlines() if b"error" in answer else ():
        key, _, text = line.partition(b":")
        if key == b"event":
            kind = text.strip()
        if key not in (b"data", b"error") and line[:1] != b"{":
            continue
        event: Any = (line if line[:1] == b"{" else text).decode(errors="replace").strip()
        with suppress(ValueError):
            event = parsed(event)
        fields = event if isinstance(event, dict) else {}
        wholly = b"error" in (kind, key) or "error" in (fields.get("object"), fields.get("type"))
        failed = fields.get("error") or (event if wholly else None)
        if failed:
            why = failed.get("message", failed) if isinstance(failed, dict) else failed
            return f"{FAILED_STREAM}: {str(why)[:200]}"
    return ""


def next_step(wrong: str) -> str:
    """Return the next step for an error of a load's answers."""
    return NEXT_STEPS.get(wrong, "check the server's log")


def _demand_few_refusals(tally: Tally) -> None:
    """Raise MeasurementError if the server refused too many requests or did not report their tokens."""
    counted = (NO_USAGE, FAILED_STREAM, "HTTP ")
    refused = {why: n for why, n in tally.failures.items() if why.startswith(counted)}
    count, answered = sum(refused.values()), len(tally.completed_at_s)
    if count > max(2, MOST_REFUSED * (count + answered)):
        most = max(refused, key=refused.__getitem__)
        raise MeasurementError(
            f"{count} of {count + answered} requests failed ({by_reason(refused)})",
            hint=next_step(most),
        )


def stream_metrics(goodput: bool, closed: bool) -> tuple[Metric, ...]:
    """Return the metrics of a window of streamed answers.

    A closed loop has no pauses, so it has no time of a first request after a pause.
    """
    tails = [f"{name}_p{share}_ms" for name in ("ttft", "tpot") for share in SHARES]
    return (
        *(Metric(name, scope=Scope.SERVICE, quantity=TAIL_MS) for name in tails),
        *(() if closed else [Metric(FIRST, scope=Scope.SERVICE, quantity=FIRST_MS)]),
        *([Metric("goodput_per_s", scope=Scope.SERVICE, quantity=GOODPUT)] if goodput else []),
    )
