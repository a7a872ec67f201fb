"""What root writes to an NVIDIA GPU: locked clocks and the power limit.

Sources: NVIDIA's NVML API reference. NVML has no getter for a clock lock, so `read` tells None and
restoring means the driver's reset. Application clocks are deprecated and never touched. Ours: a lock
is a ceiling, from the lowest clock to the value, so that an idle GPU may still slow down by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pynvml

from agents.devices.nvidia.nvml import Gpu, translated, uuids
from agents.drivers import Value
from tuner.errors import ActuationError

CLOCK = "gpu.clock_mhz"
MEMORY = "gpu.mem_clock_mhz"
LIMIT = "gpu.power_limit_w"

STEPS_W = (1, 5, 10, 25, 50, 100)
MOST_STEPS = 10
"""A power limit is offered in the finest of these steps that makes no more than this many."""
VGPU = 2
"""NVML_GPU_VIRTUALIZATION_MODE_VGPU: a guest that shares the board."""
VOLTA, AMPERE, UNKNOWN_ARCHITECTURE = 5, 7, 0xFFFFFFFF
LIBRARY_NOT_FOUND = 12


def discover(root: Path = Path("/")) -> list[NvidiaKnobs]:
    """Return the knobs of every GPU, none where no NVIDIA driver is installed.

    Raises:
        ActuationError: there is a driver, but it does not answer.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if int(error.value) == LIBRARY_NOT_FOUND:
            return []
        raise translated(error, "NVML") from error
    return [NvidiaKnobs(Gpu(uuid), root) for uuid in uuids()]


