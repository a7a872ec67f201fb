"""A Jetson board as an agent sees it, behind a real actuator in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agents.devices.catalogue import open_device
from agents.target.side import HoldGuard, Side
from tests.actuation import answers
from tests.boards.fixtures import Mount, boards, mount
from tests.boards.mounted import HERE, MountedBoard
from tuner.core import ActuationError, InvalidInput, MeasurementError, Role

__all__ = ["boards", "mount"]
GRANTS = """
socket = "{folder}/actuator.sock"
state_dir = "{folder}/journal"
drivers = ["{driver}:{root}"]
lease_s = 2.0
[[device]]
match = "*"
[device.grant]
{grants}
"""
CLOCKS = {
    "gpu.clock_mhz": (114.75, 1300.5),
    "gpu.mem_clock_mhz": (204, 3199),
    "cpu.max_mhz": (345.6, 2201.6),
}
START_S = 20.0


@contextmanager
def actuator(board: MountedBoard, folder: Path, driver: str) -> Iterator[Path]:
    config = folder / "actuator.toml"
    grants = "\n".join(f'"{k}" = {{ min = {a}, max = {b} }}' for k, (a, b) in CLOCKS.items())
    config.write_text(GRANTS.format(folder=folder, driver=driver, root=board.root, grants=grants))
    command = [sys.executable, "-m", "agents.actuator.main", "serve", str(config)]
    with subprocess.Popen(command, cwd=HERE) as served:
        try:
            until = time.monotonic() + START_S
            while not answers(folder / "actuator.sock"):
                assert served.poll() is None and time.monotonic() < until
                time.sleep(0.02)
            yield folder / "actuator.sock"
        finally:
            served.terminate()
            assert served.wait(START_S) == 0


def opened(board: MountedBoard, spec: str = "jetson") -> Side:
    return open_device(spec, seed=0, state_dir=None, root=board.root)


@pytest.fixture
def orin(mount: Mount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MountedBoard]:
    board = mount("orin")
    with actuator(board, tmp_path, "jetson") as socket:
        monkeypatch.setenv("JOULETUNE_ACTUATOR", os.fspath(socket))
        yield board
    assert board.altered == {}


def test_the_clocks_of_a_board_form_one_side(orin: MountedBoard) -> None:
    side = opened(orin)
    roles = {knob.name: knob.role for knob in side.space.knobs}
    assert roles == {
        "gpu.clock_mhz": Role.CORE_CLOCK,
        "gpu.mem_clock_mhz": Role.MEMORY_CLOCK,
        "cpu.max_mhz": Role.HOST_CLOCK,
    }
    assert side.board == "NVIDIA Jetson AGX Orin Developer Kit"
    assert "VDD_GPU_SOC + VDD_CPU_CV + VIN_SYS_5V0" in side.source
    side.close()


def test_a_setting_is_in_force_on_the_board_and_gone_with_its_agent(orin: MountedBoard) -> None:
    side = opened(orin)
    setting = {"gpu.clock_mhz": 612, "gpu.mem_clock_mhz": 2133, "cpu.max_mhz": 1267.2}
    side.actuator.apply(setting)
    assert side.actuator.read() == setting
    assert len(orin.altered) == 6
    assert isinstance(side.actuator, HoldGuard)
    side.actuator.release()
    assert orin.altered == {}
    side.close()


def test_the_default_memory_clock_leaves_it_to_the_firmware(orin: MountedBoard) -> None:
    side = opened(orin)
    side.actuator.apply({"gpu.mem_clock_mhz": 2133})
    side.actuator.apply({"gpu.mem_clock_mhz": 3199})
    assert orin.altered == {}
    side.close()


def test_a_window_shows_the_boards_energy(orin: MountedBoard) -> None:
    side = opened(orin)
    before = orin.told["energy_j"]
    window = side.meter.start()
    time.sleep(1.0)
    shown = window.stop()
    drawn = orin.told["energy_j"] - before
    assert shown.totals["energy_j"] == pytest.approx(drawn, rel=0.2)
    side.close()


def test_clocks_that_jetson_clocks_has_fixed_are_left_alone(orin: MountedBoard) -> None:
    orin.file("sys/class/devfreq/17000000.gpu/min_freq").write_text("1300500000")
    side = opened(orin)
    assert side.space.knobs == ()
    assert "jetson_clocks --restore" in side.cannot["gpu.clock_mhz"]
    side.close()
    orin.do(reset=True)


def test_a_cap_that_clamps_fails_the_trial_and_all_else_goes_back(orin: MountedBoard) -> None:
    side = opened(orin)
    orin.do(
        faults={
            "/sys/devices/platform/bus@0/17000000.gpu/devfreq/17000000.gpu/max_freq": {
                "stuck": "1300500000"
            }
        }
    )
    with pytest.raises(ActuationError, match=r"gpu\.clock_mhz: .*max_freq is 1300500000, not 612"):
        side.actuator.apply({"gpu.clock_mhz": 612, "cpu.max_mhz": 960})
    assert orin.altered == {}
    side.close()


def test_a_missing_power_rail_gives_no_joules(orin: MountedBoard) -> None:
    side = opened(orin)
    orin.do(faults={"/sys/bus/i2c/devices/1-0040/hwmon/hwmon3/curr1_input": "gone"})
    with pytest.raises(MeasurementError, match="curr1_input"):
        side.meter.start()
    side.close()


def test_without_an_actuator_a_board_is_only_measured(
    mount: Mount, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JOULETUNE_ACTUATOR", str(tmp_path / "nobody.sock"))
    side = opened(mount("tx2"))
    assert side.space.knobs == () and [m.name for m in side.metrics] == ["energy_j", "power_w"]
    assert side.cannot["gpu.clock_mhz"].startswith("measured only: ")
    assert "reboot" not in side.cannot["gpu.mem_clock_mhz"]
    with opened_mode(mount("tx2")) as mode:
        assert mode.cannot["board.power_mode"].startswith("measured only: ")


@contextmanager
def opened_mode(board: MountedBoard) -> Iterator[Side]:
    side = opened(board, "jetson:mode")
    yield side
    side.close()


@pytest.mark.parametrize("spec", ["jetson:0", "jetson:clocks"])
def test_other_text_after_the_name_is_refused(mount: Mount, spec: str) -> None:
    with pytest.raises(InvalidInput, match="write jetson or jetson:mode"):
        opened(mount("orin"), spec)


def test_another_machine_gets_a_next_step_instead_of_a_board(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="simulated:orin"):
        open_device("jetson", seed=0, state_dir=None, root=tmp_path)
