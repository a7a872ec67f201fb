"""NVML as everybody here calls it: one GPU by its UUID, and NVML's errors as ours.

Source: NVIDIA's NVML API reference (nvmlReturn_t, device queries and commands). What each error means
for us, and that a GPU is found anew after its driver was restarted, is our choice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import pynvml

from agents.devices.nvidia.knobs import ABSENT, LOST, RESTARTED
from tuner.errors import ActuationError, DeviceLost, TuningError

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 64
"""No process has connected more often than this."""

LIBRARY_NOT_FOUND = 12

HINTS = MappingProxyType(
    {
        2: "see the device's ranges in `jouletune doctor`",
        4: "only root sets it: run the jouletune-actuator service",
        9: "load the NVIDIA driver (`modprobe nvidia`)",
        15: "see `dmesg`; the GPU needs a reset or the host a reboot",
        16: "reset the GPU, or reboot the host",
        17: "the cgroup or the unit's DeviceAllow= keeps us from /dev/nvidia*",
        18: "the driver was upgraded underneath: reload its modules, or reboot",
    }
)
"""NVML's error to the next step."""


def translated(error: Any, what: str) -> TuningError:  # noqa: ANN401 - the binding is untyped
    """Return NVML's error as ours: DeviceLost where the GPU is gone, else ActuationError."""
    code = int(error.value)
    if code in RESTARTED:
        text = f"{what}: the NVIDIA driver was restarted or is not loaded ({error})"
    elif code in ABSENT:
        text = f"{what}: this GPU or its driver does not support it ({error})"
    else:
        text = f"{what}: {error}"
    return (DeviceLost if code in LOST else ActuationError)(text, hint=HINTS.get(code, ""))


def uuids() -> list[str]:
    """Return the UUIDs of the GPUs that answer, in NVML's order; one that is lost is logged.

    Without NVIDIA's library there is none.

    Raises:
        ActuationError: there is a driver, but it does not answer.
    """
    found: list[str] = []
    try:
        pynvml.nvmlInit()
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                found.append(str(pynvml.nvmlDeviceGetUUID(handle)))
            except pynvml.NVMLError as error:
                if int(error.value) not in LOST:
                    raise
                log.error("event=gpu_lost index=%d why=%r", index, str(error))
    except pynvml.NVMLError as error:
        if int(error.value) != LIBRARY_NOT_FOUND:
            raise translated(error, "finding GPUs") from error
    return found


class Gpu:
    """One GPU. After its driver was restarted one call fails and the next finds the GPU anew."""

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self._handle: Any = None

    def call(self, what: str, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """Return what an NVML function of a device answers.

        Raises:
            DeviceLost: the GPU is gone.
            ActuationError: anything else; `what` is in the message.
        """
        answer, why = self.told(what, function, *arguments)
        if why:
            raise ActuationError(why)
        return answer

    def told(self, what: str, function: Callable[..., Any], *arguments: object) -> tuple[Any, str]:
        """Return the answer, or None and why this GPU has none.

        Raises:
            ActuationError, DeviceLost: for any other reason.
        """
        try:
            if self._handle is None:
                pynvml.nvmlInit()
                self._handle = pynvml.nvmlDeviceGetHandleByUUID(self.uuid)
            return function(self._handle, *arguments), ""
        except pynvml.NVMLError as error:
            code, reason = int(error.value), translated(error, f"{self.uuid}: {what}")
            if code in ABSENT:
                return None, reason.message
            if code in RESTARTED | LOST:
                self._handle = None
            if code in RESTARTED:
                _disconnect()
            raise reason from error

    def driver(self) -> str:
        """Return the driver's version. Raises ActuationError, DeviceLost."""
        return str(self.call("driver version", lambda _: pynvml.nvmlSystemGetDriverVersion()))


def _disconnect() -> None:
    """Drop every connection of this process: NVML counts them, and begins anew only from none."""
    with suppress(pynvml.NVMLError):
        for _ in range(MOST_CONNECTIONS):
            pynvml.nvmlShutdown()