class NvidiaKnobs:
    """One GPU's knobs; a KnobDriver. Every method raises ActuationError or DeviceLost."""

    def __init__(self, gpu: Gpu, root: Path) -> None:
        """Ask the GPU what it supports; `root` is where the kernel shows the driver's module."""
        self._gpu = gpu
        self._module = root / "sys/module/nvidia"
        self.uuid = gpu.uuid
        self.board = str(gpu.call("name", pynvml.nvmlDeviceGetName))
        self.driver = gpu.driver()
        self._refused: dict[str, str] = {}
        self.cannot: Mapping[str, str] = self._refused
        self._ranges: dict[str, tuple[Value, ...]] = {}
        self._bounds_w = (0.0, 0.0)
        self._ask_ranges()

    @property
    def epoch(self) -> str:
        """The driver's version and the kernel's number for its module: both differ after a reload."""
        try:
            version = self._gpu.driver()
        except ActuationError:
            # The first call after a restart fails; the second finds the new driver.
            version = self._gpu.driver()
        try:
            return f"{version}/{self._module.stat().st_ino}"
        except OSError:
            return version

    def ranges(self) -> Mapping[str, tuple[Value, ...]]:
        """Return the knobs that can be written and their supported values, ascending."""
        return {k: v for k, v in self._ranges.items() if k not in self.cannot}

    def read(self) -> Mapping[str, Value | None]:
        """Return the power limit in watts, and None for clock locks."""
        values: dict[str, Value | None] = dict.fromkeys(self.ranges())
        if LIMIT in values:
            mw = self._gpu.call("power limit", pynvml.nvmlDeviceGetPowerManagementLimit)
            values[LIMIT] = _watts(mw)
        return values

    def write(self, knob: str, value: Value) -> None:
        """Set a knob; a lock is requested here, and only the clock under load shows it in force."""
        self._check(knob, value)
        what = f"setting {knob} to {value}"
        if knob == LIMIT:
            mw = round(float(value) * 1000.0)
            self._set(knob, what, "nvmlDeviceSetPowerManagementLimit", mw)
            shown = self.read()[LIMIT]
            if shown != _watts(mw):
                raise ActuationError(f"{self.uuid}: {what}: it reads back as {shown}")
        elif knob == CLOCK:
            self._set(
                knob, what, "nvmlDeviceSetGpuLockedClocks", self._ranges[CLOCK][0], int(value)
            )
        else:
            self._set(knob, what, "nvmlDeviceSetMemoryLockedClocks", int(value), int(value))

    def reset(self, knob: str) -> None:
        """Unlock a clock, or set the default power limit."""
        what = f"resetting {knob}"
        if knob == CLOCK:
            self._set(knob, what, "nvmlDeviceResetGpuLockedClocks")
        elif knob == MEMORY:
            self._set(knob, what, "nvmlDeviceResetMemoryLockedClocks")
        elif knob == LIMIT:
            mw = self._gpu.call("default limit", pynvml.nvmlDeviceGetPowerManagementDefaultLimit)
            self._set(knob, what, "nvmlDeviceSetPowerManagementLimit", mw)
        else:
            raise ActuationError(f"{self.uuid} has no knob {knob!r}")

    def _check(self, knob: str, value: Value) -> None:
        values = self.ranges().get(knob, ())
        number = isinstance(value, int | float) and not isinstance(value, bool)
        low, high = self._bounds_w
        between = knob == LIMIT and number and low <= value <= high  # type: ignore[operator]
        if not values or not (between or (number and value in values)):
            raise ActuationError(
                f"{self.uuid}: {knob} cannot be {value!r}",
                hint=f"from {values[0]} to {values[-1]}" if values else "it has no such knob",
            )

    def _set(self, knob: str, what: str, function: str, *arguments: object) -> None:
        """Call a setter; a knob that turns out to be refused for good is not offered again."""
        _, why = self._gpu.told(f"{self.uuid}: {what}", getattr(pynvml, function), *arguments)
        if why:
            self._refused[knob] = why
            raise ActuationError(why, hint="it is not offered any more")

    def _ask_ranges(self) -> None:
        gpu = self._gpu
        mode, _ = gpu.told("virtualisation", pynvml.nvmlDeviceGetVirtualizationMode)
        if mode == VGPU:
            shared = "this is a guest's share of a GPU (vGPU); only its host sets clocks and power"
            self._refused.update(dict.fromkeys((CLOCK, MEMORY, LIMIT), shared))
            return
        architecture, _ = gpu.told("architecture", pynvml.nvmlDeviceGetArchitecture)
        newer = architecture or UNKNOWN_ARCHITECTURE
        memory, why = gpu.told("memory clocks", pynvml.nvmlDeviceGetSupportedMemoryClocks)
        clocks, why_no_clocks = (
            gpu.told("clocks", pynvml.nvmlDeviceGetSupportedGraphicsClocks, max(memory))
            if memory
            else (None, why)
        )
        self._offer(CLOCK, clocks, why_no_clocks, newer >= VOLTA)
        if memory and len(set(memory)) == 1:
            memory, why = None, "the board runs its memory at one clock"
        self._offer(MEMORY, memory, why, newer >= AMPERE)
        bounds, why = gpu.told("limits", pynvml.nvmlDeviceGetPowerManagementLimitConstraints)
        limits: list[int] = []
        if bounds:
            default = gpu.call("default limit", pynvml.nvmlDeviceGetPowerManagementDefaultLimit)
            self._bounds_w = (bounds[0] / 1000.0, bounds[1] / 1000.0)
            limits = limits_w(bounds[0], bounds[1], default)
        self._offer(LIMIT, limits, why, possible=True)

    def _offer(self, knob: str, values: list[int] | None, why: str, possible: bool) -> None:
        if values and possible:
            self._ranges[knob] = tuple(sorted(set(values)))
        else:
            self._refused[knob] = why or "GPUs of this generation have no such lock"


def limits_w(least_mw: int, most_mw: int, default_mw: int) -> list[int]:
    """Return the power limits to choose from, in whole watts within the device's own.

    The default and the greatest are among them, whatever the step.
    """
    span = (most_mw - least_mw) / 1000.0
    step = next((s for s in STEPS_W if span / s <= MOST_STEPS), STEPS_W[-1])
    first = -(-least_mw // (1000 * step))
    grid = {step * n for n in range(first, most_mw // (1000 * step) + 1)}
    return sorted(grid | {most_mw // 1000, default_mw // 1000})


def _watts(milliwatts: int) -> Value:
    return milliwatts // 1000 if milliwatts % 1000 == 0 else milliwatts / 1000.0
