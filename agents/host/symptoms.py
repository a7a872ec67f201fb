"""The findings of `jouletune doctor`, each with a one-line cure, and the daemons that set the same knobs.

Source: the documentation of each daemon (TuneD, power-profiles-daemon, TLP, DCGM, LACT, zeusd, GEOPM,
thermald).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
"""Systemd units that may change the same clocks and power limits as we do, with their effect."""
NO_RIGHT = (
    'drivers = ["{0}"] and a grant in /etc/jouletune/actuator.toml (install.sh{1}), then '
    "systemctl enable --now jouletune-actuator; your user in the group jouletune"
)
SHARED = "set energy_share in the study's terms, or run one workload on the GPU"
SLICES = ("sys/fs/cgroup/system.slice", "sys/fs/cgroup/systemd/system.slice")


@dataclass(frozen=True, slots=True)
class Symptom:
    """One check: its subject, whether it passed, the observation, and the cure if it failed.

    `well` is None where this host has no such thing: no failure, and nothing to cure.
    """

    about: str
    well: bool | None
    seen: str
    cure: str = ""


def settable(about: str, values: Sequence[object], now: object = "") -> Symptom:
    """Return a knob that can be set, with its values, and its value now if that is shown."""
    span = f"{values[0]} to {values[-1]}, {len(values)} values"
    words = ", ".join(map(str, values)) if isinstance(values[0], str) else span
    return Symptom(about, True, f"{words}; now {now}" if now else words)


def rights(about: str, granted: Iterable[str], why: str, kind: str) -> Symptom:
    """Return whether the actuator grants any knob of a device; `why` is the reason if it grants none.

    `kind` names the driver in actuator.toml, and the option of install.sh.
    """
    names = ", ".join(granted)
    cure = "" if names else NO_RIGHT.format(kind, "" if kind == "nvidia" else f" --{kind}")
    seen = f"the actuator grants {names}" if names else why
    return Symptom(f"{about}: permission to set", bool(names), seen, cure)


def rivals(root: Path) -> Iterator[Symptom]:
    """Yield a symptom for each running daemon that may also set clocks or power limits."""
    for unit, does in RIVALS.items():
        if any((root / slice / f"{unit}.service").is_dir() for slice in SLICES):
            yield Symptom(
                f"rival daemon {unit}", False, f"it is running and {does}",
                f"systemctl disable --now {unit}",
            )  # fmt: skip
