"""Identification of a Jetson board by its device tree and its release of Jetson Linux."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from agents.host.machine import text_of
from tuner.compat import StrEnum

RELEASE = re.compile(r"R(\d+) \(release\), REVISION: ([\d.]+)")
JETPACKS = {32: "4", 34: "5", 35: "5", 36: "6", 38: "7", 39: "7.2"}
"""Major release of Jetson Linux to JetPack, from NVIDIA's archive."""
SUPPORTED = frozenset({"6", "7", "7.2"})
"""JetPack 4 and 5 are left out: they have Python 3.6 and 3.8."""


class Family(StrEnum):
    """A family of boards, by its chip."""

    NANO = "tegra210"
    TX2 = "tegra186"
    XAVIER = "tegra194"
    ORIN = "tegra234"
    THOR = "tegra264"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class KnownBoard:
    """A supported board and its power rails.

    `part` identifies it in the device tree's `compatible`. The power of the board is the sum of the rails
    in `total`. `unlabelled` is the name of its INA238's rail, whose driver has no labels.
    """

    name: str
    part: str
    total: tuple[str, ...]
    unlabelled: str = ""


KNOWN_BOARDS = (
    KnownBoard("AGX Orin", "p3701", ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")),
    KnownBoard("Orin NX, Orin Nano", "p3767", ("VDD_IN",)),
    KnownBoard("AGX Thor", "tegra264", ("VIN",), unlabelled="VIN"),
    KnownBoard("Xavier NX", "p3668", ("VDD_IN",)),
    KnownBoard("AGX Xavier", "p2888", ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V")),
    KnownBoard("TX2", "tegra186", ("VDD_IN",)),
    KnownBoard("Nano, TX1", "tegra210", ("POM_5V_IN",)),
)
"""Sources: energymon's JetsonPowerRails.md (AGX Orin has no total rail, and VIN_SYS_5V0 feeds the rail of
its memory); NVIDIA's Jetson Linux guide for Orin NX and Nano; for Thor jetson_stats, pull request 900, and
NVIDIA's forum, topic 366461: an INA238 measures the whole input."""


@dataclass(frozen=True, slots=True)
class Board:
    """One board. `release` is that of Jetson Linux, empty if unknown; `known` is its entry, if any."""

    model: str
    family: Family
    release: str
    known: KnownBoard | None = None

    @property
    def supported(self) -> bool:
        """Whether jouletune supports its JetPack; True for an unknown release."""
        major = self.release.split(".")[0]
        return not major or JETPACKS.get(int(major), "") in SUPPORTED

    @property
    def jetpack(self) -> str:
        """The JetPack of its release, for messages."""
        major = self.release.split(".")[0]
        release = JETPACKS.get(int(major), "") if major else ""
        named = f"Jetson Linux {self.release}" if self.release else "unknown Jetson Linux"
        return f"JetPack {release} ({named})" if release else named


def read_board(root: Path) -> Board | None:
    """Return the board whose files are at `root`, None if it is not a Jetson."""
    tree = root / "proc/device-tree"
    compatible = text_of(tree / "compatible").replace("\0", " ")
    chips = re.findall(r"nvidia,(tegra\d+)", compatible)
    if not chips:
        return None
    family = Family(chips[-1]) if chips[-1] in set(Family) else Family.UNKNOWN
    release = RELEASE.search(text_of(root / "etc/nv_tegra_release"))
    version = f"{release[1]}.{release[2]}" if release else ""
    entry = next((one for one in KNOWN_BOARDS if one.part in compatible), None)
    model = text_of(tree / "model").strip("\0\n ") or "unknown Jetson"
    return Board(model, family, version, entry)
