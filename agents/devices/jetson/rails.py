"""A Jetson's power monitors: its rails, and those that sum to the board's power.

Sources: energmon's and jetson-stats' notes on the INA3221's files and addresses; the kernel's
Documentation/hwmon/ina238.rst: `power1_input` in microwatts, and no label. A known board's total is in
`board.KNOWN_BOARDS`; another board has a total if its labels include those of some known board. Otherwise
there is no total, because a sum of all rails counts some twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.devices.jetson.board import KNOWN_BOARDS, KnownBoard, read_board
from agents.host.machine import required_text, text_of
from tuner.core import MeasurementError

SENSORS = ("ina3221", "ina3221x", "ina238")


@dataclass(frozen=True, slots=True)
class Rail:
    """One measured rail. Its power is the product of its files, in millionths of a watt.

    They are a voltage in mV and a current in mA, or a power in µW.
    """

    name: str
    files: tuple[Path, ...]

    def read_w(self) -> float:
        """Return its power in watts. Raises MeasurementError."""
        power = 1.0
        for file in self.files:
            power *= _number(file)
        return power / 1e6


@dataclass(frozen=True, slots=True)
class PowerMonitors:
    """The rails of a board by name, the sensors' averaging, and the sensors without a label."""

    rails: Mapping[str, Rail]
    averaging: str
    board: KnownBoard | None = None
    nameless: Sequence[str] = ()

    @property
    def total(self) -> tuple[Rail, ...]:
        """The rails that sum to the board's power, empty if unknown."""
        totals = [self.board.total] if self.board else [board.total for board in KNOWN_BOARDS]
        whole = next((names for names in totals if self.rails.keys() >= set(names)), ())
        return tuple(self.rails[name] for name in whole)

    @property
    def missing_rails(self) -> str:
        """The rails that the total lacks, for messages; empty if the total is known."""
        if self.total:
            return ""
        if self.board:
            missing = [name for name in self.board.total if name not in self.rails]
            return f"not found: {', '.join(missing)}"
        parts = " or ".join(sorted({" + ".join(board.total) for board in KNOWN_BOARDS}))
        nameless = "".join(f"; {sensor} has no label" for sensor in self.nameless)
        return f"not found: {parts}{nameless}"

    def power_w(self) -> float:
        """Return the board's present power in watts. Raises MeasurementError."""
        return sum(rail.read_w() for rail in self.total)


def find_monitors(root: Path) -> PowerMonitors:
    """Return the power monitors of a board; the numbers in hwmon folders' names have no meaning."""
    rails: dict[str, Rail] = {}
    averaging: set[str] = set()
    nameless: list[str] = []
    board = read_board(root)
    known = board.known if board else None
    for chip in sorted(root.glob("sys/bus/i2c/devices/*")):
        if text_of(chip / "name").strip() not in SENSORS:
            continue
        for rail in (*_hwmon(chip), *_iio(chip)):
            rails.setdefault(rail.name, rail)
        for power in sorted(chip.glob("hwmon/hwmon*/power1_input")):
            name = text_of(power.with_name("label")).strip() or (known.unlabelled if known else "")
            if name:
                rails.setdefault(name, Rail(name, (power,)))
            else:
                nameless.append(f"{text_of(chip / 'name').strip()} at {chip.name}")
        for folder in chip.glob("hwmon/hwmon*"):
            readings = [
                f"{name} {value}"
                for name in ("samples", "update_interval")
                if (value := text_of(folder / name).strip())
            ]
            averaging.add(", ".join(readings))
    return PowerMonitors(rails, "; ".join(sorted(averaging - {""})), known, nameless)


def _hwmon(chip: Path) -> list[Rail]:
    """Return the channels of JetPack 5 and later; from the seventh on they are sums of shunt voltages."""
    rails = []
    for label in sorted(chip.glob("hwmon/hwmon*/in[1-6]_label")):
        current = label.with_name(re.sub(r"^in(\d)_label", r"curr\1_input", label.name))
        name = text_of(label).strip()
        if name not in ("", "NC") and current.exists():
            voltage = label.with_name(label.name.replace("label", "input"))
            rails.append(Rail(name, (voltage, current)))
    return rails


def _iio(chip: Path) -> list[Rail]:
    """Return the channels of JetPack 4."""
    rails = []
    for label in sorted(chip.glob("iio:device*/rail_name_*")):
        channel = label.name.removeprefix("rail_name_")
        name = text_of(label).strip()
        if name not in ("", "NC"):
            kinds = ("voltage", "current")
            files = tuple(label.with_name(f"in_{kind}{channel}_input") for kind in kinds)
            rails.append(Rail(name, files))
    return rails


def _number(file: Path) -> float:
    """Return the number in a file. Raises MeasurementError."""
    text = required_text(file).strip()
    try:
        return float(text)
    except ValueError:
        raise MeasurementError(f"{file} contains {text!r}, not a number") from None
