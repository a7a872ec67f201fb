"""`jouletune doctor`: what this machine can measure and set, and why not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.options import AsJson, without_password


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: whether it is there, what was seen, and what to do where it is not."""

    about: str
    there: bool
    seen: str
    hint: str = ""


def doctor(
    db: Annotated[
        str,
        typer.Option(
            "--db",
            metavar="URL",
            envvar="JOULETUNE_DB",
            callback=without_password,
            help="A database to try.",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Check which sensors and controls are available.

    And what cannot, and why. Changes nothing.
    """
    from agents.config import filesystem_root
    from tuner.cli.output import echo_json, echo_table

    findings = list(examine(filesystem_root(), db))
    if as_json:
        echo_json({"findings": findings})
        return
    echo_table(
        "", "what", "seen", "next step",
        rows=(("yes" if f.there else "no", f.about, f.seen, f.hint) for f in findings),
        nothing="nothing was looked at",
    )  # fmt: skip


def examine(root: Path, db: str) -> Iterator[Finding]:
    """Yield everything there is to say about the machine whose filesystem is at `root`."""
    yield _cores()
    yield from _cpu_device(root)
    yield powercap(root)
    yield cpufreq(root)
    yield from _nvidia(root)
    yield from _rivals(root)
    yield jetson(root)
    yield _reference_workload()
    yield _database(db)


def powercap(root: Path) -> Finding:
    """Say whether the CPU's energy counters (RAPL) can be read."""
    about = "CPU energy (powercap)"
    counters = sorted(root.glob("sys/class/powercap/*/energy_uj"))
    if not counters:
        return Finding(
            about, False, "the kernel shows no energy counter",
            "on a virtual machine there is none; on bare metal load intel_rapl_msr",
        )  # fmt: skip
    readable = [c for c in counters if os.access(c, os.R_OK)]
    if not readable:
        return Finding(
            about, False, f"{len(counters)} counters, none readable by this user",
            "allow the agent's user to read energy_uj (a udev rule), never the whole world",
        )  # fmt: skip
    names = ", ".join(c.parent.name for c in readable)
    return Finding(about, True, f"energy counters readable: {names}")


def cpufreq(root: Path) -> Finding:
    """Say whether the CPU's clock limits are there, and whether this user may set them."""
    about = "CPU clock (cpufreq)"
    limits = sorted(root.glob("sys/devices/system/cpu/cpu*/cpufreq/scaling_max_freq"))
    if not limits:
        return Finding(
            about, False, "the kernel offers no clock limits",
            "on a virtual machine the host decides; on bare metal enable a cpufreq driver",
        )  # fmt: skip
    if not all(os.access(limit, os.W_OK) for limit in limits):
        return Finding(
            about, False, f"{len(limits)} clock limits, not writable by this user",
            "only root writes them",
        )  # fmt: skip
    return Finding(about, True, f"{len(limits)} clock limits, writable")


def jetson(root: Path) -> Finding:
    """Say whether this is a Jetson board."""
    about = "Jetson board"
    try:
        model = (root / "proc/device-tree/model").read_text("utf-8", "replace").rstrip("\0")
    except OSError:
        return Finding(about, False, "no device tree names one")
    if not any(name in model for name in ("Jetson", "NVIDIA")):
        return Finding(about, False, f"this board is a {model}")
    rails = sorted(root.glob("sys/bus/i2c/devices/*/hwmon/hwmon*/in1_label"))
    return Finding(about, True, f"{model}, {len(rails)} power sensors")


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0))
    return Finding("cores", cores >= 2, f"{cores} for this process", "" if cores >= 2 else
                   "with one core the load generator disturbs what it measures")  # fmt: skip


def _cpu_device(root: Path) -> Iterator[Finding]:
    """Yield what the cpu device can set and measure, and what it says it cannot."""
    from agents.devices.catalogue import open_device
    from tuner.core import TuningError

    try:
        attached = open_device("cpu", seed=0, state_dir=None, root=root)
    except TuningError as error:
        yield Finding("device cpu", False, error.message, error.hint)
        return
    try:
        knobs = ", ".join(k.name for k in attached.space.knobs) or "no knob of its own"
        metrics = ", ".join(m.name for m in attached.metrics) or "nothing"
        yield Finding("device cpu", True, f"{attached.board}; sets {knobs}; measures {metrics}")
        for name, why in attached.cannot.items():
            yield Finding(f"device cpu: {name}", False, why)
    finally:
        attached.close()


def _nvidia(root: Path) -> Iterator[Finding]:
    """Yield what the GPUs can set and measure."""
    from agents.actuator.client import actuator_socket
    from agents.devices.nvidia.diagnosis import examine as examine_gpus
    from agents.host.host import HostClock

    for found in examine_gpus(root, actuator_socket(root), HostClock()):
        yield Finding(found.about, found.well, found.seen, found.cure)


def _rivals(root: Path) -> Iterator[Finding]:
    """Yield who else sets clocks and power."""
    from agents.host.symptoms import rivals

    for found in rivals(root):
        yield Finding(found.about, found.well, found.seen, found.cure)


def _reference_workload() -> Finding:
    about = "reference workload (torch)"
    torch = _release("torch")
    if torch is None:
        hint = "pip install 'jouletune[reference]'"
        return Finding(about, False, "torch is not installed", hint)
    return Finding(about, True, f"torch {torch}")


def _database(url: str) -> Finding:
    """Say whether the given database answers, or else which kinds could be used."""
    about = "database"
    if url:
        from db import open_store
        from tuner.core import TuningError

        try:
            open_store(url, create=False).close()
        except TuningError as error:
            return Finding(about, False, error.message, error.hint)
        return Finding(about, True, "it answers")
    if _release("sqlalchemy") is None:
        return Finding(about, False, "no SQL here", "pip install 'jouletune[tuner]'")
    if _release("psycopg") is None:
        hint = "for PostgreSQL: pip install 'jouletune[postgres]'"
        return Finding(about, True, "SQLite", hint)
    return Finding(about, True, "SQLite and PostgreSQL")


def _release(package: str) -> str | None:
    """Return the installed release of a package without importing it, None where it is not there."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None
