"""NVML as everybody here calls it: one GPU by its UUID, and NVML's errors as ours.

Source: NVIDIA's NVML API reference (nvmlReturn_t, device queries and commands). What each error means
for us, and that a GPU is found anew after its driver was restarted, is our choice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent import futures
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

import pynvml

from agents.devices.nvidia.knobs import ABSENT, LOST, RESTARTED
from tuner.errors import ActuationError, DeviceLost, TuningError

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 64
"""No process has connected more often than this."""

LIBRARY_NOT_FOUND = 12
DEADLINE_S = 5.0
"""A call that takes longer is given up: the choice of the actuator's default, too."""

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


def in_time(what: str, job: Callable[[], Any]) -> Any:  # noqa: ANN401
    """Return what a call into the driver answers, asked in a thread so that one that hangs is given up.

    The thread is left behind: nothing can end a call that the kernel does not let go.

    Raises:
        Late: there is no answer within `DEADLINE_S`.
    """
    answer: futures.Future[Any] = futures.Future()

    def work() -> None:
        try:
            answer.set_result(job())
        except Exception as error:  # noqa: BLE001 - raised where it was asked for
            answer.set_exception(error)

    threading.Thread(target=work, name="nvml", daemon=True).start()
    try:
        return answer.result(DEADLINE_S)
    except futures.TimeoutError:  # not the built-in one before Python 3.11
        raise Late(what, answer) from None


class Late(DeviceLost):
    """A call has not come back. The GPU is not asked anything else until it has."""

    def __init__(self, what: str, answer: futures.Future[Any]) -> None:
        super().__init__(
            f"{what}: the NVIDIA driver did not answer within {DEADLINE_S:g} s",
            hint="see `dmesg`; the GPU needs a reset or the host a reboot",
        )
        self.answer = answer


def uuids() -> list[str]:
    """Return the UUIDs of the GPUs that answer, in NVML's order; one that is lost is logged.

    Without NVIDIA's library there is none.

    Raises:
        ActuationError: there is a driver, but it does not answer.
    """
    try:
        return list(in_time("finding GPUs", _uuids))
    except pynvml.NVMLError as error:
        if int(error.value) == LIBRARY_NOT_FOUND:
            return []
        raise translated(error, "finding GPUs") from error


def _uuids() -> list[str]:
    found: list[str] = []
    pynvml.nvmlInit()
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            found.append(str(pynvml.nvmlDeviceGetUUID(handle)))
        except pynvml.NVMLError as error:
            if int(error.value) not in LOST:
                raise
            log.error("event=gpu_lost index=%d why=%r", index, str(error))
    return found


class Gpu:
    """One GPU; each call within a deadline.

    After its driver was restarted one call fails and the next finds the GPU anew. While a call hangs,
    all others are refused at once.
    """

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self._handle: Any = None
        self._late: Late | None = None

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
            if self._late is not None and not self._late.answer.done():
                raise self._late
            asked = partial(self._asked, function, arguments)
            return in_time(f"{self.uuid}: {what}", asked), ""
        except Late as late:
            self._late = late
            raise
        except pynvml.NVMLError as error:
            code, reason = int(error.value), translated(error, f"{self.uuid}: {what}")
            if code in ABSENT:
                return None, reason.message
            if code in RESTARTED | LOST:
                self._handle = None
            if code in RESTARTED:
                _disconnect()
            raise reason from error

    def _asked(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> Any:  # noqa: ANN401
        if self._handle is None:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(self.uuid)
        return function(self._handle, *arguments)

    def driver(self) -> str:
        """Return the driver's version. Raises ActuationError, DeviceLost."""
        return str(self.call("driver version", lambda _: pynvml.nvmlSystemGetDriverVersion()))


def _disconnect() -> None:
    """Drop every connection of this process: NVML counts them, and begins anew only from none."""
    with suppress(pynvml.NVMLError):
        for _ in range(MOST_CONNECTIONS):
            pynvml.nvmlShutdown()
