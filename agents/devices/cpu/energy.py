"""A CPU's energy: from the kernel's counters, else from a monitor's power, else none.

Sources: the kernel's Documentation/power/powercap/powercap.rst, Documentation/hwmon/amd_energy.rst and
acpi_power_meter.rst; drivers/powercap/arm_scmi_powercap.c; NVIDIA's Grace guide (a socket's meter `Module`
contains `Grace`, and that `CPU` and `SysIO`). Issues joular/powerjoular 87 and mlco2/codecarbon 1321 report
counters that restart, stop, or stay at 0 in a VM. The choice of the zones to sum is ours: packages and
their DRAM. A zone `core` or `uncore` is part of its package. `psys` covers the packages and is used only
without them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.host.machine import masked, text_of, whole_number
from agents.target.joules import EnergySource, Every, IntegratedJoules, drawn, unread
from tuner.core import Clock, CounterAndPower, Fact, MeasurementError, ZoneReads, mirrored

POWERCAP = "sys/class/powercap"
MOST_W = 1000.0
"""Upper bound of the power of a package, socket or power domain. A counter that is not read for as long as
its range lasts at that power may have wrapped more than once."""
WHOLE = ("package", "Esocket", "psys")
"""Prefixes of the names of zones that always draw power: their counters move every ms."""
GRACE = ("Module", "Grace", "CPU", "SysIO")
"""Scopes of Grace's meters: the first contains the second, and that the others. They are never added."""
ROOT_ONLY = "only root can read it: see deploy/README.md"


@dataclass(frozen=True, slots=True)
class Zone:
    """One energy counter in microjoules, which starts again after `range_uj`.

    Zones with the same `shared` may report one counter: those of a package's dies, which kernels before
    5.3 name as packages. Empty if none may.
    """

    path: Path
    name: str
    range_uj: int
    shared: str = ""

    def read_uj(self) -> int:
        """Return the counter in µJ. Raises MeasurementError if it cannot be read."""
        return whole_number(self.path)


def find_energy(root: Path, clock: Clock, every: Every) -> EnergySource:
    """Return the source of the energy of all packages together; a part is never taken for the whole."""
    try:
        zones = _powercap(root) or _amd_energy(root)
        for zone in zones:
            zone.read_uj()
    except MeasurementError as error:
        return EnergySource(None, why_not=f"{error.message}; {ROOT_ONLY}")
    if zones:
        names = ", ".join(zone.name for zone in zones)
        return EnergySource(
            lambda: ZoneJoules(zones, clock), f"the CPU's energy counters ({names})"
        )
    powers = [p for p in sorted(root.glob(f"{POWERCAP}/arm-scmi:*/power_uw")) if _is_top(p.parent)]
    if powers:
        return EnergySource(
            lambda: IntegratedJoules(
                lambda: _watts(powers), clock, every, most_w=MOST_W * len(powers)
            ),
            f"the platform's average power, integrated ({len(powers)} domains of arm-scmi)",
        )
    if source := _grace(root, clock, every):
        return source
    why = (
        "the container's runtime masks all of"
        if masked(root / POWERCAP)
        else "no CPU package under"
    )
    return EnergySource(None, why_not=f"{why} {root / POWERCAP}")


def counted_uj(before: int, after: int, range_uj: int) -> int:
    """Return the increase between two readings of a counter that wraps after `range_uj`, in µJ."""
    return (after - before) % (range_uj + 1)


