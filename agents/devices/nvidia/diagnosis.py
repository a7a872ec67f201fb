"""Diagnosis of the NVIDIA GPUs of a host: their symptoms, each with a one-line cure.

Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pynvml

from agents.actuator_client.client import actuator_socket
from agents.devices.nvidia.clocks import look
from agents.devices.nvidia.device import board_name, reached
from agents.devices.nvidia.energy import GpuEnergy
from agents.devices.nvidia.knobs import (
    CLOCK,
    LIMIT,
    MEMORY,
    PROFILE,
    TOLERANCE_MHZ,
    NvidiaKnobs,
    discover,
)
from agents.devices.nvidia.limits import named, power_profiles
from agents.devices.nvidia.nvml import Gpu, listed
from agents.devices.nvidia.remembered import Memory
from agents.devices.nvidia.sharing import shared_by
from agents.host.machine import HostClock, contained, jetson, text_of
from agents.host.symptoms import SHARED, Symptom, rights, settable
from agents.target.joules import in_background
from tuner.core import Clock, TuningError

LOOKS = 5
LOOK_S = 0.2
NO_KNOB = "the board or its driver decides this; a newer driver may offer more"
JETSON = "the device `jetson` measures and sets the GPU of a Jetson"
NO_DRIVER = "install the NVIDIA driver (Debian: apt install nvidia-driver)"
VENDORS = "sys/bus/pci/devices/*/vendor"
NVIDIA = "0x10de"


def examine_host(root: Path) -> Iterator[Symptom]:
    """Yield the symptoms of the GPUs of the host at `root`, by the host's clock."""
    return examine(root, actuator_socket(root), HostClock())


def examine(root: Path, socket: Path, clock: Clock) -> Iterator[Symptom]:
    """Yield the symptoms of the host's GPUs."""
    about = "NVIDIA GPU (NVML)"
    try:
        gpus = listed()
        there = (
            [gpu for gpu in discover(root) if isinstance(gpu, NvidiaKnobs)] if gpus.uuids else []
        )
        by_uuid = {knobs.uuid: knobs for knobs in there}
    except TuningError as error:
        yield Symptom(about, False, error.message, error.hint)
        return
    if not gpus.uuids and not gpus.lost:
        if any(text_of(vendor).strip() == NVIDIA for vendor in root.glob(VENDORS)):
            yield Symptom(about, False, "there is a GPU, and no driver answers", NO_DRIVER)
        else:
            yield Symptom(about, None, "no GPU among the PCI devices, and no driver answers")
        return
    boards = ", ".join(_board(knobs) for knobs in by_uuid.values())
    lost = "".join(f"; nvidia:{index} does not answer" for index in gpus.lost)
    yield Symptom(about, not gpus.lost, f"{boards}{lost}", "see the lines below" if lost else "")
    for index in sorted({**gpus.uuids, **gpus.lost}):
        try:
            if index in gpus.lost:
                raise gpus.lost[index]
            yield from _one(f"nvidia:{index}", by_uuid[gpus.uuids[index]], socket, clock, root)
        except TuningError as error:
            yield Symptom(f"nvidia:{index}", False, error.message, error.hint)


def _board(knobs: NvidiaKnobs) -> str:
    """Return a GPU's name, or its UUID if the name cannot be read."""
    try:
        return knobs.board
    except TuningError:
        return knobs.uuid


def _one(
    name: str, knobs: NvidiaKnobs, socket: Path, clock: Clock, root: Path
) -> Iterator[Symptom]:
    """Yield the symptoms of one GPU."""
    gpu = Gpu(knobs.uuid)
    yield Symptom(name, True, f"{board_name(gpu)}, {knobs.uuid}, driver {gpu.driver()}")
    ranges = knobs.ranges()
    without = JETSON if jetson(root) else NO_KNOB
    for knob in (CLOCK, MEMORY, LIMIT, PROFILE):
        if values := ranges.get(knob):
            yield settable(f"{name}: {knob}", values)
        else:
            yield Symptom(f"{name}: {knob}", None, knobs.without[knob], without)
    remote, cannot = reached(socket, gpu, clock)
    granted = [knob.name for knob in remote.space.knobs] if remote else []
    if remote:
        remote.close()
    if granted or ranges:
        yield rights(name, granted, cannot.get(next(iter(ranges), ""), ""), "nvidia")
    energy = GpuEnergy(gpu, Memory(None, knobs.uuid, gpu.driver()), clock, in_background)
    if energy.due and look(gpu).loaded:
        energy.judge()
    cure = without if energy.cannot else ""
    yield Symptom(f"{name}: energy", not cure or None, energy.source or energy.cannot, cure)
    yield _sharing(name, gpu, root)
    yield from _persistence(name, gpu)
    yield from _power_profiles(name, gpu)
    yield _clock_lock(name, gpu, clock)
    if LIMIT in ranges:
        yield _power_limit(name, gpu)


