"""The doctor's findings on mounted Jetson boards."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.devices.jetson.diagnosis import examine
from agents.host.symptoms import Symptom
from tests.boards.fixtures import Mount, boards, mount
from tests.boards.trees import LAYOUTS
from tests.unit.agents.devices.jetson.test_board import tree
from tests.unit.agents.devices.jetson.test_rails import nameless_sensor, sensor

__all__ = ["boards", "mount"]


@pytest.fixture(autouse=True)
def _no_actuator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JOULETUNE_ACTUATOR", str(tmp_path / "nobody.sock"))


def examined(root: Path) -> dict[str, Symptom]:
    return {symptom.about: symptom for symptom in examine(root)}


@pytest.mark.parametrize("name", [n for n, layout in LAYOUTS.items() if not layout.late_s])
def test_every_board_reports_its_kind_its_clocks_and_its_power(mount: Mount, name: str) -> None:
    symptoms = examined(mount(name).root)
    assert symptoms["jetson"].well and "JetPack" in symptoms["jetson"].seen
    assert symptoms["jetson: gpu.clock_mhz"].well
    assert symptoms["jetson: energy"].well
    rights = symptoms["jetson: permission to set"]
    assert not rights.well and "install.sh --jetson" in rights.cure


def test_clocks_that_are_fixed_name_the_cure(mount: Mount) -> None:
    board = mount("orin")
    board.file("sys/class/devfreq/*/min_freq").write_text("1300500000")
    assert examined(board.root)["jetson: jetson_clocks"].cure == "jetson_clocks --restore"


def test_rails_without_a_total_are_listed(mount: Mount) -> None:
    board = mount("xavier-nx")
    board.do(faults={"/sys/bus/i2c/devices/1-0040/hwmon/hwmon3/in1_label": "gone"})
    energy = examined(board.root)["jetson: energy"]
    assert not energy.well
    assert energy.seen == "VDD_CPU_GPU_CV, VDD_SOC; not found: VDD_IN" and energy.cure


@pytest.mark.parametrize(
    ("name", "supported"), [("xavier-nx", False), ("tx2", False), ("orin", True)]
)
def test_jetpack_4_and_5_are_named_unsupported(mount: Mount, name: str, supported: bool) -> None:
    old = examined(mount(name).root).get("jetson: JetPack")
    assert (old is None) is supported
    assert supported or (old and not old.well and "JetPack 6" in old.cure)


def test_an_unknown_board_is_measured_by_its_labels_with_a_note(tmp_path: Path) -> None:
    """A custom carrier board, with a chip that is not in the table."""
    tree(tmp_path, "acme,board\0nvidia,tegra999\0")
    sensor(tmp_path, "VDD_IN", "VDD_ACME")
    symptoms = examined(tmp_path)
    assert not symptoms["jetson: board"].well and "--bundle" in symptoms["jetson: board"].cure
    assert symptoms["jetson: energy"].well and symptoms["jetson: energy"].seen.startswith(
        "VDD_IN, of"
    )


def test_missing_parts_of_an_unknown_board_are_named(tmp_path: Path) -> None:
    tree(tmp_path, "acme,board\0nvidia,tegra999\0")
    nameless_sensor(tmp_path)
    energy = examined(tmp_path)["jetson: energy"]
    assert not energy.well and "VDD_IN" in energy.seen and "ina238 at 1-0044" in energy.seen


def test_a_hot_board_is_reported(mount: Mount) -> None:
    board = mount("tx2")
    board.do(faults={"/sys/class/thermal/cooling_device0/cur_state": {"stuck": "1"}})
    assert examined(board.root)["jetson: heat"].seen == "throttled by gpu-throttle-alert"


def test_other_machines_get_no_findings_about_boards(tmp_path: Path) -> None:
    assert examined(tmp_path) == {}
