"""Diagnosis of this host's CPU: its symptoms, each with a one-line cure. Reads only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from agents.actuator.kernel_text import numbers
from agents.actuator.sysfs import POLICIES
from agents.devices.cpu.device import NO_CLOCKS, THROTTLES, no_clocks, open_cpu
from agents.devices.cpu.energy import POWERCAP
from agents.devices.cpu.knobs import KNOBS, discover
from agents.host.machine import arm, contained, jetson, masked, text_of, virtual
from agents.host.symptoms import Symptom, rights, settable
from agents.target.side import Side
from tuner.core import TuningError

LOAD_S = 0.5
"""Seconds of load on a core between two readings of the energy: RAPL counts every millisecond."""
STANDING = "many virtual machines have such counters: measure on the host"
UNMASKED = (
    "measure on the host, or show it to the container: podman run --security-opt "
    "unmask=/sys/devices/virtual/powercap, Docker systempaths=unconfined, Kubernetes procMount: Unmasked"
)


def examine(root: Path) -> Iterator[Symptom]:
    """Yield the symptoms of the CPU at `root`; nothing on a Jetson, whose board covers its CPU.

    Raises:
        TuningError: it cannot be opened.
    """
    if jetson(root):
        return
    with closing(open_cpu("", seed=0, state_dir=None, root=root)) as side:
        yield Symptom("cpu", True, f"{side.board}, {_driver(root)}")
        knobs = list(_knobs(root))
        yield from knobs
        granted = [knob.name for knob in side.space.knobs]
        if granted or any(knob.well for knob in knobs):
            yield rights("cpu", granted, side.cannot.get(KNOBS[0], ""), "cpu")
        yield _energy(side, root)
        yield from _heat(root)


def no_energy(root: Path) -> str:
    """Return the next step if no energy is measured."""
    if masked(root / POWERCAP):
        return UNMASKED
    if virtual(root):
        return "a virtual machine has none: measure on its host"
    if contained(root):
        return "a container sees what its runtime shows: measure on the host"
    if arm(root):
        return "few Arm hosts have a counter or a meter that the kernel shows"
    return "load intel_rapl_msr and make it readable for the group jouletune: install.sh --cpu"


def _driver(root: Path) -> str:
    """Return the number of clock policies and their drivers, for messages."""
    names = {text_of(p / "scaling_driver").strip() for p in root.glob(POLICIES)} - {""}
    policies = len(list(root.glob(POLICIES)))
    return f"{policies} clock policies ({', '.join(sorted(names)) or 'driver unknown'})"


def _knobs(root: Path) -> Iterator[Symptom]:
    """Yield the settable knobs, regardless of rights."""
    try:
        devices = discover(str(root))
    except TuningError as error:
        yield Symptom(f"cpu: {KNOBS[0]}", False, error.message, no_clocks(root))
        return
    if not devices:
        yield Symptom(f"cpu: {KNOBS[0]}", _failed(root), NO_CLOCKS, no_clocks(root))
        return
    values = devices[0].read()
    for name, offered in devices[0].ranges().items():
        if not offered:
            yield Symptom(
                f"cpu: {name}", False, "its files have no value that can be set", no_clocks(root)
            )
            continue
        yield settable(f"cpu: {name}", offered, values[name])
        if name.startswith(KNOBS[0]) and isinstance(values[name], str):
            yield Symptom(
                f"cpu: {name}", False, "its policies have different limits",
                "set the same limit on all, or find the program that sets single CPUs",
            )  # fmt: skip


def _energy(side: Side, root: Path) -> Symptom:
    """Return whether energy is measured, by two readings under load: a VM's counters may stay at 0."""
    if not side.source:
        none = not masked(root / POWERCAP) and (_failed(root) is None or arm(root))
        why = side.cannot["energy_j"]
        return Symptom("cpu: energy", None if none else False, why, no_energy(root))
    try:
        window = side.meter.start()
        began = time.monotonic()
        while time.monotonic() < began + LOAD_S:
            sum(range(1000))  # one core's worth of work
        joules, seconds = window.stop().totals["energy_j"], time.monotonic() - began
    except TuningError as error:
        return Symptom("cpu: energy", False, error.message, error.hint or no_energy(root))
    if joules <= 0.0:
        why = f"{side.source}: the counters did not change in {LOAD_S:g} s under load"
        return Symptom("cpu: energy", _failed(root), why, STANDING)
    return Symptom("cpu: energy", True, f"{side.source}: {joules / seconds:.3g} W under load")


def _failed(root: Path) -> bool | None:
    """Return the result for a missing clock or counter: False, None in a virtual machine or container."""
    return None if virtual(root) or contained(root) else False


def _heat(root: Path) -> Iterator[Symptom]:
    """Yield the number of times that a CPU was throttled, if the kernel counts them."""
    counts = sorted(root.glob(THROTTLES))
    total = sum(number for count in counts for number in numbers(count))
    if counts:
        yield Symptom(
            "cpu: heat", total == 0, f"throttled {total} times since the start",
            "" if total == 0 else "better cooling, or a lower ceiling: turbo clocks do not last",
        )  # fmt: skip
