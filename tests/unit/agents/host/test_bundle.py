"""A machine's report: its contents, and the data that it leaves out."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from agents.devices.cpu.diagnosis import examine as examine_cpu
from agents.devices.drm.diagnosis import examine as examine_gpus
from agents.devices.jetson.diagnosis import examine as examine_board
from agents.host.bundle import ABOUT, scrubbed, write_bundle
from agents.host.symptoms import Symptom
from tests.boards.fixtures import Mount, boards, mount
from tests.boards.inline import InlineBoard
from tests.boards.trees import NAMES
from tests.errors import raised
from tuner.core import StoreError

__all__ = ["boards", "mount"]


def examine(root: Path) -> list[Symptom]:
    return [s for look in (examine_cpu, examine_board, examine_gpus) for s in look(root)]


def unpacked(root: Path, folder: Path) -> Path:
    file = folder / "report.tar.gz"
    assert write_bundle(root, file) > 0
    with tarfile.open(file) as bundle:
        bundle.extractall(folder / "there", filter="data")
    return folder / "there"


@pytest.fixture(autouse=True)
def _no_actuator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JOULETUNE_ACTUATOR", str(tmp_path / "nobody.sock"))


@pytest.mark.parametrize("name", NAMES)
def test_the_doctor_reports_the_same_on_an_unpacked_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """All that a driver or a meter reads is in it; only a measured power differs."""
    monkeypatch.setattr("agents.devices.cpu.diagnosis.LOAD_S", 0.0)
    board = InlineBoard(name, tmp_path / "machine")
    with board.at():
        roots = (board.root, unpacked(board.root, tmp_path))
        first, second = (
            [(s.about, s.seen.replace(str(root), "").split(": ")[0]) for s in examine(root)]
            for root in roots
        )
    assert len(first) > 4 and first == second


def test_links_in_a_bundle_lead_where_they_led(mount: Mount, tmp_path: Path) -> None:
    there = unpacked(mount("thor").root, tmp_path)
    link = there / "sys/class/devfreq/gpu-gpc-0"
    assert link.is_symlink() and "sys/devices/platform/bus@0" in str(link.resolve())


def test_an_absolute_link_leads_into_the_bundle(tmp_path: Path) -> None:
    """JetPack links /etc/nvpmodel.conf to the module's file under /etc/nvpmodel."""
    root = tmp_path / "root"
    (root / "etc/nvpmodel").mkdir(parents=True)
    (root / "etc/nvpmodel/nvpmodel_p3701_0000.conf").write_text("< POWER_MODEL ID=0 NAME=MAXN >")
    (root / "etc/nvpmodel.conf").symlink_to("/etc/nvpmodel/nvpmodel_p3701_0000.conf")
    assert (unpacked(root, tmp_path) / "etc/nvpmodel.conf").read_text().startswith("< POWER_MODEL")


def test_a_link_that_leads_in_a_circle_is_left_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/nvpmodel.conf").symlink_to("nvpmodel.conf")
    (root / "etc/nv_tegra_release").write_text("# R36")
    assert (unpacked(root, tmp_path) / "etc/nv_tegra_release").exists()


EXTRAS = {
    "var/lib/nvpmodel/status": "pmode:0002",
    "sys/class/thermal/cooling_device3/type": "pwm-fan",
    "sys/class/thermal/cooling_device3/cur_state": "1",
    "sys/class/powercap/intel-rapl/enabled": "1",
    "sys/devices/system/cpu/cpufreq/policy0/bios_limit": "2900000",
    "sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference": "balance_power",
    "sys/devices/system/cpu/cpufreq/boost": "1",
    "sys/devices/system/cpu/intel_pstate/no_turbo": "0",
    "sys/devices/system/cpu/cpu1/online": "0",
}


def test_the_clocks_files_are_bundled_with_their_mode(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for path, text in EXTRAS.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "sys/class/powercap/intel-rapl/enabled").chmod(0o400)
    there = unpacked(root, tmp_path)
    assert {path: (there / path).read_text() for path in EXTRAS} == EXTRAS
    about = json.loads((there / ABOUT).read_text())
    assert about["modes"]["sys/class/powercap/intel-rapl/enabled"] == "0400"


def test_unreadable_input_is_named(mount: Mount, tmp_path: Path) -> None:
    board = mount("orin")
    board.do(faults={"/proc/cpuinfo": "refuse"})
    about = json.loads((unpacked(board.root, tmp_path) / ABOUT).read_text())
    assert about["unread"] == {"proc/cpuinfo": "Input/output error"}


def test_identifying_data_are_left_out(tmp_path: Path) -> None:
    text = "Serial\t\t: 1420abc\nmac 48:b0:2d:12:34:56 of orin7\nmodel name: x\n"
    shown = scrubbed(text, "orin7")
    for secret in ("1420abc", "48:b0", "orin7"):
        assert secret not in shown
    assert "model name: x" in shown


def test_the_serial_number_of_a_board_is_not_among_the_files(mount: Mount, tmp_path: Path) -> None:
    there = unpacked(mount("orin").root, tmp_path)
    assert not (there / "proc/device-tree/serial-number").exists()
    assert (there / "proc/device-tree/model").exists()


def test_a_place_where_no_file_can_be_written_is_named(tmp_path: Path) -> None:
    with raised(StoreError, "write"):
        write_bundle(tmp_path, tmp_path / "none" / "report.tar.gz")
