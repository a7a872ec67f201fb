"""NVML as everybody here calls it: one GPU by its UUID, and NVML's errors as ours.

Source: NVIDIA's NVML API reference (nvmlReturn_t, device queries and commands). What each error means
for us, and that a GPU is found anew after its driver was restarted, is our choice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pynvml

from tuner.errors import ActuationError, DeviceLost, TuningError

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 64
"""No process has connected more often than this."""

ABSENT = frozenset({3, 13, 25, 26})
"""NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, DEPRECATED: never to be retried."""
RESTARTED = frozenset({1, 9, 18})
"""UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH: the driver under us is another one."""
LOST = frozenset({6, 15, 16, 28})
"""NOT_FOUND (of the UUID), GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND."""

HINTS = MappingProxyType(
    {
        1: "the next call begins anew",
        2: "see the device's ranges in `jouletune doctor`",
        4: "only root sets it: run the jouletune-actuator service",
        9: "load the NVIDIA driver (`modprobe nvidia`)",
        12: "install the NVIDIA driver where there is a GPU",
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
    kind = DeviceLost if code in LOST else ActuationError
    return kind(text, hint=HINTS.get(code, ""))


def connect() -> None:
    """Connect to the driver; connecting again is harmless. Raises ActuationError."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise translated(error, "NVML") from error


def uuids() -> list[str]:
    """Return the UUIDs of the GPUs that answer, in NVML's order; one that is lost is logged.

    Raises:
        ActuationError: the driver does not answer.
    """
    connect()
    found: list[str] = []
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                found.append(str(pynvml.nvmlDeviceGetUUID(handle)))
            except pynvml.NVMLError as error:
                if int(error.value) not in LOST:
                    raise
                log.error("event=gpu_lost index=%d why=%r", index, str(error))
    except pynvml.NVMLError as error:
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
            ActuationError: anything else; `what` begins the message.
        """
        answer, error = self._tried(function, arguments)
        if error is not None:
            raise translated(error, f"{self.uuid}: {what}") from error
        return answer

    def told(self, what: str, function: Callable[..., Any], *arguments: object) -> tuple[Any, str]:
        """Return the answer, or None and why this GPU has none.

        Raises:
            ActuationError, DeviceLost: for any other reason.
        """
        answer, error = self._tried(function, arguments)
        if error is not None:
            reason = translated(error, what)
            if int(error.value) not in ABSENT:
                raise reason from error
            return None, reason.message
        return answer, ""

    def driver(self) -> str:
        """Return the driver's version. Raises ActuationError, DeviceLost."""
        return str(self.call("driver version", lambda _: pynvml.nvmlSystemGetDriverVersion()))

    def _tried(
        self, function: Callable[..., Any], arguments: tuple[object, ...]
    ) -> tuple[Any, Any]:
        try:
            if self._handle is None:
                pynvml.nvmlInit()
                self._handle = pynvml.nvmlDeviceGetHandleByUUID(self.uuid)
            return function(self._handle, *arguments), None
        except pynvml.NVMLError as error:
            if int(error.value) in RESTARTED | LOST:
                self._handle = None
            if int(error.value) in RESTARTED:
                _disconnect()
            return None, error


def _disconnect() -> None:
    """Drop every connection of this process: NVML counts them, and begins anew only from none."""
    for _ in range(MOST_CONNECTIONS):
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            return
