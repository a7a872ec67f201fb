"""Meter of the simulated device: windows over its counters, with their error bounds."""

from __future__ import annotations

import math
from statistics import fmean, stdev

from agents.devices.simulated.device import NS, TICK_NS, Counters, SimulatedDevice
from agents.devices.simulated.noise import EPOCH_S, POWER_TOTAL_SD, SPEED_SD
from tuner.core import (
    DeviceLost,
    Estimate,
    MeasurementError,
    Metric,
    Origin,
    Reading,
    Scope,
    quantile_estimate,
)

QUANTILES = {"latency_p50_ms": (0.50, 1.0), "latency_p99_ms": (0.99, 1.8)}
"""Per metric: the quantile, and its sensitivity to speed relative to the mean's.

Slow epochs determine the tail: 1.8 = exp(s²/2) with s = SPEED_SD · ln(p99) / REQUEST_SD², from the
weights of the epochs in it.
"""
TWO_ROUNDINGS = 1.0 / math.sqrt(6.0)
"""Standard deviation of the difference of two readings, each truncated to a whole step."""


def metrics(scope: Scope) -> tuple[Metric, ...]:
    """Return the metrics of the meter; `scope` is the part of the host that its energy covers."""
    service = ("latency_p50_ms", "latency_p99_ms", "latency_mean_ms", "throughput_per_s")
    return (
        Metric("energy_j", Origin.SIMULATED, scope),
        Metric("power_w", Origin.SIMULATED, scope),
        *(Metric(name, Origin.SIMULATED, Scope.SERVICE) for name in service),
    )


class SimulatedMeter:
    """Open windows on a simulated device."""

    def __init__(self, device: SimulatedDevice, scope: Scope) -> None:
        """Measure `device`; `scope` is the part of the host that its energy covers."""
        self._device = device
        self._scope = scope

    def start(self) -> SimulatedWindow:
        """Open a window. Raises MeasurementError if the device is lost."""
        _answering(self._device)
        return SimulatedWindow(self._device, self._scope)


class SimulatedWindow:
    """One window: the counters at its start, and the latencies of the requests since."""

    def __init__(self, device: SimulatedDevice, scope: Scope) -> None:
        """Start counting now."""
        self._device = device
        self._scope = scope
        self._latencies_ms: list[float] = []
        self._start = device.reading()
        self._end: Counters | None = None
        device.listen(self._latencies_ms)

    def read(self) -> Reading:
        """Return the metrics so far; energy only once the counter has advanced."""
        _answering(self._device)
        end = self._end or self._device.reading()
        return _Shown(self._start, end, self._latencies_ms, self._scope).reading()

    def stop(self) -> Reading:
        """Close the window and return its metrics.

        Raises:
            MeasurementError: the device is lost, or its energy counter stopped or ran backwards.
        """
        if self._end is None:
            self._end = self._device.reading()
            self._device.unlisten(self._latencies_ms)
        _answering(self._device)
        shown = _Shown(self._start, self._end, self._latencies_ms, self._scope)
        shown.check_counter()
        return shown.reading()


def _answering(device: SimulatedDevice) -> None:
    """Raise MeasurementError if the device is lost."""
    try:
        device.answering()
    except DeviceLost as lost:
        raise MeasurementError(f"nothing to measure: {lost.message}", hint=lost.hint) from lost


class _Shown:
    """The differences between two readings."""

    def __init__(
        self, start: Counters, end: Counters, latencies_ms: list[float], scope: Scope
    ) -> None:
        self._scope = scope
        self._latencies_ms = latencies_ms
        self._seconds = (end.now_ns - start.now_ns) / NS
        self._counted_s = (end.counter_ns - start.counter_ns) / NS
        self._joules = end.counter_j - start.counter_j
        self._steps = end.steps - start.steps
        self._items = end.items - start.items
        self._throttled_s = end.throttled_s - start.throttled_s
        epochs = max(1.0, self._seconds / EPOCH_S)
        self._power_sd = POWER_TOTAL_SD / math.sqrt(epochs)
        self._speed_sd = SPEED_SD / math.sqrt(epochs)

    def check_counter(self) -> None:
        """Raise MeasurementError if the energy counter stopped or ran backwards."""
        if self._joules < 0.0:
            raise MeasurementError(
                f"the energy counter ran back by {-self._joules:.3f} J in the window",
                hint="the driver was restarted; measure again",
            )
        if self._joules == 0.0 and self._counted_s > 2 * TICK_NS / NS:
            raise MeasurementError(
                f"the energy counter did not change for {self._counted_s:.1f} s",
                hint="restart the driver",
            )

    def reading(self) -> Reading:
        """Return the totals and estimates of the window so far."""
        if self._seconds <= 0.0:
            return Reading()
        totals = {"items": float(self._items), "throttled_power_s": self._throttled_s}
        estimates = self._progress()
        if self._joules > 0.0:
            totals["energy_j"] = self._joules
            estimates |= self._energy()
        if self._latencies_ms:
            estimates |= self._latency()
        return Reading(totals, estimates)

    def _progress(self) -> dict[str, Estimate]:
        """Return throughput and arrival rate; empty before the first item."""
        if not self._items:
            return {}
        batch = self._items / self._steps if self._steps else 1.0
        doubt = math.hypot(batch * TWO_ROUNDINGS, self._items * self._speed_sd)
        rate, n = self._items / self._seconds, max(1, self._steps)
        per_s = self._estimate(rate, doubt / self._seconds, n, Scope.SERVICE)
        return {"throughput_per_s": per_s, "arrival_rate_per_s": per_s}

    def _energy(self) -> dict[str, Estimate]:
        """Return power and energy per item, over the steps of the counter."""
        watts = self._joules / self._counted_s  # from step to step of the counter
        ticks = max(1, round(self._counted_s * NS / TICK_NS))
        estimates = {"power_w": self._estimate(watts, watts * self._power_sd, ticks, self._scope)}
        rate = self._progress().get("throughput_per_s")
        if rate is not None:
            joules = watts / rate.mean
            spread = joules * math.hypot(self._power_sd, rate.stderr / rate.mean)
            estimates["energy_j"] = self._estimate(joules, spread, ticks, self._scope)
        return estimates

    def _latency(self) -> dict[str, Estimate]:
        """Return the mean and the quantiles of the latency."""
        samples = self._latencies_ms
        mean = fmean(samples)
        alone = stdev(samples) / math.sqrt(len(samples)) if len(samples) > 1 else mean
        doubt = math.hypot(alone, mean * self._speed_sd)
        estimates = {"latency_mean_ms": self._estimate(mean, doubt, len(samples), Scope.SERVICE)}
        for name, (quantile, moved) in QUANTILES.items():
            plain = quantile_estimate(samples, quantile, origin=Origin.SIMULATED)
            estimates[name] = plain.widened(plain.mean * moved * self._speed_sd)
        return estimates

    def _estimate(self, mean: float, stderr: float, n: int, scope: Scope) -> Estimate:
        """Return a mean as an estimate of simulated origin."""
        return Estimate.of_mean(mean, stderr, n, origin=Origin.SIMULATED, scope=scope)
