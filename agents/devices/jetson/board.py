"""Which Jetson board this is: from its device tree and its release of Jetson Linux."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from agents.host.processor import text_of

RELEASE = re.compile(r"R(\d+) \(release\), REVISION: ([\d.]+)")
JETPACKS = {32: "4", 34: "5", 35: "5", 36: "6", 38: "7"}
"""Major release of Jetson Linux to JetPack, as NVIDIA's archive lists them."""


class Family(StrEnum):
    """A family of boards: its chip."""

    NANO = "tegra210"
    TX2 = "tegra186"
    XAVIER = "tegra194"
    ORIN = "tegra234"
    THOR = "tegra264"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Board:
    """One board. `release` is that of Jetson Linux, empty where it is not told."""

    model: str
    family: Family
    release: str

    @property
    def jetpack(self) -> str:
        """The JetPack that a release belongs to, in words."""
        major = self.release.split(".")[0]
        known = JETPACKS.get(int(major), "") if major else ""
        named = f"Jetson Linux {self.release}" if self.release else "unknown Jetson Linux"
        return f"JetPack {known} ({named})" if known else named


def read_board(root: Path) -> Board | None:
    """Return the board whose files are at `root`, None where it is no Jetson."""
    tree = root / "proc/device-tree"
    compatible = text_of(tree / "compatible").replace("\0", " ")
    chips = re.findall(r"nvidia,(tegra\d+)", compatible)
    if not chips:
        return None
    family = Family(chips[-1]) if chips[-1] in set(Family) else Family.UNKNOWN
    release = RELEASE.search(text_of(root / "etc/nv_tegra_release"))
    version = f"{release[1]}.{release[2]}" if release else ""
    return Board(text_of(tree / "model").strip("\0\n ") or "unknown Jetson", family, version)
