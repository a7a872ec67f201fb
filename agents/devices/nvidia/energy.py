"""A GPU's energy: its total-energy counter if that agrees with power under load, else integrated power.

Sources: NVIDIA's NVML API reference (millijoules since the driver was loaded, Volta and later; field values
185 and 186, power scopes). The counter steps about every 100 ms (ml.energy, "Thermally Stable Profiling").
Power is sampled a quarter of the time on A100 and H100 (Yang et al., arXiv 2312.02741). An idle counter may
show 0.57 of the integrated power (zeus, issue 181). A GH200's counter is the module's (zeus, PR 172). Ours:
the check of the counter against power, and readings at the counter's steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import pynvml

from agents.devices.nvidia.nvml import Gpu, counter_mj
from agents.target.joules import drawn
from tuner.core import Clock, Fact, MeasurementError

GPU: int = pynvml.NVML_POWER_SCOPE_GPU
MODULE: int = pynvml.NVML_POWER_SCOPE_MODULE
FIELDS = (pynvml.NVML_FI_DEV_POWER_INSTANT, pynvml.NVML_FI_DEV_POWER_AVERAGE)
"""The present power, and its mean over a second (Ampere and later, except GA100); either may be missing."""
CHECK_S = 10.0
LEAST_STEPS = 5
AGREEMENT = 0.15
"""The counter is trusted if it is within this share of the integral of power."""
STEADY = 0.15
"""Power is steady if its mean over each fifth of the check is within this share of the whole mean."""
PARTS = 5
POLL_S = 0.01
STEP_S = 0.1
"""The counter steps about this often, in seconds."""
LONGEST_STEP_S = 0.3
MOST_W = 4000.0
"""Upper bound of a GPU's power, or a module's of GPU and CPU; with a reported limit, twice that limit."""


@dataclass(frozen=True, slots=True)
class CounterCheck:
    """The energy counter over the integral of power, in the best fitting scope; 0 if it hardly moves."""

    ratio: float
    scope: int

    @property
    def trusted(self) -> bool:
        """Whether the two agree."""
        return abs(self.ratio - 1.0) <= AGREEMENT


@dataclass(frozen=True, slots=True)
class _Sample:
    """The energy counter and the powers in watts, by field and scope, at one time."""

    at_s: float
    counter_mj: int
    watts: Mapping[tuple[int, int], float]


def powers_w(gpu: Gpu) -> dict[tuple[int, int], float]:
    """Return the present power in watts by field and scope, as far as this GPU reports it.

    Power reported without fields counts as the mean over a second in scope GPU.

    Raises:
        ActuationError, DeviceLost: it does not answer.
    """
    queried = [(field, scope) for scope in (GPU, MODULE) for field in FIELDS]
    answers, _ = gpu.query("power", pynvml.nvmlDeviceGetFieldValues, queried)
    powers = {
        (int(one.fieldId), int(one.scopeId)): one.value.uiVal / 1000.0
        for one in answers or ()
        if one.nvmlReturn == pynvml.NVML_SUCCESS
    }
    if not any(scope == GPU for _, scope in powers):
        usage, _ = gpu.query("power", pynvml.nvmlDeviceGetPowerUsage)
        powers |= {} if usage is None else {(FIELDS[1], GPU): usage / 1000.0}
    return powers


def power_w(gpu: Gpu, scope: int) -> float:
    """Return a scope's present power in watts; its mean over a second if only that is available.

    Raises:
        ActuationError, DeviceLost: it does not answer.
        MeasurementError: it does not report the power.
    """
    powers = powers_w(gpu)
    for field in FIELDS:
        if (field, scope) in powers:
            return powers[field, scope]
    raise MeasurementError(f"{gpu.uuid} no longer reports its power", hint="see `jouletune doctor`")


def check_counter(gpu: Gpu, clock: Clock) -> CounterCheck | None:
    """Compare the counter with power over 10 s in every field and scope; None if the load was unsteady.

    Raises:
        ActuationError, DeviceLost: the GPU does not answer.
    """
    samples = list(_samples(gpu, clock))
    common = set.intersection(*(set(one.watts) for one in samples))
    if not common or not any(_is_steady([s.watts[key] for s in samples]) for key in common):
        return None
    steps = [n for n, (a, b) in enumerate(pairwise(samples), 1) if a.counter_mj != b.counter_mj]
    if len(steps) < LEAST_STEPS:
        return CounterCheck(0.0, GPU)
    between = samples[steps[0] : steps[-1] + 1]
    counted = (between[-1].counter_mj - between[0].counter_mj) / 1000.0
    checks = []
    for key in sorted(common):
        joules = sum(
            (b.at_s - a.at_s) * (a.watts[key] + b.watts[key]) / 2.0 for a, b in pairwise(between)
        )
        checks.append(CounterCheck(max(0.0, counted / joules) if joules > 0.0 else 0.0, key[1]))
    return min(checks, key=lambda check: abs(check.ratio - 1.0))


def _samples(gpu: Gpu, clock: Clock) -> Iterator[_Sample]:
    """Yield the counter and the power for `CHECK_S`."""
    until = clock.monotonic() + CHECK_S
    while (now := clock.monotonic()) < until:
        yield _Sample(now, counter_mj(gpu), powers_w(gpu))
        clock.sleep(POLL_S)


def _is_steady(watts: Sequence[float]) -> bool:
    """Return whether the mean of each fifth is within `STEADY` of the whole mean."""
    size, whole = max(1, len(watts) // PARTS), fmean(watts)
    parts = [watts[n : n + size] for n in range(0, size * PARTS, size)]
    return all(abs(fmean(part) - whole) <= STEADY * whole for part in parts if part)


class CounterJoules:
    """Energy of the counter, read at its steps: a reading waits at most 0.3 s for the next one."""

    def __init__(self, gpu: Gpu, clock: Clock) -> None:
        self._gpu = gpu
        self._clock = clock
        self._last_mj = self._at_step(counter_mj(gpu))
        self._last_s = clock.monotonic()
        self._joules = 0.0
        limits, _ = gpu.query("limits", pynvml.nvmlDeviceGetPowerManagementLimitConstraints)
        self._most_w = 2.0 * limits[1] / 1000.0 if limits and limits[1] else MOST_W

    def read(self) -> float:
        """Return the joules up to the step just passed.

        Raises:
            MeasurementError: the counter ran backwards, or rose by more than the GPU can draw.
            ActuationError: it does not answer.
        """
        if self._clock.monotonic() - self._last_s < STEP_S:
            return self._joules
        now, now_s = self._at_step(counter_mj(self._gpu)), self._clock.monotonic()
        step, counter = (now - self._last_mj) / 1000.0, f"{self._gpu.uuid}: the energy counter"
        self._joules += drawn(step, now_s - self._last_s, self._most_w, counter)
        self._last_mj, self._last_s = now, now_s
        return self._joules

    def close(self) -> None:
        """Do nothing: there is no background work."""

    def facts(self) -> tuple[Fact, ...]:
        """Return no facts: the window compares the counter with power."""
        return ()

    def _at_step(self, before: int) -> int:
        """Return the counter once it differs from `before`, or after 0.3 s; in mJ."""
        until = self._clock.monotonic() + LONGEST_STEP_S
        now = before
        while now == before and self._clock.monotonic() < until:
            self._clock.sleep(POLL_S / 2.0)
            now = counter_mj(self._gpu)
        return now
