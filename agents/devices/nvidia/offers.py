"""A GPU's knobs for agents: power limits worth a trial, and the reasons why knobs are refused.

Separate from `knobs`, which root loads: this module needs no rights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pynvml

from agents.devices.nvidia.knobs import (
    AMPERE,
    CLOCK,
    LIMIT,
    MEM,
    MEMORY,
    NOW,
    SM,
    UNKNOWN_ARCHITECTURE,
    VGPU,
    VOLTA,
)
from agents.devices.nvidia.nvml import Gpu
from tuner.core import Value

STEPS_W = (1, 5, 10, 25, 50, 100)
MOST_STEPS = 10
"""A power limit is offered in the finest of these steps that gives at most this many intervals."""
GUEST = "this is a vGPU; only its host can set clocks and power"
NO_LOCK = "GPUs of this generation have no such lock"
ONE_CLOCK = "the board has one memory clock"


def limits_w(supported: Sequence[int], original_w: float) -> list[float]:
    """Return the power limits to offer, in watts, from the supported ones.

    The greatest and the original one are always included.
    """
    span = supported[-1] - supported[0]
    step = next((s for s in STEPS_W if span / s <= MOST_STEPS), STEPS_W[-1])
    return sorted({*(w for w in supported if w % step == 0), supported[-1], original_w})


def coarsened(knob: str, values: Sequence[Value], original: Value) -> Sequence[Value]:
    """Return the granted values that are worth a trial: of power limits in whole watts only some."""
    if knob != LIMIT or not all(isinstance(value, int) for value in values):
        return values
    return limits_w([int(value) for value in values], float(original))


def refusals(gpu: Gpu) -> Mapping[str, str]:
    """Return the reason why the GPU refuses a knob, by knob; supported knobs are left out.

    Raises:
        ActuationError, DeviceLost: it does not answer.
    """
    mode, _ = gpu.query("virtualisation", pynvml.nvmlDeviceGetVirtualizationMode)
    if mode == VGPU:
        return dict.fromkeys((CLOCK, MEMORY, LIMIT), GUEST)
    newer = gpu.query("generation", pynvml.nvmlDeviceGetArchitecture)[0] or UNKNOWN_ARCHITECTURE
    memory, no_memory = gpu.query("memory clocks", pynvml.nvmlDeviceGetSupportedMemoryClocks)
    _, no_clocks = (
        gpu.query("clocks", pynvml.nvmlDeviceGetSupportedGraphicsClocks, max(memory))
        if memory
        else gpu.query("clocks", pynvml.nvmlDeviceGetMinMaxClockOfPState, SM, pynvml.NVML_PSTATE_0)
    )
    _, no_limit = gpu.query("limits", pynvml.nvmlDeviceGetPowerManagementLimitConstraints)
    _, unread = gpu.query("power limit", pynvml.nvmlDeviceGetPowerManagementLimit)
    runs = {
        knob: gpu.query(f"clock {kind}", pynvml.nvmlDeviceGetClock, kind, NOW)[1]
        for knob, kind in ((CLOCK, SM), (MEMORY, MEM))
    }
    why = {
        CLOCK: no_clocks or ("" if newer >= VOLTA else NO_LOCK) or runs[CLOCK],
        MEMORY: no_memory
        or (ONE_CLOCK if len(set(memory)) == 1 else "" if newer >= AMPERE else NO_LOCK)
        or runs[MEMORY],
        LIMIT: no_limit or unread,
    }
    return {knob: reason for knob, reason in why.items() if reason}
