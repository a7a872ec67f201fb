"""This host's CPU: how busy it is, and its energy where the kernel lets us read it. Nothing to set.

Sources: proc(5) for /proc/stat; the kernel's Documentation/power/powercap/powercap.rst for energy.
Left out: cpufreq and power limits (a later version sets them), hwmon and ARM SCMI meters.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from agents.target.side import NothingToSet, Side
from tuner.core import (
    InvalidInput,
    MeasurementError,
    Metric,
    Reading,
    Scope,
    Space,
)

POWERCAP = "sys/class/powercap"
CLOCKS_LATER = "this version sets no CPU clocks; the host keeps its own governor"
COUNTED = ("user", "nice", "system", "irq", "softirq")
"""Guests are within user; iowait and idle are not work; stolen time is another machine's."""
FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq")


@dataclass(frozen=True, slots=True)
class Package:
    """One CPU package's energy counter: microjoules that start again after `range_uj`."""

    path: Path
    range_uj: int

    def read_uj(self) -> int:
        """Return the counter. Raises MeasurementError where it cannot be read."""
        return _whole_number(self.path / "energy_uj")


def open_cpu(rest: str, *, seed: int, state_dir: Path | None, root: Path) -> Side:
    """Open this host's CPU; `root` is where its /proc and /sys are.

    Raises:
        InvalidInput: something follows `cpu` in the device's name.
    """
    if rest:
        raise InvalidInput(f"the device cpu takes no {rest!r}", hint="write just cpu")
    packages, why_not = find_packages(root)
    energy = (Metric("energy_j", scope=Scope.MODULE), Metric("power_w", scope=Scope.MODULE))
    unmetered = {metric.name: why_not for metric in energy}
    return Side(
        name="cpu",
        kind="cpu",
        board=model_name(_text(root / "proc/cpuinfo")),
        version=_text(root / "proc/sys/kernel/osrelease").strip() or "unknown",
        space=Space(()),
        metrics=energy if packages else (),
        actuator=NothingToSet(),
        meter=CpuMeter(root / "proc/stat", packages),
        cannot={"cpu.clock_mhz": CLOCKS_LATER, **({} if packages else unmetered)},
    )


class CpuMeter:
    """Opens windows over the host's busy time and its packages' energy."""

    def __init__(self, stat: Path, packages: tuple[Package, ...]) -> None:
        """Read busy time from `stat` and energy from `packages`, which may be none."""
        self._stat = stat
        self._packages = packages

    def start(self) -> CpuWindow:
        """Open a window now. Raises MeasurementError where a counter cannot be read."""
        return CpuWindow(self._stat, self._packages)


class CpuWindow:
    """One window. Read it at least once a minute: a package's counter wraps within minutes."""

    def __init__(self, stat: Path, packages: tuple[Package, ...]) -> None:
        """Note where the counters stand."""
        self._stat = stat
        self._packages = packages
        self._busy_s = busy_seconds(_required(stat))
        self._last_uj = [package.read_uj() for package in packages]
        self._total_uj = 0
        self._closed: Reading | None = None

    def read(self) -> Reading:
        """Return the busy CPU seconds of the whole host and, where metered, the energy so far.

        Raises:
            MeasurementError: a counter cannot be read.
        """
        if self._closed is not None:
            return self._closed
        busy = max(0.0, busy_seconds(_required(self._stat)) - self._busy_s)
        totals = {"busy_s": busy}
        if self._packages:
            self._count()
            totals["energy_j"] = self._total_uj / 1e6
        return Reading(totals)

    def stop(self) -> Reading:
        """Close the window and return what it showed.

        Raises:
            MeasurementError: a counter cannot be read.
        """
        self._closed = self.read()
        return self._closed

    def _count(self) -> None:
        now = [package.read_uj() for package in self._packages]
        for package, before, after in zip(self._packages, self._last_uj, now, strict=True):
            self._total_uj += counted_uj(before, after, package.range_uj)
        self._last_uj = now


def counted_uj(before: int, after: int, range_uj: int) -> int:
    """Return what a counter that wraps past `range_uj` has counted between two readings."""
    return (after - before) % (range_uj + 1)


def busy_seconds(stat: str) -> float:
    """Return the CPU seconds that all CPUs together have worked since the boot.

    Raises:
        MeasurementError: the text is not that of /proc/stat.
    """
    match = re.match(r"cpu +(\d+(?: \d+)*)", stat)
    numbers = match[1].split() if match else []
    if len(numbers) < len(FIELDS):
        raise MeasurementError(
            f"/proc/stat begins with {stat[:40]!r}, which does not tell the CPUs' time",
            hint="this needs a Linux kernel with procfs",
        )
    ticks = dict(zip(FIELDS, map(int, numbers), strict=False))
    return sum(ticks[name] for name in COUNTED) / os.sysconf("SC_CLK_TCK")


def model_name(cpuinfo: str) -> str:
    """Return the CPU's name as the kernel tells it; ARM kernels tell none."""
    match = re.search(r"^model name\s*:\s*(\S.*)$", cpuinfo, re.MULTILINE)
    return match[1].strip() if match else "unknown CPU"


def find_packages(root: Path) -> tuple[tuple[Package, ...], str]:
    """Return the packages whose energy can be read, or none and why not, in words."""
    packages: list[Package] = []
    for folder in sorted((root / POWERCAP).glob("intel-rapl:*")):
        # `intel-rapl:0:0` is a part of `intel-rapl:0`; psys covers the packages again.
        if folder.name.count(":") > 1 or not _text(folder / "name").startswith("package"):
            continue
        try:
            package = Package(folder, _whole_number(folder / "max_energy_range_uj"))
            package.read_uj()
        except MeasurementError as error:
            return (), f"{error.message}; the kernel lets only root read it unless told otherwise"
        packages.append(package)
    return tuple(packages), "" if packages else f"no CPU package under {root / POWERCAP}"


def _whole_number(path: Path) -> int:
    text = _required(path).strip()
    if not text.isdecimal():
        raise MeasurementError(f"{path} says {text!r}, which is no count of microjoules")
    return int(text)


def _required(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise MeasurementError(f"cannot read {path}: {error.strerror}") from error


def _text(path: Path) -> str:
    """Return a file's text, nothing where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
