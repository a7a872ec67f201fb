"""What `jouletune doctor` sees, each with a one-line cure, and who else sets what we set.

The data on the daemons is from their own documents (TuneD, power-profiles-daemon, TLP, DCGM, LACT,
zeusd, GEOPM, thermald).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

RIVALS: Mapping[str, str] = MappingProxyType(
    {
        "tuned": "sets CPU and system profiles",
        "power-profiles-daemon": "sets CPU profiles",
        "tlp": "sets CPU and device power",
        "auto-cpufreq": "sets CPU governors and clocks",
        "thermald": "lowers CPU clocks and power limits",
        "nvidia-powerd": "moves power between CPU and GPU",
        "nvidia-dcgm": "may apply a clock and power configuration",
        "lactd": "sets GPU clocks and power",
        "zeusd": "sets GPU clocks and power",
        "geopm": "sets GPU and CPU clocks",
    }
)
"""Systemd units that may set what we set, and what they do."""
SLICES = ("sys/fs/cgroup/system.slice", "sys/fs/cgroup/systemd/system.slice")


@dataclass(frozen=True, slots=True)
class Symptom:
    """One thing looked at: whether it is well, what was seen, and the cure where it is not."""

    about: str
    well: bool
    seen: str
    cure: str = ""


def rivals(root: Path) -> Iterator[Symptom]:
    """Yield the daemons at work that may set clocks or power too."""
    for unit, does in RIVALS.items():
        if any((root / slice / f"{unit}.service").is_dir() for slice in SLICES):
            yield Symptom(
                f"rival daemon {unit}", False, f"it is running and {does}",
                f"systemctl disable --now {unit}",
            )  # fmt: skip
