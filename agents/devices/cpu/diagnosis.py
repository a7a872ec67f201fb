"""What is well and what is not with this host's CPU, each with a one-line cure. Reads only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from agents.actuator.sysfs import numbers
from agents.devices.cpu.device import THROTTLES, open_cpu
from agents.devices.cpu.knobs import KNOBS, discover
from agents.host.processor import text_of
from agents.host.symptoms import Symptom
from agents.target.side import Side
from tuner.core import TuningError

LOAD_S = 0.5
"""How long the doctor loads a core between two readings of the energy: RAPL counts every millisecond."""
POLICY = "sys/devices/system/cpu/cpufreq/policy*"
NO_CLOCKS = "on a virtual machine the host controls it; on bare metal enable a cpufreq driver"
NO_RIGHT = (
    'drivers = ["cpu"] and a grant in /etc/jouletune/actuator.toml (install.sh --cpu), then '
    "systemctl enable --now jouletune-actuator"
)
NO_ENERGY = (
    "a virtual machine has none; on bare metal load intel_rapl_msr "
    "and make it readable for the group jouletune: install.sh --cpu"
)


def examine(root: Path) -> Iterator[Symptom]:
    """Yield everything there is to say about the CPU of the host at `root`; a Jetson's is its board's."""
    if "nvidia,tegra" in text_of(root / "proc/device-tree/compatible"):
        return
    try:
        side = open_cpu("", seed=0, state_dir=None, root=root)
    except TuningError as error:
        yield Symptom("cpu", False, error.message, error.hint)
        return
    try:
        yield Symptom("cpu", True, f"{side.board}, {_driver(root)}")
        yield from _knobs(root)
        yield _rights(side)
        yield _energy(side)
        yield from _heat(root)
    finally:
        side.close()


def _driver(root: Path) -> str:
    names = {text_of(p / "scaling_driver").strip() for p in root.glob(POLICY)} - {""}
    policies = len(list(root.glob(POLICY)))
    return f"{policies} clock policies ({', '.join(sorted(names)) or 'driver unknown'})"


def _knobs(root: Path) -> Iterator[Symptom]:
    """Yield the settable knobs, without regard to rights; without a Jetson board's clocks."""
    try:
        devices = discover(str(root))
    except TuningError as error:
        yield Symptom(f"cpu: {KNOBS[0]}", False, error.message, NO_CLOCKS)
        return
    if not devices:
        yield Symptom(f"cpu: {KNOBS[0]}", False, "the kernel offers no clock limits", NO_CLOCKS)
        return
    values = devices[0].read()
    for name, offered in devices[0].ranges().items():
        if not offered:
            yield Symptom(
                f"cpu: {name}", False, "its files have no value that can be set", NO_CLOCKS
            )
            continue
        span = f"{offered[0]} to {offered[-1]}, {len(offered)} values"
        words = ", ".join(map(str, offered)) if isinstance(offered[0], str) else span
        yield Symptom(f"cpu: {name}", True, f"{words}; now {values[name]}")
        if name.startswith(KNOBS[0]) and isinstance(values[name], str):
            yield Symptom(
                f"cpu: {name}", False, "its policies have different limits",
                "set the same limit on all, or find the program that sets single CPUs",
            )  # fmt: skip


def _energy(side: Side) -> Symptom:
    """Return whether energy is metered, read twice under load: a VM may have counters that stand at 0."""
    if not side.source:
        return Symptom("cpu: energy", False, side.cannot["energy_j"], NO_ENERGY)
    try:
        window = side.meter.start()
        until = time.monotonic() + LOAD_S
        while time.monotonic() < until:
            sum(range(1000))  # one core's worth of work
        joules = window.stop().totals["energy_j"]
    except TuningError as error:
        return Symptom("cpu: energy", False, error.message, error.hint or NO_ENERGY)
    if joules <= 0.0:
        why = f"{side.source}: the counters did not change in {LOAD_S:g} s under load"
        return Symptom("cpu: energy", False, why, NO_ENERGY)
    return Symptom("cpu: energy", True, f"{side.source}: {joules / LOAD_S:.3g} W under load")


def _rights(side: Side) -> Symptom:
    granted = [knob.name for knob in side.space.knobs]
    if granted:
        return Symptom("cpu: permission to set", True, f"the actuator grants {', '.join(granted)}")
    return Symptom("cpu: permission to set", False, side.cannot[KNOBS[0]], NO_RIGHT)


def _heat(root: Path) -> Iterator[Symptom]:
    counts = sorted(root.glob(THROTTLES))
    total = sum(number for count in counts for number in numbers(count))
    if counts:
        yield Symptom(
            "cpu: heat", total == 0, f"throttled {total} times since the start",
            "" if total == 0 else "better cooling, or a lower ceiling: turbo clocks do not last",
        )  # fmt: skip
