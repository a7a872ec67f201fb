"""The host's CPU: parsing what the kernel tells, counters that wrap, and what cannot be read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.devices.catalogue import open_device
from agents.target.side import Side
from tests.contracts.actuator import ActuatorContract
from tests.contracts.meter import MeterContract
from tuner.core import InvalidInput, MeasurementError, Origin, UnknownKnob

HZ = os.sysconf("SC_CLK_TCK")
RANGE_UJ = 262_143_328_850


class FakeHost:
    """A root with the few files of /proc and /sys that the device reads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ticks = [10 * HZ, 0, 5 * HZ, 1000 * HZ, 7 * HZ, 0, 1 * HZ, 50 * HZ, 3 * HZ, 0]
        self.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Test CPU @ 2 GHz\nflags\t: x\n")
        self.write("proc/sys/kernel/osrelease", "6.1.0-test\n")
        self.spend(0.0)

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def spend(self, busy_s: float) -> None:
        """Let every CPU together work that long, and idle twice as long."""
        self.ticks[0] += round(busy_s * HZ)
        self.ticks[3] += round(2 * busy_s * HZ)
        self.write("proc/stat", f"cpu  {' '.join(map(str, self.ticks))}\ncpu0 1 2 3\nintr 5\n")

    def package(self, folder: str, name: str, energy_uj: int) -> Path:
        base = f"sys/class/powercap/{folder}"
        self.write(f"{base}/name", f"{name}\n")
        self.write(f"{base}/max_energy_range_uj", f"{RANGE_UJ}\n")
        return self.write(f"{base}/energy_uj", f"{energy_uj}\n")

    def open(self) -> Side:
        return open_device("cpu", seed=0, state_dir=None, root=self.root)


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


@pytest.fixture(params=["metered", "unmetered"])
def side(request: pytest.FixtureRequest, host: FakeHost) -> Side:
    if request.param == "metered":
        host.package("intel-rapl:0", "package-0", 5_000_000)
    return host.open()


@pytest.fixture
def later(host: FakeHost) -> Callable[[], None]:
    def pass_time() -> None:
        host.spend(1.5)
        counter = host.root / "sys/class/powercap/intel-rapl:0/energy_uj"
        if counter.exists():
            counter.write_text(str(int(counter.read_text()) + 2_000_000))

    return pass_time


@pytest.fixture
def origin() -> Origin:
    return Origin.MEASURED


class TestCpuActuator(ActuatorContract):
    def test_there_is_nothing_to_set_and_it_says_so(self, side: Side) -> None:
        assert side.space.size == 1 and side.actuator.read() == {}
        with pytest.raises(UnknownKnob, match=r"cpu\.max_mhz"):
            side.actuator.apply({"cpu.max_mhz": 2000})
        assert "only measured" in side.cannot["cpu.max_mhz"]


class TestCpuMeter(MeterContract):
    pass


class TestBusyTime:
    def test_a_window_counts_work_not_idleness(self, host: FakeHost) -> None:
        window = host.open().meter.start()
        host.spend(2.5)
        assert window.stop().totals["busy_s"] == pytest.approx(2.5)

    def test_a_vanished_file_is_named(self, host: FakeHost) -> None:
        side = host.open()
        (host.root / "proc/stat").unlink()
        with pytest.raises(MeasurementError, match="proc/stat"):
            side.meter.start()


class TestIdentity:
    def test_board_and_version_are_the_cpus_and_the_kernels(self, side: Side) -> None:
        assert (side.board, side.version) == ("Test CPU @ 2 GHz", "6.1.0-test")

    def test_an_empty_root_still_opens(self, tmp_path: Path) -> None:
        side = open_device("cpu", seed=0, state_dir=None, root=tmp_path)
        assert (side.board, side.version) == ("unknown CPU", "unknown")

    def test_it_takes_nothing_more(self) -> None:
        with pytest.raises(InvalidInput, match="'1'"):
            open_device("cpu:1", seed=0, state_dir=None)


def test_this_very_host_can_be_opened() -> None:
    side = open_device("cpu", seed=0, state_dir=None)
    window = side.meter.start()
    sum(range(200_000))
    assert window.stop().totals["busy_s"] >= 0.0
