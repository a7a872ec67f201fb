"""The rails that make up a board's total; no total if they are not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.devices.jetson.rails import find_monitors
from tests.boards.fixtures import Mount, boards, mount
from tests.unit.agents.devices.jetson.test_board import tree
from tuner.core import MeasurementError

__all__ = ["boards", "mount"]


def sensor(root: Path, *rails: str, hwmon: int = 3, address: str = "1-0040") -> Path:
    chip = root / "sys/bus/i2c/devices" / address
    folder = chip / f"hwmon/hwmon{hwmon}"
    folder.mkdir(parents=True)
    (chip / "name").write_text("ina3221\n")
    for channel, rail in enumerate(rails, 1):
        (folder / f"in{channel}_label").write_text(f"{rail}\n")
        (folder / f"in{channel}_input").write_text("5000\n")
        (folder / f"curr{channel}_input").write_text("2000\n")
    return folder


def nameless_sensor(root: Path, power_uw: int = 19_800_000) -> Path:
    """An INA238, as Documentation/hwmon/ina238.rst has it: µW, mV of shunt and bus, mA, and no label."""
    chip = root / "sys/bus/i2c/devices/1-0044"
    folder = chip / "hwmon/hwmon0"
    folder.mkdir(parents=True)
    figures = {"in0_input": 3, "in1_input": 20_000, "curr1_input": 990, "power1_input": power_uw}
    for file, value in {**figures, "name": "ina238"}.items():
        (folder / file).write_text(f"{value}\n")
    (chip / "name").write_text("ina238\n")
    return folder


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("tx2", ["VDD_IN"]),
        ("xavier-nx", ["VDD_IN"]),
        ("orin-jp5", ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"]),
        ("orin-nano", ["VDD_IN"]),
        ("thor", ["VIN"]),
    ],
)
def test_a_boards_total_counts_nothing_twice(mount: Mount, name: str, total: list[str]) -> None:
    board = mount(name)
    board.do(manual=True, pass_s=5.0)
    monitors = find_monitors(board.root)
    assert [rail.name for rail in monitors.total] == total
    before = board.told["energy_j"]
    board.do(pass_s=1.0)
    assert monitors.power_w() == pytest.approx(board.told["energy_j"] - before, rel=0.02)


def test_channels_without_a_rail_are_none(mount: Mount) -> None:
    assert "NC" not in find_monitors(mount("orin").root).rails


def test_rails_that_lack_the_total_make_none(tmp_path: Path) -> None:
    sensor(tmp_path, "VDD_GPU_SOC", "VDD_CPU_CV")
    monitors = find_monitors(tmp_path)
    assert monitors.rails and monitors.total == ()


def test_a_sensor_is_found_under_any_number(tmp_path: Path) -> None:
    sensor(tmp_path, "VDD_IN", hwmon=11)
    assert find_monitors(tmp_path).power_w() == pytest.approx(10.0)


def test_the_sum_of_shunts_is_not_a_rail(tmp_path: Path) -> None:
    folder = sensor(tmp_path, "VDD_IN")
    (folder / "in7_label").write_text("sum of shunt voltages")
    (folder / "curr7_input").write_text("1")
    assert list(find_monitors(tmp_path).rails) == ["VDD_IN"]


def test_another_chip_on_the_bus_is_left_alone(tmp_path: Path) -> None:
    folder = sensor(tmp_path, "VDD_IN")
    (folder.parents[1] / "name").write_text("tmp102")
    assert find_monitors(tmp_path).rails == {}


def test_the_sensors_averaging_is_reported(tmp_path: Path) -> None:
    folder = sensor(tmp_path, "VDD_IN")
    (folder / "samples").write_text("64")
    (folder / "update_interval").write_text("35")
    assert find_monitors(tmp_path).averaging == "samples 64, update_interval 35"


@pytest.mark.parametrize("text", ["", "nan?", "12 mA"])
def test_a_current_that_is_not_a_number_gives_no_power(tmp_path: Path, text: str) -> None:
    folder = sensor(tmp_path, "VDD_IN")
    (folder / "curr1_input").write_text(text)
    with pytest.raises(MeasurementError, match="curr1_input"):
        find_monitors(tmp_path).power_w()


def test_thors_vin_is_its_ina238s_power_in_microwatts(tmp_path: Path) -> None:
    """jetson_stats, pull request 900: 19.8 W idle, on a sensor without a label."""
    tree(tmp_path, "nvidia,p3971-0080+p3834-0008\0nvidia,tegra264\0")
    sensor(tmp_path, "VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0")
    nameless_sensor(tmp_path)
    monitors = find_monitors(tmp_path)
    assert [rail.name for rail in monitors.total] == ["VIN"]
    assert monitors.power_w() == pytest.approx(19.8)


def test_a_power_with_a_label_is_a_rail_on_any_board(tmp_path: Path) -> None:
    (nameless_sensor(tmp_path) / "label").write_text("VIN\n")
    assert find_monitors(tmp_path).power_w() == pytest.approx(19.8)


def test_an_unlabelled_power_is_not_a_rail_of_an_unknown_board(tmp_path: Path) -> None:
    nameless_sensor(tmp_path)
    monitors = find_monitors(tmp_path)
    assert monitors.rails == {} and monitors.total == ()
    assert "ina238 at 1-0044 has no label" in monitors.missing_rails


def test_a_known_board_without_its_rail_does_not_get_another_boards_total(tmp_path: Path) -> None:
    tree(tmp_path, "nvidia,p3737-0000+p3701-0000\0nvidia,tegra234\0")
    sensor(tmp_path, "VDD_IN", "VDD_GPU_SOC")
    monitors = find_monitors(tmp_path)
    assert monitors.total == ()
    assert monitors.missing_rails == "not found: VDD_CPU_CV, VIN_SYS_5V0"
