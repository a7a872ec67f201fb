"""What root writes to an NVIDIA GPU: locked clocks and the power limit.

Sources: NVIDIA's NVML API reference. NVML has no getter for a clock lock, so `read` tells None and
restoring means the driver's reset. Application clocks are deprecated and never touched. Ours: a lock
is a ceiling, from the lowest clock to the value, so that an idle GPU may still slow down by itself.

The process connects once and never asks a driver anew that was restarted: DeviceLost ends the process,
and the next one finds what there is. Agents, who live on, have `nvml` for that.
"""

import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pynvml

from agents.actuator.driver import Value
from tuner.errors import ActuationError, DeviceLost

log = logging.getLogger(__name__)

CLOCK = "gpu.clock_mhz"
MEMORY = "gpu.mem_clock_mhz"
LIMIT = "gpu.power_limit_w"
LOCKS = {CLOCK: "GpuLockedClocks", MEMORY: "MemoryLockedClocks"}
"""Knob to what NVML calls its lock, in nvmlDeviceSet… and nvmlDeviceReset…"""

ABSENT = frozenset({3, 13, 25, 26})
"""NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, DEPRECATED: nothing to be had, it says."""
RESTARTED = frozenset({1, 9, 18})
"""UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH: the driver under us is another one."""
LOST = frozenset({6, 15, 16, 28, 999})
"""NOT_FOUND (of the UUID), GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND, UNKNOWN."""
VGPU = 2
"""NVML_GPU_VIRTUALIZATION_MODE_VGPU: a guest that shares the board; only its host sets anything."""
VOLTA, AMPERE, UNKNOWN_ARCHITECTURE = 5, 7, 0xFFFFFFFF
"""The first with locked clocks, the first with locked memory clocks; what a newer one may tell."""


class Unsupported(ActuationError, code="actuation"):
    """This GPU, or its driver, does not do that at all."""


def driver_version(_handle: object) -> str:
    """Return the driver's version, asked for like everything else."""
    return str(pynvml.nvmlSystemGetDriverVersion())


class NvidiaKnobs:
    """One GPU's knobs; a KnobDriver. Every method raises ActuationError or DeviceLost."""

    knobs = (CLOCK, MEMORY, LIMIT)

    def __init__(self, handle: Any, root: Path) -> None:  # noqa: ANN401 - the binding is untyped
        """Take a GPU; what it offers is asked only when it is needed."""
        self._handle = handle
        self._modules = root / "sys/module"
        self.uuid = str(pynvml.nvmlDeviceGetUUID(handle))

    @property
    def board(self) -> str:
        """What the GPU calls itself."""
        return str(self._call(pynvml.nvmlDeviceGetName))

    @property
    def epoch(self) -> str:
        """The driver's version and the kernel's number for its module: both differ after a reload."""
        return f"{self._call(driver_version)}/{[p.stat().st_ino for p in self._modules.glob('nvidia')]}"

    @cached_property
    def _offered(self) -> Mapping[str, tuple[Value, ...]]:
        return {k: tuple(sorted(set(v))) for k, v in self._supported().items() if v}

    def ranges(self) -> Mapping[str, tuple[Value, ...]]:
        """Return the knobs that can be written and their supported values, ascending."""
        return dict(self._offered)

    def read(self) -> Mapping[str, Value | None]:
        """Return the power limit in watts, and None for clock locks. A limit it has not is left out."""
        mw = self._asked(pynvml.nvmlDeviceGetPowerManagementLimit)
        limit = {} if mw is None else {LIMIT: mw / 1000.0 if mw % 1000 else mw // 1000}
        return {**dict.fromkeys(LOCKS), **limit}

    def write(self, knob: str, value: Value | None) -> None:
        """Set a knob; a lock is requested here, and only the clock under load shows it in force.

        None unlocks a clock, or sets the default power limit. Whether the value is offered is not
        asked: what was found must go back, whatever is offered now.
        """
        if knob == LIMIT:
            default = pynvml.nvmlDeviceGetPowerManagementDefaultLimit
            mw = self._call(default) if value is None else round(float(value) * 1000.0)
            self._call(pynvml.nvmlDeviceSetPowerManagementLimit, mw)
        elif value is None:
            self._call(getattr(pynvml, f"nvmlDeviceReset{LOCKS[knob]}"))
        else:
            mhz = round(float(value))
            floor = self._offered.get(knob, (mhz,))[0] if knob == CLOCK else mhz
            self._call(getattr(pynvml, f"nvmlDeviceSet{LOCKS[knob]}"), floor, mhz)

    def _call(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """Return what an NVML function of a device answers. Raises Unsupported."""
        try:
            return function(self._handle, *arguments)
        except pynvml.NVMLError as error:
            code, message = int(error.value), f"{self.uuid}: {function.__name__}: {error}"
            hint = "the driver was restarted, or is not loaded" if code in RESTARTED else ""
            kind = Unsupported if code in ABSENT else ActuationError
            raise (DeviceLost if code in RESTARTED | LOST else kind)(message, hint=hint) from error

    def _asked(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """Return the answer, None where this GPU has none."""
        try:
            return self._call(function, *arguments)
        except Unsupported:
            return None

    def _supported(self) -> Mapping[str, Any]:
        """Return what the GPU supports, knob by knob; why it refuses the others, agents find out.

        Of the power limit whole watts; any other within the device's own limits can be written, too: it
        may be found at one.
        """
        if self._asked(pynvml.nvmlDeviceGetVirtualizationMode) == VGPU:
            return {}
        found: dict[str, Any] = {}
        newer = self._asked(pynvml.nvmlDeviceGetArchitecture) or UNKNOWN_ARCHITECTURE
        memory = self._asked(pynvml.nvmlDeviceGetSupportedMemoryClocks)
        if memory and newer >= VOLTA:
            found[CLOCK] = self._asked(pynvml.nvmlDeviceGetSupportedGraphicsClocks, max(memory))
        if memory and newer >= AMPERE and len(set(memory)) > 1:
            found[MEMORY] = memory
        if bounds := self._asked(pynvml.nvmlDeviceGetPowerManagementLimitConstraints):
            found[LIMIT] = range(-(-bounds[0] // 1000), bounds[1] // 1000 + 1)
        return found


def discover(root: Path = Path("/")) -> list[NvidiaKnobs]:
    """Return the knobs of every GPU that answers; one that does not is logged.

    `root` is where the kernel shows the driver's module.

    Raises:
        ActuationError: there is no driver, or it does not answer.
    """
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        raise ActuationError(f"no NVIDIA driver answers: {error}") from error
    found: list[NvidiaKnobs] = []
    for index in range(count):
        try:
            found.append(NvidiaKnobs(pynvml.nvmlDeviceGetHandleByIndex(index), root))
        except (pynvml.NVMLError, ActuationError) as error:
            log.error("event=gpu_lost index=%d why=%r", index, str(error))
    return found
