"""The power limit in force, which may be lower than the requested one.

Source: NVIDIA's NVML API reference: nvmlDeviceGetEnforcedPowerLimit is the lowest of all limits, including
those set out of band (a BMC, a rack's power manager, the module of a GB200); the host cannot raise it.
"""

from __future__ import annotations

import pynvml

from agents.devices.nvidia.nvml import Gpu
from tuner.core import Metric, OverDevices, Quantity

ENFORCED = Metric("enforced_limit_w", quantity=Quantity("W", over_devices=OverDevices.SUM))
"""The lowest limit in force within a window."""
LEAST_GAP_W = 1.0
"""Limits that differ by less are equal: boards round."""


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
