"""The knobs that root writes on an NVIDIA GPU: locked clocks, the power limit, a workload power profile.

Source: NVIDIA's NVML API reference (nvmlWorkloadPowerProfile…_v1_t: any program may request profiles, and
the driver enforces some of them). NVML has no getter for a clock lock: `read` returns None for it, and
restoring means the driver's reset. Application clocks are deprecated and never touched. Ours: a lock is a
ceiling, from the lowest clock to the value, so that an idle GPU may still slow down by itself.

The process connects once and never calls a restarted driver again: DeviceLost ends the process, and the
next one finds the present GPUs. Agents outlive such a restart and use `nvml` instead.
"""

import ctypes
import logging
import os
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pynvml

from agents.actuator.driver import SLEPT, Absent, Value
from tuner.errors import ActuationError, DeviceLost, KnobRefused

log = logging.getLogger(__name__)

CLOCK = "gpu.clock_mhz"
MEMORY = "gpu.mem_clock_mhz"
LIMIT = "gpu.power_limit_w"
PROFILE = "gpu.power_profile"
REQUEST = "power profile "
"""With the number of a profile: the entry of the request for it, `on` or `off`."""
LOCKS = {CLOCK: "GpuLockedClocks", MEMORY: "MemoryLockedClocks"}
"""Knob to the name of its lock in nvmlDeviceSet… and nvmlDeviceReset…"""

ABSENT = frozenset({3, 13, 25, 26})
"""NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, DEPRECATED: not offered."""
NO_DATA = ABSENT | {2, 4, 6, 17, 21, 27}
"""ABSENT and INVALID_ARGUMENT, NO_PERMISSION, NOT_FOUND, OPERATING_SYSTEM, NO_DATA, NOT_READY: no value."""
REFUSED = ABSENT | {4, 17, 24}
"""ABSENT and NO_PERMISSION, OPERATING_SYSTEM, FREQ_NOT_SUPPORTED: the setter accepts no value."""
RESTARTED = frozenset({1, 9, 18})
"""UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH: the driver was replaced."""
LOST = frozenset({6, 15, 16, 28, 999})
"""NOT_FOUND (of the UUID), GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND, UNKNOWN."""
HINTS = {
    **dict.fromkeys(ABSENT, "a newer driver may support it"),
    **dict.fromkeys(LOST, "check `dmesg`; reset the GPU, or reboot the host"),
    1: "the driver was restarted: try again",
    2: "check the device's ranges with `jouletune doctor`",
    4: "only root can set it; run the jouletune-actuator service",
    9: "load the NVIDIA driver (`modprobe nvidia`)",
    17: "allow /dev/nvidia* in the cgroup or the unit's DeviceAllow=",
    18: "the driver was upgraded; reload its modules, or reboot",
    999: "check `dmesg`; restart a container, whose GPUs a reload of the host's systemd takes away",
}
"""NVML's error to the next step. Source of the last: NVIDIA/nvidia-container-toolkit, issue 48."""
TOLERANCE_MHZ = 30
"""Two steps of today's boards: the reported clock varies by one."""
UNNAMED = "NVIDIA GPU"
VGPU = 2
"""NVML_GPU_VIRTUALIZATION_MODE_VGPU: a guest that shares the board; only its host can set knobs."""
UNSUPPORTED = "this GPU or its driver does not support it"
GUEST = "this is a vGPU; only its host can set clocks and power"
NO_LOCK = "GPUs of this generation have no such lock"
ONE_CLOCK, UNLISTED = "the board has one memory clock", "the driver lists no value"
STEP_MHZ = 15
"""The step of all SM clock lists that have been reported for boards since Volta."""
SM, MEM, NOW = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM, pynvml.NVML_CLOCK_ID_CURRENT
VOLTA, AMPERE, UNKNOWN_ARCHITECTURE = 5, 7, 0xFFFFFFFF
"""NVML's numbers of the first architecture with locked clocks, the first with locked memory clocks, and
of one that is unknown to this NVML because it is newer."""


def code_of(error: Any) -> int:  # noqa: ANN401 - the binding is untyped
    """Return the number of an NVML error; the binding's class for FUNCTION_NOT_FOUND has none."""
    return int(getattr(error, "value", 13))


