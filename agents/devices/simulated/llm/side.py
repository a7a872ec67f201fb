"""A simulated language model's server as an agent sees it: one side, with its meter and its signals.

Any server with `ServesRequests` may stand behind it; `LlmServer` is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from agents.devices.simulated.llm.requests import ServedRequest
from agents.devices.simulated.llm.server import ServerCounters
from agents.target.side import Side, SignalSample
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
"""Counted up whenever the physics changes: older evidence then no longer counts."""
QUANTILES = {
    "time_to_first_token_p50_ms": (0.50, "ttft_s"),
    "time_to_first_token_p99_ms": (0.99, "ttft_s"),
    "inter_token_p99_ms": (0.99, "tpot_s"),
    "latency_p50_ms": (0.50, "latency_s"),
    "latency_p99_ms": (0.99, "latency_s"),
}
"""`inter_token` is a request's mean time per further token, TPOT, as serving benchmarks have it."""
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
"""A signal's unit, and the total whose growth per second it is."""
PRESENT: dict[str, Callable[[ServerCounters], float]] = {
    "decoding_requests": lambda c: c.decoding,
    "waiting": lambda c: c.waiting,
}


class ServesRequests(Protocol):
    """A server that a trace of requests is played to, in time of its own that only `sleep` lets pass.

    Actuator and clock in one. What was asked of it and when, it was given when it was made.
    """

    @property
    def space(self) -> Space:
        """What can be set."""
        ...

    def read(self) -> Setting:
        """Return what is set."""
        ...

    def apply(self, setting: Setting) -> None:
        """Set the named knobs and keep the others."""
        ...

    def monotonic(self) -> float:
        """Return its own time, in seconds since it was made."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let that much of its time pass."""
        ...

    def counters(self) -> ServerCounters:
        """Return all that it counts, as of now."""
        ...

    def take(self) -> list[ServedRequest]:
        """Return the requests that were answered since the last time, in the order of their end."""
        ...


def attach(server: ServesRequests, name: str, board: str) -> Side:
    """Return a server as an agent sees it."""
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
        settle_s=2.0,  # The clock's change, and requests of before it that are answered after.
        cannot={"gpu.mem_clock_mhz": "the board runs its memory at one clock"},
        source="the simulated server's own requests",
        signals=tuple(ServerSignal(server, each) for each in TOTALS),
    )


class ServerSignal:
    """What a plan can go by, exact between two looks."""

    def __init__(self, server: ServesRequests, name: str) -> None:
        """Read the signal of that name."""
        unit, self._total = TOTALS[name]
        self._present = PRESENT.get(name)
        self._server = server
        self.signal = Signal(name, unit)

    def read(self) -> SignalSample:
        """Return it as it is now."""
        now = self._server.counters()
        present = None if self._present is None else float(self._present(now))
        return SignalSample(present, float(self._total(now)))


class LlmMeter:
    """Opens windows on what a server answers; any number may be open, and none takes from another."""

    def __init__(self, server: ServesRequests) -> None:
        """Measure that server."""
        self.server = server
        self._open: list[list[ServedRequest]] = []

    def start(self) -> LlmWindow:
        """Open a window now: it counts the requests that are answered from here on."""
        self.collect()
        window = LlmWindow(self)
        self._open.append(window.served)
        return window

    def collect(self) -> None:
        """Hand what was answered to every open window."""
        new = self.server.take()
        for served in self._open:
            served.extend(new)

    def close(self, served: list[ServedRequest]) -> None:
        """Hand nothing more to the window of that list."""
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
        """Return what the window shows so far; energy only once the counter has moved on."""
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
        """Close the window and return what it showed.

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
