"""Workload power profiles (Blackwell and later), which the driver enforces for any requester.

Source: NVIDIA's NVML API reference (nvmlWorkloadPowerProfileCurrentProfiles_v1_t, nvmlPowerProfileType_t).
They are set by `nvidia-smi power-profiles`, DCGM or out of band, and change clocks and limits below ours.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pynvml

from agents.devices.nvidia.nvml import Gpu

PREFIX, COUNT = "NVML_POWER_PROFILE_", "NVML_POWER_PROFILE_MAX"
"""Prefix of the binding's profiles, and the name of their number; names of operations share the prefix."""


@dataclass(frozen=True, slots=True)
class PowerProfiles:
    """Masks of the requested profiles, and of those enforced after arbitration."""

    requested: int
    enforced: int

    def __str__(self) -> str:
        return f"{named(self.enforced)} enforced (mask {self.enforced:#x})"


def power_profiles(gpu: Gpu) -> PowerProfiles | None:
    """Return a GPU's profiles, None if it has none or does not report them.

    Raises:
        ActuationError, DeviceLost: it does not answer.
    """
    profiles, _ = gpu.query("power profiles", _current)
    if profiles is None:
        return None
    return PowerProfiles(
        _number(profiles.requestedProfilesMask), _number(profiles.enforcedProfilesMask)
    )


def named(mask: int) -> str:
    """Return the names of a mask's profiles, joined for messages."""
    return " + ".join(_names(mask)) or "none"


def _current(handle: Any) -> Any:  # noqa: ANN401 - the binding is untyped
    """Return the binding's structure of the present profiles."""
    profiles = pynvml.c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t()
    pynvml.nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(handle, ctypes.byref(profiles))
    return profiles


def _number(mask: Any) -> int:  # noqa: ANN401
    """Return the binding's mask of 32-bit words as an integer."""
    return sum(int(word) << 32 * place for place, word in enumerate(mask.mask))


def _names(mask: int) -> Iterator[str]:
    """Yield the name of each profile in a mask."""
    names = {
        value: name.removeprefix(PREFIX).lower().replace("_", "-")
        for name, value in vars(pynvml).items()
        if name.startswith(PREFIX) and name != COUNT and "_OPERATION_" not in name
    }
    for bit in range(mask.bit_length()):
        if mask >> bit & 1:
            yield names.get(bit, f"profile {bit}")