def _sharing(name: str, gpu: Gpu, root: Path) -> Symptom:
    """Return whether the GPU's energy is shared with other users."""
    about, shared = f"{name}: sharing", shared_by(gpu, root)
    if shared:
        return Symptom(about, False, shared, SHARED)
    inside = "; processes outside this container may be invisible" if contained(root) else ""
    return Symptom(about, True, f"not shared now{inside}")


def _persistence(name: str, gpu: Gpu) -> Iterator[Symptom]:
    """Yield a symptom if persistence mode is off."""
    mode, _ = gpu.query("persistence mode", pynvml.nvmlDeviceGetPersistenceMode)
    if mode == 0:
        yield Symptom(
            f"{name}: persistence mode", False,
            "off: clocks, limit and energy are reset when the last program ends",
            "systemctl enable --now nvidia-persistenced",
        )  # fmt: skip


def _power_profiles(name: str, gpu: Gpu) -> Iterator[Symptom]:
    """Yield the GPU's workload power profiles, if it has them."""
    profiles = power_profiles(gpu)
    if profiles is not None:
        both = f"{named(profiles.enforced)} enforced, {named(profiles.requested)} requested"
        yield Symptom(
            f"{name}: power profiles", True, f"{both}; another program's change ends a hold"
        )


def _clock_lock(name: str, gpu: Gpu, clock: Clock) -> Symptom:
    """Return the highest clock under load; below the listed maximum a lock or the board may limit it."""
    about = f"{name}: foreign clock lock"
    most, reason = gpu.query("maximum", pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM)
    if most is None:
        return Symptom(about, True, f"unknown: {reason}")
    looks = []
    for _ in range(LOOKS):
        looks.append(look(gpu))
        clock.sleep(LOOK_S)
    loaded = [s for s in looks if s.loaded]
    if not loaded:
        return Symptom(about, True, "the GPU is idle, so a lock is not visible")
    highest = max(s.sm_mhz for s in loaded)
    if not highest:
        return Symptom(about, True, "unknown: the driver reports no SM clock")
    if highest < most - TOLERANCE_MHZ and not any(s.slowed for s in loaded):
        return Symptom(
            about, True,
            f"unknown: {highest} MHz under load of {most} listed, "
                "without throttling; normal for many boards or at this load",
            "if it is not jouletune's hold (`jouletune "
                "actuator status`), unlock it: nvidia-smi -rgc as root",
        )  # fmt: skip
    return Symptom(about, True, f"none suspected: {highest} MHz under load")


def _power_limit(name: str, gpu: Gpu) -> Symptom:
    """Return whether a cap or another program's limit is in force."""
    about = f"{name}: foreign power limit"
    limits = [
        gpu.query(subject, function)
        for subject, function in (
            ("enforced limit", pynvml.nvmlDeviceGetEnforcedPowerLimit),
            ("power limit", pynvml.nvmlDeviceGetPowerManagementLimit),
            ("default limit", pynvml.nvmlDeviceGetPowerManagementDefaultLimit),
        )
    ]
    if reasons := [why for _, why in limits if why]:
        return Symptom(about, True, f"unknown: {reasons[0]}")
    enforced, limit, default = (int(mw) // 1000 for mw, _ in limits)
    if enforced < limit:
        return Symptom(
            about, False,
            f"{enforced} W are enforced, {limit} W are set: another cap applies (BMC, rack, module)",
            "ask the administrator of the rack or module; it cannot be raised from this host",
        )  # fmt: skip
    if limit == default:
        return Symptom(about, True, f"none: {limit} W is the default")
    return Symptom(
        about, False, f"the current limit is {limit} W, the default {default} W",
        f"if it is not intended and not jouletune's hold: nvidia-smi -pl {default} as root",
    )  # fmt: skip