class ZoneJoules:
    """Energy of zones since opening; zones that mirror one counter are counted once."""

    def __init__(self, zones: Sequence[Zone], clock: Clock) -> None:
        self._zones = zones
        self._clock = clock
        self._patience_s = min(zone.range_uj for zone in zones) / 1e6 / MOST_W
        self._total_uj = [0] * len(zones)
        pairs = itertools.combinations(range(len(zones)), 2)
        self._reads: dict[tuple[int, int], list[tuple[int, int, int]]] = {
            (a, b): [] for a, b in pairs if zones[a].shared and zones[a].shared == zones[b].shared
        }
        self._wrong: MeasurementError | None = None
        self._last_uj = self._read_all()
        self._last_s = clock.monotonic()
        self._moved_s = {zone: self._last_s for zone in zones if zone.name.startswith(WHOLE)}
        self._still: tuple[float, Path] = (0.0, zones[0].path)

    def read(self) -> float:
        """Return the joules so far.

        Raises:
            MeasurementError: a counter cannot be read, may have wrapped more than once since the last
                reading, or moved more than power and wrapping explain. Every later call raises it again.
        """
        if self._wrong is not None:
            raise self._wrong
        try:
            self._count()
        except MeasurementError as error:
            self._wrong = error
            raise
        mirrors = {b for (_, b), fact in self._pairs() if mirrored(fact)}
        return sum(uj for n, uj in enumerate(self._total_uj) if n not in mirrors) / 1e6

    def facts(self) -> tuple[Fact, ...]:
        """Return the longest time that a package stood still, and the pairs that may mirror each other."""
        still_s, path = self._still
        alone = CounterAndPower(
            meter=f"{path}",
            counted_j=self._total_uj[0] / 1e6,
            still_s=still_s,
            why="no power is beside it",
        )
        return (alone, *(fact for _, fact in self._pairs()))

    def _pairs(self) -> Iterator[tuple[tuple[int, int], ZoneReads]]:
        """Yield the pairs of zones that may mirror each other, with their readings."""
        for (a, b), reads in self._reads.items():
            first, second = self._zones[a], self._zones[b]
            yield (
                (a, b),
                ZoneReads(
                    first=f"{first.path}",
                    second=f"{second.path}",
                    range_uj=first.range_uj,
                    reads=tuple(reads),
                ),
            )

    def _read_all(self) -> list[int]:
        """Return all counters; record the readings of pairs that may be one counter."""
        now_uj = [zone.read_uj() for zone in self._zones]
        for (a, b), reads in self._reads.items():
            reads.append((now_uj[a], now_uj[b], self._zones[a].read_uj()))
        return now_uj

    def _count(self) -> None:
        """Add the energy since the last reading. Raises MeasurementError."""
        now_uj, now_s = self._read_all(), self._clock.monotonic()
        unseen_s = now_s - self._last_s
        unread(self._zones[0].path, unseen_s, self._patience_s)
        counted = [
            counted_uj(before, after, zone.range_uj)
            for zone, before, after in zip(self._zones, self._last_uj, now_uj, strict=True)
        ]
        for zone, step in zip(self._zones, counted, strict=True):
            drawn(step / 1e6, unseen_s, MOST_W, zone.path)
            if zone in self._moved_s:
                self._moved_s[zone] = now_s if step else self._moved_s[zone]
                self._still = max(self._still, (now_s - self._moved_s[zone], zone.path))
        self._total_uj = [total + step for total, step in zip(self._total_uj, counted, strict=True)]
        self._last_uj, self._last_s = now_uj, now_s

    def close(self) -> None:
        """Do nothing: there is no background work."""


def _powercap(root: Path) -> list[Zone]:
    """Return RAPL's packages and their DRAM; psys if there are none."""
    folders = sorted((root / POWERCAP).glob("intel-rapl:*"))
    named = [(folder, text_of(folder / "name").strip()) for folder in folders]
    packages = [f for f, name in named if _is_top(f) and name.startswith("package")]
    inside = tuple(f"{package.name}:" for package in packages)
    parts = [f for f, name in named if name == "dram" and f.name.startswith(inside)]
    whole = [*packages, *parts] or [f for f, name in named if name == "psys"]
    names = dict(named)
    return [
        Zone(
            folder / "energy_uj",
            names[folder],
            whole_number(folder / "max_energy_range_uj"),
            re.split(r"-?\d", names[folder])[0],
        )
        for folder in whole
    ]


def _amd_energy(root: Path) -> list[Zone]:
    """Return the sockets of the driver amd_energy, which counts to 64 bits."""
    labels = sorted(root.glob("sys/class/hwmon/hwmon*/energy*_label"))
    return [
        Zone(label.with_name(label.name.replace("label", "input")), name, (1 << 64) - 1)
        for label in labels
        if text_of(label.parent / "name").strip() == "amd_energy"
        and (name := text_of(label).strip()).startswith("Esocket")
    ]


def grace_meters(root: Path) -> dict[str, dict[str, Path]]:
    """Return Grace's power meters by scope, widest first, and by socket."""
    meters: dict[str, dict[str, Path]] = {scope: {} for scope in GRACE}
    for text in sorted(root.glob("sys/class/hwmon/hwmon*/device/power1_oem_info")):
        scope, _, socket = text_of(text).strip().partition(" Power Socket ")
        meters.get(scope, {})[socket] = text.with_name("power1_average")
    return {scope: files for scope, files in meters.items() if files}


def _grace(root: Path, clock: Clock, every: Every) -> EnergySource | None:
    """Return the energy of Grace's sockets in one scope, None without their meters.

    `Module` is left out: it contains the GPU, whose own meter counts the same joules.
    """
    meters = grace_meters(root)
    sockets = {socket for files in meters.values() for socket in files}
    scope = next((s for s in GRACE[1:3] if meters.get(s, {}).keys() == sockets), "")
    if not meters:
        return None
    if not scope:
        covered = ", ".join(f"{s} of socket {' and '.join(n)}" for s, n in meters.items())
        return EnergySource(None, why_not=f"Grace's meters cover only {covered}")
    powers = [*meters[scope].values()]
    try:
        _watts(powers)
    except MeasurementError as error:  # ENODATA before the first sample
        return EnergySource(None, why_not=error.message)
    mean = text_of(powers[0].with_name("power1_average_interval")).strip() or "?"
    most_w = MOST_W * len(powers)
    return EnergySource(
        lambda: IntegratedJoules(lambda: _watts(powers), clock, every, most_w=most_w),
        f"the power of {len(powers)} sockets, integrated (scope {scope}, mean of {mean} ms)",
    )


def _is_top(folder: Path) -> bool:
    """Return whether a zone is part of no other zone."""
    return folder.name.count(":") == 1


def _watts(powers: Sequence[Path]) -> float:
    """Return the sum of powers in files of µW, in W."""
    return sum(whole_number(power) for power in powers) / 1e6
