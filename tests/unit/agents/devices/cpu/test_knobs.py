"""What root writes to CPUs, on mounted servers whose files refuse and clamp as the kernel's do."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.actuator.driver import KnobDriver
from agents.devices.cpu.knobs import discover
from tests.boards.fixtures import Mount, boards, mount
from tests.contracts.drivers import DriverContract
from tuner.errors import ActuationError

__all__ = ["boards", "mount"]


@pytest.mark.parametrize("name", ["xeon", "epyc", "arm"])
class TestServers(DriverContract):
    @pytest.fixture
    def driver(self, mount: Mount, name: str) -> KnobDriver:
        (found,) = discover(str(mount(name).root))
        return found


def test_both_windows_of_all_packages_are_limited_and_go_back(mount: Mount) -> None:
    board = mount("xeon")
    (driver,) = discover(str(board.root))
    found = driver.read()["cpu.package_power_limit_w"]
    assert found == "125 125 150 150"
    driver.write("cpu.package_power_limit_w", 80)
    limits = sorted(board.root.glob("sys/class/powercap/intel-rapl:?/constraint_*_power_limit_uw"))
    assert [file.read_text().strip() for file in limits] == ["80000000"] * 4
    driver.write("cpu.package_power_limit_w", found)
    assert board.altered == {}


def test_a_clock_under_a_floor_is_refused_and_named(mount: Mount) -> None:
    board = mount("xeon")
    (driver,) = discover(str(board.root))
    floor = board.file("sys/devices/system/cpu/cpufreq/policy2/scaling_min_freq")
    floor.write_text("2000000")
    with pytest.raises(ActuationError, match=r"policy2/scaling_max_freq does not take 1000: Inval"):
        driver.write("cpu.max_mhz", 1000)
    assert driver.read()["cpu.max_mhz"] == "1000 3800 1000 1000"


def test_a_policy_without_a_cpu_at_work_costs_the_others_no_knob(mount: Mount) -> None:
    board = mount("epyc")
    policy = "/sys/devices/system/cpu/cpufreq/policy2"
    silent = ("scaling_max_freq", "scaling_available_governors", "scaling_governor")
    board.do(faults={f"{policy}/{file}": "refuse" for file in silent})
    (driver,) = discover(str(board.root))
    driver.write("cpu.max_mhz", 1500)
    driver.write("cpu.governor", "powersave")
    assert not any(path.startswith(policy) for path in board.altered)
    assert driver.read()["cpu.governor"] == "powersave"


def test_read_only_files_say_what_may_miss(mount: Mount) -> None:
    board = mount("epyc")
    (driver,) = discover(str(board.root))
    file = "/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq"
    board.do(faults={file: "readonly"})
    with pytest.raises(ActuationError, match=r"Read-only file system; .*drop-in"):
        driver.write("cpu.max_mhz", 1500)


def test_a_machine_without_any_of_it_is_no_device(tmp_path: Path) -> None:
    assert discover(str(tmp_path)) == []


def test_a_jetson_is_left_to_its_own_driver(mount: Mount) -> None:
    assert discover(str(mount("orin").root)) == []
