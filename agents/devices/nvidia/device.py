"""An NVIDIA GPU as an agent opens it: set through the actuator's socket, measured directly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pynvml

from agents.actuator.client import RemoteKnobs, actuator_socket
from agents.actuator.client import reached as remote_knobs
from agents.devices.nvidia.clocks import ClockLock, FollowedKnobs
from agents.devices.nvidia.energy import AGREEMENT, CounterJoules, agreement, power_w
from agents.devices.nvidia.knobs import CLOCK, LIMIT, MEMORY, UNNAMED
from agents.devices.nvidia.limits import ENFORCED, cap_w, enforced_w
from agents.devices.nvidia.meter import GpuMeter
from agents.devices.nvidia.nvml import Gpu, ListedGpus, listed
from agents.devices.nvidia.offers import coarsened, refusals
from agents.devices.nvidia.remembered import Memory
from agents.devices.nvidia.sharing import shared_by
from agents.host.host import HostClock
from agents.host.ownership import ProcessOwners
from agents.target.joules import Every, IntegratedJoules, Joules, in_background
from agents.target.side import NothingToSet, Side
from tuner.core import Clock, DeviceLost, InvalidInput, Metric, Role, Space

ROLES = {
    CLOCK: Role.CORE_CLOCK,
    MEMORY: Role.MEMORY_CLOCK,
    LIMIT: Role.POWER_LIMIT,
}
METRICS = (Metric("energy_j"), Metric("power_w"))
AVERAGING_S = 1.2
"""Some boards tell power only as a mean over the last second; a change shows fully after that."""


def open_nvidia(rest: str, *, seed: int, state_dir: Path | None, root: Path) -> Side:
    """Open `nvidia:INDEX` or `nvidia:UUID`; $JOULETUNE_ACTUATOR names another socket than usual.

    Raises:
        InvalidInput: there is no such GPU.
        ActuationError, DeviceLost: the driver, or that GPU, does not answer.
    """
    uuid = chosen(rest, listed())
    return attach(
        uuid, socket=actuator_socket(root), state_dir=state_dir, clock=HostClock(), root=root
    )


def chosen(rest: str, found: ListedGpus) -> str:
    """Return the UUID that NVML's index or a UUID names.

    Raises:
        InvalidInput: there is no such GPU.
        ActuationError, DeviceLost: it does not answer; which of those that do not a UUID names is unknown.
    """
    if rest in found.uuids.values():
        return rest
    index = int(rest) if rest.isdecimal() else -1
    if index in found.uuids:
        return found.uuids[index]
    if index in found.lost:
        raise found.lost[index]
    if rest.startswith("GPU-") and found.lost:
        names = ", ".join(f"nvidia:{index}" for index in found.lost)
        raise DeviceLost(
            f"the GPU {rest} is not among those that answer; {names} does not",
            hint="see `dmesg`; the GPU needs a reset or the host a reboot",
        )
    if rest.startswith("MIG-"):
        hint = "clocks, power and energy belong to the whole board: name that"
    else:
        names = ", ".join(f"nvidia:{index} ({uuid})" for index, uuid in found.uuids.items())
        hint = f"there are {names}" if names else "see `jouletune doctor`"
    raise InvalidInput(f"there is no NVIDIA GPU {rest!r}", hint=hint)


def attach(
    uuid: str,
    *,
    socket: Path,
    state_dir: Path | None,
    clock: Clock,
    every: Every = in_background,
    root: Path = Path("/"),
) -> Side:
    """Return a GPU as an agent sees it; without an actuator it is only measured.

    Raises:
        ActuationError, DeviceLost: the GPU does not answer.
    """
    gpu = Gpu(uuid)
    driver = gpu.driver()
    memory = Memory(state_dir, uuid, driver)
    energy = find_energy(gpu, memory, clock, every)
    lock = ClockLock()
    remote, cannot = reached(socket, gpu, clock)
    space = Space(()) if remote is None else _memory_by_choice(remote.space)
    knobs = FollowedKnobs(remote, space, gpu, lock, memory, clock) if remote else None
    return Side(
        name=f"nvidia-{uuid}",
        shared=shared_by(gpu, root),
        kind="nvidia",
        spec=f"nvidia:{uuid}",
        board=board_name(gpu),
        version=driver,
        space=space,
        metrics=(*METRICS, *([ENFORCED] if enforced_w(gpu) else [])) if energy.open else (),
        actuator=knobs or NothingToSet(),
        meter=GpuMeter(gpu, energy.open, lock, ProcessOwners.below(root), clock),
        settle_s=energy.lag_s,
        cannot={**cannot, **energy.cannot},
        source=energy.source,
    )


@dataclass(frozen=True, slots=True)
class Energy:
    """Where a GPU's energy comes from, in words, and how to open it; or why there is none.

    `lag_s` is how long it goes on showing what was before a change.
    """

    open: Callable[[], Joules] | None
    source: str
    cannot: Mapping[str, str] = field(default_factory=dict)
    lag_s: float = 0.0


def find_energy(gpu: Gpu, memory: Memory, clock: Clock, every: Every) -> Energy:
    """Return the energy counter where it agrees with power, else power integrated, else none.

    The check takes 2.5 s at a GPU's first use under a driver; what it showed is kept.

    Raises:
        ActuationError, DeviceLost: the GPU does not answer.
    """
    _, no_power = gpu.told("power", pynvml.nvmlDeviceGetPowerUsage)
    counter, no_counter = gpu.told("counter", pynvml.nvmlDeviceGetTotalEnergyConsumption)
    if no_power and no_counter:
        return Energy(None, "", dict.fromkeys((m.name for m in METRICS), no_power))
    if counter is not None and no_power:
        return Energy(lambda: CounterJoules(gpu, clock), "the GPU's energy counter, unchecked")
    why = no_counter
    if counter is not None:
        ratio = memory.findings.counter_ratio
        if ratio is None:
            ratio = agreement(gpu, clock)
            memory.saw_counter(ratio)
        message = f"{ratio:.2f} of what its power adds up to"
        if abs(ratio - 1.0) <= AGREEMENT:
            source = f"the GPU's energy counter ({message})"
            return Energy(lambda: CounterJoules(gpu, clock), source)
        why = f"its energy counter shows {message}" if ratio else "its energy counter hardly moves"
    source = f"the GPU's power, integrated ({why})"
    return Energy(
        lambda: IntegratedJoules(partial(power_w, gpu), clock, every), source, lag_s=AVERAGING_S
    )


def reached(socket: Path, gpu: Gpu, clock: Clock) -> tuple[RemoteKnobs | None, Mapping[str, str]]:
    """Return the GPU behind the actuator, None where it is not there, and what cannot be set."""
    cap = cap_w(gpu)
    ceilings = {} if cap is None else {LIMIT: cap}
    remote, cannot = remote_knobs(socket, gpu.uuid, clock, ROLES, coarsened, ROLES, ceilings)
    why = refusals(gpu) if remote else {}
    return remote, {name: why.get(name, reason) for name, reason in cannot.items()}


def _memory_by_choice(space: Space) -> Space:
    """Return the space with the memory's clock for studies that name it only.

    On an RTX 5090 any finite memory lock moves performance by up to 32 %, also one at the clock that runs
    (NVIDIA/open-gpu-kernel-modules, issue 1265).
    """
    knobs = (replace(k, by_choice=True) if k.name == MEMORY else k for k in space.knobs)
    return Space(tuple(knobs))


def board_name(gpu: Gpu) -> str:
    """Return the board's name."""
    return str(gpu.told("name", pynvml.nvmlDeviceGetName)[0] or UNNAMED)
