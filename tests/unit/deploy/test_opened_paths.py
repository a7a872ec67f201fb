"""The drop-in of a unit opens every file that its driver can write."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from agents.actuator.grants import DRIVERS
from agents.devices.cpu.knobs import BOOSTS
from agents.devices.cpu.knobs import discover as cpu
from agents.devices.drm.card import Card
from agents.devices.drm.knobs import discover as drm
from agents.devices.jetson.knobs import BPMP
from agents.devices.jetson.knobs import discover as jetson
from agents.devices.nvpmodel.knobs import discover as nvpmodel
from agents.devices.unit.knobs import FOLDER
from tests.boards.fixtures import Mount, boards, mount
from tests.boards.gpus import GPUS
from tests.boards.servers import SERVERS
from tests.boards.trees import LAYOUTS

__all__ = ["boards", "mount"]
DEPLOY = Path(__file__).parents[3] / "deploy"
REAL = {
    "/sys/class/powercap/intel-rapl-mmio": "/sys/devices/virtual/powercap/intel-rapl-mmio/intel-rapl-mmio",
    "/sys/class/powercap/intel-rapl": "/sys/devices/virtual/powercap/intel-rapl/intel-rapl",
}
"""The link targets of classes on a real machine; a mounted board has the devices' own folders."""
NO_FILES = {"fake", "nvidia"}
"""Drivers that write no system files."""


def opened(name: str) -> list[str]:
    """Return the paths that a drop-in opens."""
    return paths_in((DEPLOY / f"actuator-{name}.conf").read_text())


def paths_in(drop_in: str) -> list[str]:
    lines = re.findall(r"^ReadWritePaths=(.*)$", drop_in, re.M)
    return [path.lstrip("-") for line in lines for path in line.split()]


def closed(name: str, files: Collection[str]) -> list[str]:
    """Return the files that the drop-in of a driver leaves closed."""
    for link, real in REAL.items():
        files = [file.replace(f"{link}:", f"{real}:") for file in files]
    paths = opened(name)
    return [f for f in files if not any(f == p or f.startswith(f"{p.rstrip('/')}/") for p in paths)]


def written(driver: Any, root: Path) -> list[str]:  # noqa: ANN401 - a driver of files
    told, silent = driver.entries()
    names = [name for name in (*told, *silent) if name.startswith("/")]
    return [f"/{Path(name).resolve().relative_to(root.resolve())}" for name in names]


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_all_files_of_a_servers_cpus_are_opened(mount: Mount, name: str) -> None:
    root = mount(name).root
    files = [file for driver in cpu(str(root)) for file in written(driver, root)]
    assert files and closed("cpu", files) == []


def test_boost_is_opened_on_every_driver_and_the_status_beside_it_is_not() -> None:
    assert closed("cpu", [f"/{file}" for file in BOOSTS]) == []
    assert closed("cpu", ["/sys/devices/system/cpu/intel_pstate/status"])


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_all_files_of_a_board_are_opened(mount: Mount, name: str) -> None:
    root = mount(name).root
    files = [file for driver in jetson(str(root)) for file in written(driver, root)]
    memory = [f"/{BPMP}/clk/emc/{file}" for file in ("rate", "mrq_rate_locked")]
    assert files and closed("jetson", [*files, *memory]) == []


@pytest.mark.parametrize("name", sorted(GPUS))
def test_all_files_of_a_gpu_are_opened(mount: Mount, name: str) -> None:
    root = mount(name).root
    (card,) = drm(str(root))
    assert isinstance(card, Card)
    command = ["bash", str(DEPLOY / "drm-files.sh"), str(root)]
    drop_in = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    opens = {(root / path[1:]).resolve() for path in paths_in(drop_in)}
    files = [file.resolve() for entry in card.entries()[0] for file in card.folder.glob(entry)]
    assert files and all({file, *file.parents} & opens for file in files)
    assert (card.folder / "device").resolve() not in opens and card.folder.resolve() not in opens


def test_the_paths_of_a_power_mode_and_a_units_folder_are_opened(mount: Mount) -> None:
    root = mount("orin").root
    modes: Callable[[str], Any] = nvpmodel
    files = [file for driver in modes(str(root)) for file in written(driver, root)]
    assert closed("jetson", files) == []
    assert closed("unit", [f"/{FOLDER}/a.service.d/drop-in.conf"]) == []


def test_each_write_of_a_new_driver_is_tested() -> None:
    assert {*DRIVERS} == {"cpu", "drm", "jetson", "nvpmodel", "unit"} | NO_FILES
