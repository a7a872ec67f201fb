"""The values of a GPU's knobs that are worth a trial, and those in force instead of the requested ones.

Source: NVIDIA's NVML API reference: nvmlDeviceGetEnforcedPowerLimit is the lowest of all limits, including
those set out of band (a BMC, a rack's power manager, the module of a GB200); the host cannot raise it.
Profiles (nvmlWorkloadPowerProfileCurrentProfiles_v1_t; Blackwell and later) are also requested by
`nvidia-smi power-profiles`, DCGM or out of band, and change clocks and limits below ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pynvml

from agents.devices.nvidia.knobs import LIMIT, PROFILE, profile_masks, profiles_in
from agents.devices.nvidia.nvml import Gpu
from tuner.core import Metric, OverDevices, Quantity, Value

ENFORCED = Metric("enforced_limit_w", quantity=Quantity("W", over_devices=OverDevices.SUM))
"""The lowest limit in force within a window."""
LEAST_GAP_W = 1.0
"""Limits that differ by less are equal: boards round."""
STEPS_W = (1, 5, 10, 25, 50, 100)
MOST_STEPS = 10
"""A power limit is offered in the finest of these steps that gives at most this many intervals."""


def enforced_w(gpu: Gpu) -> float | None:
    """Return the limit in force in watts, None if the GPU does not report it.

    Raises:
        ActuationError, DeviceLost: it does not answer.
    """
    mw, _ = gpu.query("enforced limit", pynvml.nvmlDeviceGetEnforcedPowerLimit)
    return None if mw is None else float(mw) / 1000.0


def cap_w(gpu: Gpu) -> float | None:
    """Return the limit in force in watts if it is below the requested one; otherwise None.

    Raises:
        ActuationError, DeviceLost: it does not answer.
    """
    enforced = enforced_w(gpu)
    mw, _ = gpu.query("power limit", pynvml.nvmlDeviceGetPowerManagementLimit)
    if enforced is None or mw is None or enforced > float(mw) / 1000.0 - LEAST_GAP_W:
        return None
    return enforced


@dataclass(frozen=True, slots=True)
class PowerProfiles:
    """Masks of the requested profiles, and of those enforced after arbitration."""

    requested: int
    enforced: int

    def by_others(self, ours: str) -> str:
        """Return the profiles of other programs, for messages; one that `ours` displaces counts."""
        mask = sum(1 << n for name, n in profiles_in(self.requested).items() if name == ours)
        others = (self.enforced | (self.requested if mask else 0)) & ~mask
        return f"{named(others)} enforced (mask {others:#x})"


def power_profiles(gpu: Gpu) -> PowerProfiles | None:
    """Return a GPU's profiles, None if it has none or does not report them.

    Raises:
        ActuationError, DeviceLost: it does not answer.
    """
    masks, _ = gpu.query("power profiles", profile_masks)
    return None if masks is None else PowerProfiles(*masks[1:])


def named(mask: int) -> str:
    """Return the names of a mask's profiles, joined for messages."""
    return " + ".join(profiles_in(mask)) or "none"


def limits_w(supported: Sequence[int], original_w: float) -> list[float]:
    """Return the power limits to offer, in watts, from the supported ones.

    The greatest and the original one are always included.
    """
    span = supported[-1] - supported[0]
    step = next((s for s in STEPS_W if span / s <= MOST_STEPS), STEPS_W[-1])
    return sorted({*(w for w in supported if w % step == 0), supported[-1], original_w})


def coarsened(knob: str, values: Sequence[Value], original: Value) -> Sequence[Value]:
    """Return the granted values that are worth a trial.

    These are some of the power limits in whole watts, and the profiles that nobody has requested yet.
    """
    if knob == PROFILE:
        return [value for value in values if value not in str(original).split("+")]
    if knob != LIMIT or not all(isinstance(value, int) for value in values):
        return values
    return limits_w([int(value) for value in values], float(original))
