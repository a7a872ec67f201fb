"""A Jetson's power monitors: which rails there are, and which of them make the board's total.

Sources: energmon's and jetson-stats' notes on the INA3221's files and addresses; that AGX Orin has no
rail for all, and that its memory's rail is fed by VIN_SYS_5V0, is energymon's. Ours: the table of totals.
A set of rails that is not in it gives no total, as a sum of all counts some twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agents.host.processor import required_text, text_of
from tuner.core import MeasurementError

TOTALS: tuple[tuple[str, ...], ...] = (
    ("VIN",),
    ("VDD_IN",),
    ("POM_5V_IN",),
    ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"),
    ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"),
)
"""Rails whose sum is what the module draws; the first that are all there. The fourth is AGX Orin, the
fifth AGX Xavier."""
SENSORS = ("ina3221", "ina3221x", "ina238")


@dataclass(frozen=True, slots=True)
class Rail:
    """One measured rail: its voltage and its current, in files of mV and mA."""

    name: str
    mv: Path
    ma: Path

    def read_w(self) -> float:
        """Return its power. Raises MeasurementError."""
        return _number(self.mv) * _number(self.ma) / 1e6


@dataclass(frozen=True, slots=True)
class PowerMonitors:
    """All rails of a board by name, and how the sensors average."""

    rails: Mapping[str, Rail]
    averaging: str

    @property
    def total(self) -> tuple[Rail, ...]:
        """The rails whose sum is the board's power, none where that is not known."""
        whole = next((names for names in TOTALS if self.rails.keys() >= set(names)), ())
        return tuple(self.rails[name] for name in whole)

    def power_w(self) -> float:
        """Return the board's power now. Raises MeasurementError."""
        return sum(rail.read_w() for rail in self.total)


def find_monitors(root: Path) -> PowerMonitors:
    """Return the power monitors of a board; the numbers of hwmon folders mean nothing."""
    found: dict[str, Rail] = {}
    averaging: set[str] = set()
    for chip in sorted(root.glob("sys/bus/i2c/devices/*")):
        if text_of(chip / "name").strip() not in SENSORS:
            continue
        for rail in (*_hwmon(chip), *_iio(chip)):
            found.setdefault(rail.name, rail)
        for folder in chip.glob("hwmon/hwmon*"):
            readings = [
                f"{name} {value}"
                for name in ("samples", "update_interval")
                if (value := text_of(folder / name).strip())
            ]
            averaging.add(", ".join(readings))
    return PowerMonitors(found, "; ".join(sorted(averaging - {""})))


def _hwmon(chip: Path) -> list[Rail]:
    """Return the channels of JetPack 5 and later; the seventh and up are sums of shunt voltages."""
    rails = []
    for label in sorted(chip.glob("hwmon/hwmon*/in[1-6]_label")):
        current = label.with_name(re.sub(r"^in(\d)_label", r"curr\1_input", label.name))
        name = text_of(label).strip()
        if name not in ("", "NC") and current.exists():
            rails.append(Rail(name, label.with_name(label.name.replace("label", "input")), current))
    return rails


def _iio(chip: Path) -> list[Rail]:
    """Return the channels of JetPack 4."""
    rails = []
    for label in sorted(chip.glob("iio:device*/rail_name_*")):
        channel = label.name.removeprefix("rail_name_")
        name = text_of(label).strip()
        if name not in ("", "NC"):
            files = (
                label.with_name(f"in_{kind}{channel}_input") for kind in ("voltage", "current")
            )
            rails.append(Rail(name, *files))
    return rails


def _number(file: Path) -> float:
    text = required_text(file).strip()
    try:
        return float(text)
    except ValueError:
        raise MeasurementError(f"{file} says {text!r}, which is no number") from None