def driver_version(_handle: object) -> str:
    """Return the driver's version; the parameter makes it callable like the functions of a device."""
    return str(pynvml.nvmlSystemGetDriverVersion())


def profile_masks(handle: object) -> list[int]:
    """Return the masks of a GPU's valid profiles, those requested, and those enforced of them."""
    now = pynvml.c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t()
    pynvml.nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(handle, ctypes.byref(now))
    masks = (now.perfProfilesMask, now.requestedProfilesMask, now.enforcedProfilesMask)
    return [sum(int(word) << 32 * n for n, word in enumerate(mask.mask)) for mask in masks]


def profiles_in(mask: int) -> dict[str, int]:
    """Return the names of a mask's profiles, each with its number."""
    prefix = "NVML_POWER_PROFILE_"
    other = (f"{prefix}MAX", f"{prefix}OPERATION")
    names = {
        number: name.removeprefix(prefix).lower().replace("_", "-")
        for name, number in vars(pynvml).items()
        if name.startswith(prefix) and name != other[0] and not name.startswith(other[1])
    }
    return {names.get(n, f"profile-{n}"): n for n in range(mask.bit_length()) if mask >> n & 1}


class NvidiaKnobs:
    """One GPU's knobs; a KnobDriver. Every method raises ActuationError or DeviceLost.

    Of the requests for profiles only ours are changed: each has an entry of its own.
    """

    knobs = (CLOCK, MEMORY, LIMIT, PROFILE)

    def __init__(self, handle: Any, root: Path) -> None:  # noqa: ANN401 - the binding is untyped
        """Take a GPU; its ranges are read only when needed."""
        self._handle = handle
        self._sys = root / "sys"
        self._ours = 0
        self.uuid = str(pynvml.nvmlDeviceGetUUID(handle))

    @property
    def board(self) -> str:
        """The GPU's name, `UNNAMED` if it reports none."""
        return str(self._optional(pynvml.nvmlDeviceGetName) or UNNAMED)

    @property
    def defaults(self) -> Mapping[str, Value]:
        """The power limit after a boot in watts, if the GPU reports it."""
        mw = self._optional(pynvml.nvmlDeviceGetPowerManagementDefaultLimit)
        return {} if mw is None else {LIMIT: _watts(mw)}

    @property
    def epoch(self) -> str:
        """The driver's version, and the inodes of its module and of its link to the GPU.

        These differ after a reload or a rescan of the bus. A new process may find the settings lost where
        persistence mode is off: the driver unloads a GPU that no process uses.
        """
        pci = self._call(pynvml.nvmlDeviceGetPciInfo, absent=ABSENT)
        name = pci and f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"
        links = (
            *self._sys.glob("module/nvidia"),
            *self._sys.glob(f"bus/pci/drivers/nvidia/{name}"),
        )
        process = "" if self._optional(pynvml.nvmlDeviceGetPersistenceMode) else os.getpid()
        own = f"{self._call(driver_version)}/{[link.lstat().st_ino for link in links]}"
        return f"{own}{SLEPT}{self._optional(pynvml.nvmlDeviceGetIndex)} {process}"

    @cached_property
    def _supported(self) -> Mapping[str, Any]:
        """The supported values of each knob, or the reason that there are none; asked once.

        A knob is offered if its value can be read: laptops report the range of a power limit that cannot
        be read or set. Power limits are offered in whole watts; any other within the device's limits can
        also be written, because it may be the original. If the driver lists no clocks (GB10), they are
        steps from its least to its greatest.
        """
        if self._optional(pynvml.nvmlDeviceGetVirtualizationMode) == VGPU:
            return dict.fromkeys(self.knobs, GUEST)
        newer = self._optional(pynvml.nvmlDeviceGetArchitecture) or UNKNOWN_ARCHITECTURE
        no_sm, no_mem = (
            self._queried(pynvml.nvmlDeviceGetClock, kind, NOW)[1] for kind in (SM, MEM)
        )
        memory, no_memory = self._queried(pynvml.nvmlDeviceGetSupportedMemoryClocks)
        one = ONE_CLOCK if memory and len(set(memory)) == 1 else ""
        if memory:
            clocks, none = self._queried(pynvml.nvmlDeviceGetSupportedGraphicsClocks, max(memory))
        else:
            least_state = (SM, pynvml.NVML_PSTATE_0)
            ends, none = self._queried(pynvml.nvmlDeviceGetMinMaxClockOfPState, *least_state)
            clocks = ends and range(ends[1], ends[0] - 1, -STEP_MHZ)
        mw, no_limit = self._queried(pynvml.nvmlDeviceGetPowerManagementLimitConstraints)
        unread = self._queried(pynvml.nvmlDeviceGetPowerManagementLimit)[1]
        masks, no_profile = self._queried(profile_masks)
        return {
            CLOCK: none or NO_LOCK * (newer < VOLTA) or no_sm or clocks,
            MEMORY: no_memory or one or NO_LOCK * (newer < AMPERE) or no_mem or memory,
            LIMIT: no_limit or unread or range(-(-mw[0] // 1000), mw[1] // 1000 + 1),
            PROFILE: no_profile or profiles_in(masks[0]),
        }

    @property
    def without(self) -> Mapping[str, str]:
        """The knobs left out, each with the reason."""
        return {k: v or UNLISTED for k, v in self._supported.items() if not v or isinstance(v, str)}

    def ranges(self) -> Mapping[str, tuple[Value, ...]]:
        """Return the knobs that can be written and their supported values, ascending."""
        offered = self._supported.keys() - self.without.keys()
        return {k: (*sorted(set(self._supported[k])),) for k in self.knobs if k in offered}

    def read(self) -> Mapping[str, Value | None]:
        """Return the power limit in watts and the requested profiles, if any, and None for clock locks.

        While some requests are ours, those of other programs are left out.
        """
        mw = self._optional(pynvml.nvmlDeviceGetPowerManagementLimit)
        limit = {} if mw is None else {LIMIT: _watts(mw)}
        valid, requested = self._profiles
        names = "+".join(profiles_in(requested & self._ours or requested)) or "none"
        return {**dict.fromkeys(LOCKS), **limit, **({PROFILE: names} if valid else {})}

    def entries(self, names: Collection[str] = ()) -> tuple[dict[str, Any], dict[str, str]]:
        """Return each knob and its value, and each request for a profile; `names` has ours."""
        valid, requested = self._profiles
        numbers = profiles_in(valid).values()
        self._ours = sum(1 << n for n in numbers if f"{REQUEST}{n}" in names)
        shown = {k: (k, v, None) for k, v in self.read().items() if k != PROFILE}
        whole = {PROFILE: (PROFILE, None, None)} if PROFILE in names else {}
        texts = {n: "on" if requested >> n & 1 else "off" for n in numbers}
        return {
            **shown,
            **whole,
            **{f"{REQUEST}{n}": (PROFILE, t, None) for n, t in texts.items()},
        }, {}

    def plan(self, knob: str, value: Value | None) -> dict[str, Any]:
        """Return the value of each entry of a knob; requests that are left out keep their originals."""
        if knob != PROFILE:
            return {knob: value}
        names = profiles_in(self._profiles[0])
        return {f"{REQUEST}{n}": "on" for name, n in names.items() if name in str(value).split("+")}

    def overruled(self, knob: str, wrote: Value | None) -> bool:
        """Return whether a clock runs above its lock: another program has changed or removed the lock."""
        kind = {CLOCK: SM, MEMORY: MEM}.get(knob)
        if kind is None or wrote is None:
            return False
        return int(self._call(pynvml.nvmlDeviceGetClock, kind, NOW)) > float(wrote) + TOLERANCE_MHZ

    def write(self, knob: str, value: Value | None) -> None:
        """Set a knob; for a lock success means "requested", and only the clock under load shows it.

        None unlocks a clock, sets the default power limit, or removes all requests for profiles. The
        value need not be among the offered ones, because the original must be restored in any case.
        """
        if knob.startswith((PROFILE, REQUEST)):
            self._request(knob, value)
        elif knob == LIMIT:
            default = pynvml.nvmlDeviceGetPowerManagementDefaultLimit
            mw = self._call(default) if value is None else round(float(value) * 1000.0)
            self._set(knob, pynvml.nvmlDeviceSetPowerManagementLimit, mw)
        elif value is None:
            self._set(knob, getattr(pynvml, f"nvmlDeviceReset{LOCKS[knob]}"))
        else:
            mhz = round(float(value))
            floor = self.ranges().get(knob, (mhz,))[0] if knob == CLOCK else mhz
            self._set(knob, getattr(pynvml, f"nvmlDeviceSet{LOCKS[knob]}"), floor, mhz)

    @property
    def _profiles(self) -> list[int]:
        """The masks of the valid and of the requested profiles; 0 without any."""
        masks: list[int] = self._optional(profile_masks) or [0, 0]
        return masks[:2]

    def _request(self, knob: str, value: Value | None) -> None:
        """Request a profile, or withdraw our request; of the whole knob, all but the named ones."""
        valid, requested = self._profiles
        names = str(value).split("+")
        if knob == PROFILE:
            target = sum(1 << n for name, n in profiles_in(valid).items() if name in names)
        else:
            bit = 1 << int(knob.removeprefix(REQUEST))
            target = requested | bit if value == "on" else requested & ~bit
        for function, mask in (
            (pynvml.nvmlDeviceWorkloadPowerProfileClearRequestedProfiles, requested & ~target),
            (pynvml.nvmlDeviceWorkloadPowerProfileSetRequestedProfiles, target & ~requested),
        ):
            if mask:
                request = pynvml.c_nvmlWorkloadPowerProfileRequestedProfiles_v1_t()
                words = [mask >> 32 * n & 0xFFFFFFFF for n in range(8)]
                request.requestedProfilesMask.mask[:] = words
                self._set(PROFILE, function, ctypes.byref(request))

    def _call(
        self, function: Callable[..., Any], *arguments: object, absent: Collection[int] = ()
    ) -> Any:  # noqa: ANN401
        """Return the result of an NVML function of a device, None if its error is one of `absent`."""
        try:
            return function(self._handle, *arguments)
        except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError) as error:
            if (code := code_of(error)) in absent:
                return None
            kind = DeviceLost if code in RESTARTED | LOST else ActuationError
            why = f"{self.uuid}: {function.__name__}: {error}"
            raise kind(why, hint=HINTS.get(code, "")) from error

    def _set(self, knob: str, function: Callable[..., Any], *arguments: object) -> None:
        """Call a setter. Raises KnobRefused if it accepts no value at all."""
        try:
            self._call(function, *arguments)
        except ActuationError as error:
            if code_of(error.__cause__) not in REFUSED:
                raise
            raise KnobRefused(
                f"{self.uuid} refuses {knob}: {function.__name__}: {error.__cause__}",
                hint=f"leave {knob} out of the grants in actuator.toml",
                knob=knob,
            ) from error

    def _optional(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """Return the result, None if this GPU does not report it."""
        return self._queried(function, *arguments)[0]

    def _queried(self, function: Callable[..., Any], *arguments: object) -> tuple[Any, str]:
        """Return the result, or None and the reason that this GPU does not report it."""
        try:
            return self._call(function, *arguments), ""
        except ActuationError as error:
            if (code := code_of(error.__cause__)) not in NO_DATA:
                raise
            return None, UNSUPPORTED if code in ABSENT else error.message


def _watts(mw: int) -> Value:
    """Return milliwatts in watts, as an integer if possible."""
    return mw / 1000.0 if mw % 1000 else mw // 1000


def discover(root: Path = Path("/")) -> list[Any]:
    """Return the NvidiaKnobs of every GPU that NVML counts; an Absent for one that does not answer.

    The kernel's view of the driver's module is below `root`.

    Raises:
        ActuationError: there is no driver, or it does not answer.
    """
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        hint = HINTS.get(code_of(error), "")
        raise ActuationError(f"no NVIDIA driver answers: {error}", hint=hint) from error
    counted = list[NvidiaKnobs | Absent]()
    for index in range(count):
        try:
            counted.append(NvidiaKnobs(pynvml.nvmlDeviceGetHandleByIndex(index), root))
        except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError, ActuationError) as error:
            log.error("event=gpu_lost index=%d why=%r", index, str(error))
            counted.append({"uuid": f"nvidia:{index}", "absent": str(error)})
    return counted
