"""An NVIDIA GPU for an agent: set through the actuator's socket, measured directly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pynvml

from agents.actuator_client.client import DETACHED, RemoteKnobs, actuator_socket
from agents.actuator_client.client import reached as remote_knobs
from agents.devices.nvidia.clocks import ClockLock, FollowedKnobs
from agents.devices.nvidia.energy import GpuEnergy
from agents.devices.nvidia.knobs import CLOCK, LIMIT, MEMORY, PROFILE, UNNAMED
from agents.devices.nvidia.limits import ENFORCED, cap_w, coarsened, enforced_w
from agents.devices.nvidia.meter import GpuMeter
from agents.devices.nvidia.nvml import Gpu, ListedGpus, listed
from agents.devices.nvidia.remembered import Memory
from agents.devices.nvidia.sharing import shared_by
from agents.host.machine import HostClock
from agents.host.processes.ownership import ProcessOwners
from agents.target.joules import Every, in_background
from agents.target.side import NothingToSet, Side
from tuner.core import Clock, DeviceLost, InvalidInput, Metric, Role, Space

ROLES = {
    CLOCK: Role.CORE_CLOCK,
    MEMORY: Role.MEMORY_CLOCK,
    LIMIT: Role.POWER_LIMIT,
}
MEASURED = ("energy_j", "power_w")
DETACH_S = 1.0
"""Seconds between an idle agent's checks whether to release the driver."""


def open_nvidia(rest: str, *, seed: int, state_dir: Path | None, root: Path) -> Side:
    """Open `nvidia:INDEX` or `nvidia:UUID`; $JOULETUNE_ACTUATOR replaces the actuator's usual socket.

    Raises:
        InvalidInput: there is no such GPU.
        ActuationError, DeviceLost: the driver, or that GPU, does not answer.
    """
    uuid = chosen(rest, listed())
    return attach(
        uuid, socket=actuator_socket(root), state_dir=state_dir, clock=HostClock(), root=root
    )


def chosen(rest: str, gpus: ListedGpus) -> str:
    """Return the UUID of the GPU with an NVML index or a UUID.

    Raises:
        InvalidInput: there is no such GPU.
        ActuationError, DeviceLost: it does not answer, or the UUID may belong to a GPU that does not.
    """
    if rest in gpus.uuids.values():
        return rest
    index = int(rest) if rest.isdecimal() else -1
    if index in gpus.uuids:
        return gpus.uuids[index]
    if index in gpus.lost:
        raise gpus.lost[index]
    if rest.startswith("GPU-") and gpus.lost:
        names = ", ".join(f"nvidia:{index}" for index in gpus.lost)
        raise DeviceLost(
            f"the GPU {rest} is not among the GPUs that answer; {names} does not answer",
            hint="check `dmesg`; reset the GPU or reboot the host",
        )
    if rest.startswith("MIG-"):
        hint = "clocks, power and energy belong to the whole board; give the board instead"
    else:
        names = ", ".join(f"nvidia:{index} ({uuid})" for index, uuid in gpus.uuids.items())
        hint = f"available: {names}" if names else "see `jouletune doctor`"
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
    """Return a GPU's side for an agent; without an actuator it is only measured.

    Raises:
        ActuationError, DeviceLost: the GPU does not answer.
    """
    gpu, gpus = Gpu(uuid, socket.with_name(DETACHED)), listed().uuids
    others = {n: Gpu(one, socket.with_name(DETACHED)) for n, one in gpus.items() if one != uuid}
    driver = gpu.driver()
    memory = Memory(state_dir, uuid, driver)
    energy = GpuEnergy(gpu, memory, clock, every)
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
        metrics=_metrics(energy, gpu),
        actuator=knobs or NothingToSet(),
        meter=GpuMeter(
            gpu,
            energy,
            lock,
            ProcessOwners.below(root),
            clock,
            end=every(DETACH_S, gpu.check_detached),
            index=next((n for n, one in gpus.items() if one == uuid), 0),
            others=others,
        ),
        settle_s=energy.lag_s,
        cannot={**cannot, **(dict.fromkeys(MEASURED, energy.cannot) if energy.cannot else {})},
        source=energy.source,
        energy_of=energy.parts,
    )


def reached(socket: Path, gpu: Gpu, clock: Clock) -> tuple[RemoteKnobs | None, Mapping[str, str]]:
    """Return the GPU's knobs behind the actuator, None if unreachable, and why knobs cannot be set."""
    cap = cap_w(gpu)
    ceilings = {} if cap is None else {LIMIT: cap}
    names = (*ROLES, PROFILE)
    remote, cannot = remote_knobs(socket, gpu.uuid, clock, names, coarsened, ROLES, ceilings)
    fixed_w = enforced_w(gpu) if remote and LIMIT not in remote.space.default else None
    if remote and fixed_w is not None:
        remote.caps.bound(fixed_w)
    return remote, {**cannot, **(remote.without if remote else {})}


def _metrics(energy: GpuEnergy, gpu: Gpu) -> tuple[Metric, ...]:
    """Return the GPU's metrics, each with its scope."""
    if energy.cannot:
        return ()
    limit = () if enforced_w(gpu) is None else (ENFORCED,)
    return (*(Metric(name, scope=energy.scope) for name in MEASURED), *limit)


def _memory_by_choice(space: Space) -> Space:
    """Return the space with the memory's clock only for studies that name it.

    On an RTX 5090 any finite memory lock changes performance by up to 32 %, even one at the present clock
    (NVIDIA/open-gpu-kernel-modules, issue 1265).
    """
    knobs = (replace(k, by_choice=True) if k.name == MEMORY else k for k in space.knobs)
    return Space(tuple(knobs))


def board_name(gpu: Gpu) -> str:
    """Return the board's name, `UNNAMED` if it reports none."""
    return str(gpu.query("name", pynvml.nvmlDeviceGetName)[0] or UNNAMED)
