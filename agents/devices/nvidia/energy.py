"""A GPU's energy: its total-energy counter where that can be trusted, else its power integrated.

Sources: NVIDIA's NVML API reference (millijoules since the driver was loaded, Volta and later); that
the counter steps about every 100 ms and power readings can miss most of the run time is reported by
ml.energy ("Thermally Stable Profiling") and Yang et al. (arXiv 2312.02741). The check of one against
the other, and reading at the counter's steps, are ours.
"""

from __future__ import annotations

from itertools import pairwise

import pynvml

from agents.devices.nvidia.nvml import Gpu
from agents.target.joules import drawn
from tuner.core import Clock

CHECK_S = 2.5
LEAST_STEPS = 5
AGREEMENT = 0.15
"""The counter is trusted when it is within this share of the integral of power."""
POLL_S = 0.01
STEP_S = 0.1
"""The counter moves about this often."""
LONGEST_STEP_S = 0.3
MOST_W = 4000.0
"""No GPU draws more, nor a module of a GPU and its CPU; one that tells its greatest limit, twice that."""


def counter_mj(gpu: Gpu) -> int:
    """Return the counter in millijoules. Raises ActuationError, DeviceLost."""
    return int(gpu.call("energy counter", pynvml.nvmlDeviceGetTotalEnergyConsumption))


def power_w(gpu: Gpu) -> float:
    """Return the power now, in watts; where only its mean over a second is told, that mean.

    Raises:
        ActuationError, DeviceLost: it cannot be told.
    """
    instant = [pynvml.NVML_FI_DEV_POWER_INSTANT]
    fields, _ = gpu.told("power", pynvml.nvmlDeviceGetFieldValues, instant)
    if fields is not None and fields[0].nvmlReturn == pynvml.NVML_SUCCESS:
        return float(fields[0].value.uiVal) / 1000.0
    return float(gpu.call("power", pynvml.nvmlDeviceGetPowerUsage)) / 1000.0


def agreement(gpu: Gpu, clock: Clock) -> float:
    """Return the counter's energy over the integral of power, between two of the counter's steps.

    0 where the counter hardly moved. Takes 2.5 s. Raises ActuationError, DeviceLost.
    """
    samples: list[tuple[float, int, float]] = []
    until = clock.monotonic() + CHECK_S
    while (now := clock.monotonic()) < until:
        samples.append((now, counter_mj(gpu), power_w(gpu)))
        clock.sleep(POLL_S)
    steps = [n for n in range(1, len(samples)) if samples[n][1] != samples[n - 1][1]]
    if len(steps) < LEAST_STEPS:
        return 0.0
    first, last = steps[0], steps[-1]
    between = samples[first : last + 1]
    joules = sum((b[0] - a[0]) * (a[2] + b[2]) / 2.0 for a, b in pairwise(between))
    counted = (samples[last][1] - samples[first][1]) / 1000.0
    return counted / joules if joules > 0.0 and counted > 0.0 else 0.0


class CounterJoules:
    """The counter, read at its steps: a reading waits for the next one, at most 0.3 s."""

    def __init__(self, gpu: Gpu, clock: Clock) -> None:
        self._gpu = gpu
        self._clock = clock
        self._last_mj = self._at_step(counter_mj(gpu))
        self._last_s = clock.monotonic()
        self._joules = 0.0
        limits, _ = gpu.told("limits", pynvml.nvmlDeviceGetPowerManagementLimitConstraints)
        self._most_w = 2.0 * limits[1] / 1000.0 if limits and limits[1] else MOST_W

    def read(self) -> float:
        """Return joules up to the step just passed.

        Raises:
            MeasurementError: the counter ran backwards, or up by more than the GPU can draw.
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
        """Nothing goes on in between."""

    def _at_step(self, before: int) -> int:
        until = self._clock.monotonic() + LONGEST_STEP_S
        now = before
        while now == before and self._clock.monotonic() < until:
            self._clock.sleep(POLL_S / 2.0)
            now = counter_mj(self._gpu)
        return now
