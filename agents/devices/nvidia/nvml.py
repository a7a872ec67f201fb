"""NVML for agents: one GPU by its UUID, with NVML's errors raised as TuningError.

Source: NVIDIA's NVML API reference (nvmlReturn_t, device queries and commands). Ours: the meaning of each
error here, and that a GPU is found again after a restart of its driver.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pynvml

from agents.devices.nvidia.knobs import ABSENT, HINTS, LOST, RESTARTED, UNSUPPORTED
from tuner.errors import ActuationError, DeviceLost, TuningError

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 64
"""Upper bound of NVML connections that a process has open."""

LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 12, 13
GONE = frozenset({15, 16, 28})
"""GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND: the GPU does not work, for any request."""
LIFT = "when it is done: jouletune actuator restore --all --lift"
DEADLINE_S = 5.0
"""A call that takes longer is given up; also the actuator's default."""

INIT_S = 60.0
"""Deadline of a process's first call: without persistence mode a driver takes 1 to 3 s per GPU."""
SLOW = "turn persistence mode on: systemctl enable --now nvidia-persistenced"


def translated(error: Any, subject: str) -> TuningError:  # noqa: ANN401 - the binding is untyped
    """Return NVML's error as a TuningError: DeviceLost if the GPU is gone, else ActuationError."""
    code = int(error.value)
    if code in RESTARTED:
        text = f"{subject}: the NVIDIA driver was restarted or is not loaded ({error})"
    elif code in ABSENT:
        text = f"{subject}: {UNSUPPORTED} ({error})"
    else:
        text = f"{subject}: {error}"
    return (DeviceLost if code in LOST else ActuationError)(text, hint=HINTS.get(code, ""))


def in_time(subject: str, job: Callable[[], Any], seconds: float | None = None) -> Any:  # noqa: ANN401
    """Return the result of a call into the driver, made in a thread so that a hanging one is given up.

    The thread is left behind: nothing can end a call that hangs in the kernel.

    Raises:
        Late: there is no result within `seconds`, by default `DEADLINE_S`.
    """
    answer: futures.Future[Any] = futures.Future()

    def work() -> None:
        try:
            answer.set_result(job())
        except pynvml.NVMLLibraryMismatchError:  # the binding's error for FUNCTION_NOT_FOUND here
            answer.set_exception(pynvml.NVMLError(FUNCTION_NOT_FOUND))
        except Exception as error:  # noqa: BLE001 - raised in the calling thread
            answer.set_exception(error)

    threading.Thread(target=work, name="nvml", daemon=True).start()
    seconds = DEADLINE_S if seconds is None else seconds
    try:
        return answer.result(seconds)
    except futures.TimeoutError:  # not the built-in one before Python 3.11
        raise Late(subject, answer, seconds) from None


class Late(DeviceLost):
    """A call that has not returned. The GPU gets no other call until it has."""

    def __init__(self, subject: str, answer: futures.Future[Any], seconds: float) -> None:
        super().__init__(
            f"{subject}: the NVIDIA driver did not answer within {seconds:g} s",
            hint=SLOW if seconds == INIT_S else HINTS[15],
        )
        self.answer = answer


@dataclass(frozen=True, slots=True)
class ListedGpus:
    """The GPUs of this host by NVML's index: UUIDs of those that answer, and errors of the others."""

    uuids: Mapping[int, str] = field(default_factory=dict)
    lost: Mapping[int, TuningError] = field(default_factory=dict)


def listed() -> ListedGpus:
    """Return the GPUs that NVML counts; an error of one does not affect the others.

    Empty without NVIDIA's library. The first call of a process initialises all GPUs.

    Raises:
        ActuationError: there is a driver, but it does not answer.
    """
    try:
        gpus: ListedGpus = in_time("finding GPUs", _listed, INIT_S)
        return gpus
    except pynvml.NVMLError as error:
        if int(error.value) == LIBRARY_NOT_FOUND:
            return ListedGpus()
        raise translated(error, "finding GPUs") from error


def _listed() -> ListedGpus:
    """Return the GPUs by index, without a deadline. Raises pynvml.NVMLError."""
    uuids: dict[int, str] = {}
    lost: dict[int, TuningError] = {}
    pynvml.nvmlInit()
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            uuids[index] = str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index)))
        except pynvml.NVMLError as error:
            lost[index] = translated(error, f"nvidia:{index} does not answer")
            log.error("event=gpu_lost index=%d why=%r", index, str(error))
    return ListedGpus(uuids, lost)


