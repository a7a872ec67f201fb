"""Root's writes to Jetson boards, mounted with limits that refuse and a memory clock that rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.actuator.driver import KnobDriver, _described
from agents.actuator.grants import Granted
from agents.devices.jetson.knobs import discover
from tests.boards.fixtures import Mount, boards, mount
from tests.boards.trees import LAYOUTS
from tests.contracts.drivers import FileDriverContract
from tests.contracts.members import MemberContract
from tuner.errors import ActuationError, KnobRefused

__all__ = ["boards", "mount"]

GPU, MEMORY, CPU = "gpu.clock_mhz", "gpu.mem_clock_mhz", "cpu.max_mhz"
LOCK = "/sys/kernel/debug/bpmp/debug/clk/emc/mrq_rate_locked"
RATE = "/sys/kernel/debug/bpmp/debug/clk/emc/rate"


@pytest.mark.parametrize("name", [*LAYOUTS, "odd"])
class TestBoards(FileDriverContract, MemberContract):
    cap_knobs = ("gpu.clock_mhz", "cpu.max_mhz")

    @pytest.fixture
    def driver(self, mount: Mount, name: str) -> KnobDriver:
        (device,) = discover(str(mount(name).root))
        return device


def test_the_memory_is_locked_to_a_clock_and_let_go(mount: Mount) -> None:
    board = mount("orin")
    (driver,) = discover(str(board.root))
    assert driver.read()[MEMORY] is None
    driver.write(MEMORY, 2133)
    assert driver.read()[MEMORY] == 2133
    assert board.altered == {LOCK: "1", RATE: "2133000000"}
    driver.write(MEMORY, None)
    assert board.altered == {}


def test_a_memory_clock_that_does_not_come_is_an_error(mount: Mount) -> None:
    board = mount("orin")
    (driver,) = discover(str(board.root))
    board.do(faults={RATE: {"stuck": "3199000000"}})
    with pytest.raises(ActuationError, match=r"the memory's clock is 3199 MHz, not 665.6"):
        driver.write(MEMORY, 665.6)
    driver.write(MEMORY, None)
    board.do(faults={LOCK: {"stuck": "1"}})
    with pytest.raises(ActuationError, match="not None"):
        driver.write(MEMORY, None)


@pytest.mark.parametrize("before", [None, 665.6])
def test_a_memory_clock_that_is_refused_changes_no_lock(mount: Mount, before: float | None) -> None:
    """jetson_clocks locks it, too."""
    board = mount("orin")
    (driver,) = discover(str(board.root))
    driver.write(MEMORY, before)
    altered = board.altered
    board.do(faults={RATE: "locked"})
    with pytest.raises(KnobRefused, match="Permission denied"):
        driver.write(MEMORY, 2133)
    assert board.altered == altered


def test_a_gpu_under_the_platforms_bus_is_found_without_the_links_to_it(tmp_path: Path) -> None:
    """The GPU of Thor, as public programs for Jetson Linux 38 find it; its video engine is not a GPU."""
    pci = "d0b0000000.pcie/pci0000:00/0000:00:00.0/0000:01:00.0"
    for name in ("gpu-nvd-0", "gpu-gpc-0"):
        node = tmp_path / f"sys/devices/platform/bus@0/{pci}/{name}/devfreq/{name}"
        node.mkdir(parents=True)
        (node / "available_frequencies").write_text("315000000 1575000000")
        (node / "max_freq").write_text("1575000000")
        (node / "min_freq").write_text("315000000")
    (tmp_path / "proc/device-tree").mkdir(parents=True)
    (tmp_path / "proc/device-tree/compatible").write_text("nvidia,tegra264\0")
    (tmp_path / "proc/device-tree/model").write_text("Thor\0")
    (driver,) = discover(str(tmp_path))
    assert driver.ranges()[GPU] == (315, 1575)
    driver.write(GPU, 315)
    (gpu,) = tmp_path.glob("sys/devices/platform/bus@0/**/gpu-gpc-0/devfreq/*/max_freq")
    assert gpu.read_text() == "315000000"


def test_without_debugfs_the_rest_is_offered(mount: Mount) -> None:
    board = mount("tx2")
    board.do(faults={"/sys/kernel/debug/bpmp/debug/emc/possible_rates": "gone"})
    (driver,) = discover(str(board.root))
    assert set(driver.ranges()) == {GPU, CPU}


def test_a_board_that_is_no_jetson_has_no_driver(tmp_path: Path) -> None:
    assert discover(str(tmp_path)) == []
    (tmp_path / "proc/device-tree").mkdir(parents=True)
    (tmp_path / "proc/device-tree/compatible").write_text("raspberrypi,5-model-b\0")
    assert discover(str(tmp_path)) == []


def test_the_gpu_may_come_late(mount: Mount) -> None:
    assert GPU in discover(str(mount("orin-nano").root))[0].ranges()


@pytest.mark.parametrize(("table", "floor"), [("", 0), ("306000000 408000000", 1_575_000_000)])
def test_a_gpu_without_a_settable_clock_loses_only_that_knob(
    table: str, floor: int, tmp_path: Path
) -> None:
    """meta-tegra issue 1613: Thor's devfreq node has no table. Or the floor is above the whole table."""
    tree, node = tmp_path / "proc/device-tree", tmp_path / "sys/class/devfreq/gpu-gpc-0"
    policy = tmp_path / "sys/devices/system/cpu/cpufreq/policy0"
    for folder in (tree, node, policy):
        folder.mkdir(parents=True)
    (tree / "compatible").write_text("nvidia,p4071-0000+p3834-0008\0nvidia,tegra264\0")
    for file, number in (("min_freq", floor), ("max_freq", 1_575_000_000)):
        (node / file).write_text(f"{number}\n")
    (node / "available_frequencies").write_text(f"{table}\n")
    for name in ("cpuinfo_min", "scaling_min"):
        (policy / f"{name}_freq").write_text("1000000")
    for name in ("cpuinfo_max", "scaling_max"):
        (policy / f"{name}_freq").write_text("2000000")
    (driver,) = discover(str(tmp_path))
    driver.write(CPU, 1500)
    about = _described(driver)
    assert set(about["ranges"]) == {CPU} and "no value" in about["without"][GPU]
    grant = {GPU: (306, 1300), CPU: (1000, 2000)}
    granted, errors = Granted(match="*", grant=grant).values(about)
    assert set(granted) == {CPU} and GPU in errors[0] and "no value" in errors[0]
