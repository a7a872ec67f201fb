"""The side of a simulated language model's server, with its meter and its signals.

It accepts any server with `ServesRequests`; ours is `LlmServer`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from agents.target.side import Side, SignalSample
from jouletune_bench.llm.requests import ServedRequest
from jouletune_bench.llm.server import ServerCounters
from tuner.core import (
    Estimate,
    MeasurementError,
    Metric,
    Origin,
    Reading,
    Scope,
    Setting,
    Signal,
    Space,
    quantile_estimate,
)

VERSION = "LLM simulator 1"
"""Increase it whenever the physics changes: older evidence then no longer counts."""
QUANTILES = {
    "time_to_first_token_p50_ms": (0.50, "ttft_s"),
    "time_to_first_token_p99_ms": (0.99, "ttft_s"),
    "inter_token_p99_ms": (0.99, "tpot_s"),
    "latency_p50_ms": (0.50, "latency_s"),
    "latency_p99_ms": (0.99, "latency_s"),
}
"""`inter_token` is a request's mean time per further token, TPOT, as in serving benchmarks."""
METRICS = (
    Metric("energy_j", Origin.SIMULATED, Scope.BOARD),
    Metric("power_w", Origin.SIMULATED, Scope.BOARD),
    *(
        Metric(name, Origin.SIMULATED, Scope.SERVICE)
        for name in (*QUANTILES, "throughput_per_s", "arrival_rate_per_s")
    ),
)
TOTALS: dict[str, tuple[str, Callable[[ServerCounters], float]]] = {
    "arrival_rate_per_s": ("1/s", lambda c: c.arrived),
    "decoding_requests": ("1", lambda c: c.decoding_s),
    "waiting": ("1", lambda c: c.waiting_s),
    "tokens_per_s": ("1/s", lambda c: c.tokens),
    "utilisation": ("1", lambda c: c.busy_s),
}
"""A signal's unit, and the counter whose growth per second it is."""
PRESENT: dict[str, Callable[[ServerCounters], float]] = {
    "decoding_requests": lambda c: c.decoding,
    "waiting": lambda c: c.waiting,
}


class ServesRequests(Protocol):
    """A server that replays a trace of requests on its own clock, which only `sleep` advances.

    Actuator and clock in one. Its requests and their arrival times are given to its constructor.
    """

    @property
    def space(self) -> Space:
        """The space of its knobs."""
        ...

    def read(self) -> Setting:
        """Return the current setting."""
        ...

    def apply(self, setting: Setting) -> None:
        """Set the named knobs and keep the others."""
        ...

    def monotonic(self) -> float:
        """Return its own time, in seconds since its construction."""
        ...

    def sleep(self, seconds: float) -> None:
        """Advance its time by `seconds`."""
        ...

    def counters(self) -> ServerCounters:
        """Return the current counters."""
        ...

    def take(self) -> list[ServedRequest]:
        """Return the requests answered since the last call, in the order of their end."""
        ...


def attach(server: ServesRequests, name: str, board: str) -> Side:
    """Return the side of a server."""
    meter = LlmMeter(server)
    return Side(
        name=name,
        kind="simulated",
        board=f"{board} (simulated)",
        version=VERSION,
        space=server.space,
        metrics=METRICS,
        actuator=server,
        meter=meter,
        clock=server,
        settle_s=2.0,  # The clock changes, and requests from before the change are answered.
        cannot={"gpu.mem_clock_mhz": "the board runs its memory at one clock"},
        source="the simulated server's own requests",
        signals=tuple(ServerSignal(server, each) for each in TOTALS),
    )


class ServerSignal:
    """A signal for plans; its mean between two readings is exact."""

    def __init__(self, server: ServesRequests, name: str) -> None:
        """Read the signal of that name."""
        unit, self._total = TOTALS[name]
        self._present = PRESENT.get(name)
        self._server = server
        self.signal = Signal(name, unit)

    def read(self) -> SignalSample:
        """Return the current value."""
        now = self._server.counters()
        present = None if self._present is None else float(self._present(now))
        return SignalSample(present, float(self._total(now)))


class LlmMeter:
    """Open windows on a server's answers; any number may be open, independently of each other."""

    def __init__(self, server: ServesRequests) -> None:
        """Measure `server`."""
        self.server = server
        self._open: list[list[ServedRequest]] = []

    def start(self) -> LlmWindow:
        """Open a window: it counts the requests answered from now on."""
        self.collect()
        window = LlmWindow(self)
        self._open.append(window.served)
        return window

    def collect(self) -> None:
        """Pass the answered requests to every open window."""
        new = self.server.take()
        for served in self._open:
            served.extend(new)

    def close(self, served: list[ServedRequest]) -> None:
        """Stop passing requests to the window that owns this list."""
        self._open = [window for window in self._open if window is not served]


class LlmWindow:
    """One window: the counters at its start, and the requests answered since."""

    def __init__(self, meter: LlmMeter) -> None:
        """Start counting now."""
        self.served: list[ServedRequest] = []
        self._meter = meter
        self._start = meter.server.counters()
        self._closed: Reading | None = None

    def read(self) -> Reading:
        """Return the metrics so far; energy only once the counter has advanced."""
        if self._closed is not None:
            return self._closed
        self._meter.collect()
        end, start = self._meter.server.counters(), self._start
        seconds = end.now_s - start.now_s
        if seconds <= 0.0:
            return Reading()
        totals = {
            "items": float(len(self.served)),
            "throttled_power_s": end.throttled_s - start.throttled_s,
        }
        if end.counter_j > start.counter_j:
            totals["energy_j"] = end.counter_j - start.counter_j
        arrived = end.arrived - start.arrived
        rate = Estimate.of_mean(
            arrived / seconds, arrived**0.5 / seconds, max(1, arrived), origin=Origin.SIMULATED
        )
        return Reading(totals, {"arrival_rate_per_s": rate, **self._tails()})

    def stop(self) -> Reading:
        """Close the window and return its metrics.

        Raises:
            MeasurementError: the energy counter ran backwards.
        """
        if self._closed is None:
            shown = self.read()
            self._meter.close(self.served)
            self._closed = shown
            if self._meter.server.counters().counter_j < self._start.counter_j:
                raise MeasurementError(
                    "the energy counter ran back in the window", hint="measure again"
                )
        return self._closed

    def _tails(self) -> dict[str, Estimate]:
        if not self.served:
            return {}
        return {
            name: quantile_estimate(
                [1000.0 * getattr(s, field) for s in self.served],
                quantile,
                origin=Origin.SIMULATED,
                scope=Scope.SERVICE,
            )
            for name, (quantile, field) in QUANTILES.items()
        }
