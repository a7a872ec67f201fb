"""A machine's report: what it takes along, and what it leaves out."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from agents.devices.cpu.diagnosis import examine as examine_cpu
from agents.devices.jetson.diagnosis import examine as examine_board
from agents.host.bundle import scrubbed, write_bundle
from tests.boards.fixtures import Mount, boards, mount
from tests.errors import raised
from tuner.core import StoreError

__all__ = ["boards", "mount"]


def unpacked(root: Path, folder: Path) -> Path:
    file = folder / "report.tar.gz"
    assert write_bundle(root, file) > 0
    with tarfile.open(file) as bundle:
        bundle.extractall(folder / "there", filter="data")
    return folder / "there"


@pytest.fixture(autouse=True)
def _no_actuator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JOULETUNE_ACTUATOR", str(tmp_path / "nobody.sock"))


def test_a_boards_report_is_a_root_of_which_the_doctor_says_the_same(
    mount: Mount, tmp_path: Path
) -> None:
    board = mount("orin")
    assert list(examine_board(unpacked(board.root, tmp_path))) == list(examine_board(board.root))


def test_a_servers_report_tells_its_knobs(mount: Mount, tmp_path: Path) -> None:
    found = {s.about: s for s in examine_cpu(unpacked(mount("xeon").root, tmp_path))}
    assert found["cpu: cpu.max_mhz"].seen == "800 to 3800, 31 values; now 3800"


def test_what_names_the_machine_is_left_out(tmp_path: Path) -> None:
    text = "Serial\t\t: 1420abc\nmac 48:b0:2d:12:34:56 of orin7\nmodel name: x\n"
    shown = scrubbed(text, "orin7")
    for secret in ("1420abc", "48:b0", "orin7"):
        assert secret not in shown
    assert "model name: x" in shown


def test_the_serial_number_of_a_board_is_not_among_the_files(mount: Mount, tmp_path: Path) -> None:
    there = unpacked(mount("orin").root, tmp_path)
    assert not (there / "proc/device-tree/serial-number").exists()
    assert (there / "proc/device-tree/model").exists()


def test_a_place_that_takes_no_file_is_named(tmp_path: Path) -> None:
    with raised(StoreError, "write"):
        write_bundle(tmp_path, tmp_path / "none" / "report.tar.gz")