class Gpu:
    """One GPU; each call has a deadline.

    After a restart of its driver one call fails and the next finds the GPU again. While a call hangs, all
    others are refused at once. While the file `detached` exists, no handle is kept or opened, because a
    GPU reset, a change of MIG mode and a driver upgrade need that.
    """

    def __init__(self, uuid: str, detached: Path | None = None) -> None:
        self.uuid = uuid
        self._detached = detached
        self._handle: Any = None
        self._late: Late | None = None

    def call(self, subject: str, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """Return the result of an NVML function of a device.

        Raises:
            DeviceLost: the GPU is gone.
            ActuationError: any other error; `subject` is in the message.
        """
        try:
            return self._answered(subject, function, arguments)
        except pynvml.NVMLLibraryMismatchError as error:
            raise ActuationError(
                f"{self.uuid}: {subject}: {error}", hint="upgrade the driver"
            ) from None
        except pynvml.NVMLError as error:
            raise self._failed(error, subject) from error

    def query(
        self, subject: str, function: Callable[..., Any], *arguments: object
    ) -> tuple[Any, str]:
        """Return the result of an optional query, or None and the reason why it is unknown.

        An error is raised only if the GPU is gone, its driver was replaced, or it does not answer.

        Raises:
            ActuationError, DeviceLost: one of these.
        """
        try:
            return self._answered(subject, function, arguments), ""
        except pynvml.NVMLLibraryMismatchError as error:  # the binding's error for an old driver
            return None, f"{self.uuid}: {subject}: {error}"
        except pynvml.NVMLError as error:
            if int(error.value) in RESTARTED | GONE:
                raise self._failed(error, subject) from error
            return None, translated(error, f"{self.uuid}: {subject}").message

    def _answered(
        self, subject: str, function: Callable[..., Any], arguments: tuple[object, ...]
    ) -> Any:  # noqa: ANN401
        """Return the result. Raises pynvml.NVMLError, DeviceLost, ActuationError."""
        if self._late is not None and not self._late.answer.done():
            raise self._late
        if self.close_if_detached():
            raise DeviceLost(f"{self.uuid}: {subject}: the GPUs are detached", hint=LIFT)
        try:
            if self._handle is None:
                self._handle = self._handle_of(subject)
            return in_time(f"{self.uuid}: {subject}", partial(function, self._handle, *arguments))
        except Late as late:
            self._late = late
            raise

    def check_detached(self) -> None:
        """Close the connection to the driver if the GPUs are detached."""
        self.close_if_detached()

    def close_if_detached(self) -> bool:
        """Close the connection to the driver if the GPUs are detached; return whether they are."""
        if self._detached is None or not self._detached.exists():
            return False
        if self._handle is not None:
            self._handle = None
            _disconnect()
            log.warning("event=detached device=%s", self.uuid)
        return True

    def _handle_of(self, subject: str) -> Any:  # noqa: ANN401
        """Return the GPU's handle. Raises DeviceLost if it is not found, for any request."""
        try:
            return in_time(f"{self.uuid}: {subject}", self._connected, INIT_S)
        except pynvml.NVMLError as error:
            raise self._failed(error, subject) from error

    def _connected(self) -> Any:  # noqa: ANN401
        """Connect to the driver and return the GPU's handle. Raises pynvml.NVMLError."""
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(self.uuid)

    def _failed(self, error: Any, subject: str) -> TuningError:  # noqa: ANN401
        """Return NVML's error as a TuningError; drop the handle if the error made it invalid."""
        code = int(error.value)
        if code in RESTARTED | LOST:
            self._handle = None
        if code in RESTARTED:
            _disconnect()
        return translated(error, f"{self.uuid}: {subject}")

    def driver(self) -> str:
        """Return the driver's version. Raises ActuationError, DeviceLost."""
        return str(self.call("driver version", lambda _: pynvml.nvmlSystemGetDriverVersion()))


def counter_mj(gpu: Gpu) -> int:
    """Return a GPU's energy counter in millijoules. Raises ActuationError, DeviceLost."""
    return int(gpu.call("energy counter", pynvml.nvmlDeviceGetTotalEnergyConsumption))


def _disconnect() -> None:
    """Close every NVML connection of this process: NVML counts them and starts anew only after the last."""
    with suppress(pynvml.NVMLError):
        for _ in range(MOST_CONNECTIONS):
            pynvml.nvmlShutdown()
