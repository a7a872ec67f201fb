"""The host's CPU: parsing what the kernel tells, counters that wrap, and what cannot be read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.devices.catalogue import open_device
from agents.devices.cpu.device import busy_seconds, counted_uj, find_packages, model_name
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
        with pytest.raises(UnknownKnob, match=r"cpu\.clock_mhz"):
            side.actuator.apply({"cpu.clock_mhz": 2000})
        assert "governor" in side.cannot["cpu.clock_mhz"]


class TestCpuMeter(MeterContract):
    pass


class TestBusyTime:
    def test_a_window_counts_work_not_idleness(self, host: FakeHost) -> None:
        window = host.open().meter.start()
        host.spend(2.5)
        assert window.stop().totals["busy_s"] == pytest.approx(2.5)

    @given(st.lists(st.integers(0, 10**12), min_size=7, max_size=10), st.integers(1, 3))
    def test_user_nice_system_and_interrupts_are_work(self, ticks: list[int], gap: int) -> None:
        text = f"cpu{' ' * gap}{' '.join(map(str, ticks))}\ncpu0 9 9 9 9\n"
        worked = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]
        assert busy_seconds(text) == pytest.approx(worked / HZ)

    @given(st.text(max_size=80).filter(lambda text: not text.startswith("cpu ")))
    def test_anything_else_is_refused(self, text: str) -> None:
        with pytest.raises(MeasurementError, match="/proc/stat"):
            busy_seconds(text)

    @pytest.mark.parametrize("text", ["", "cpu", "cpu 1 2 3", "cpu 1 2 3 4 5 6 -7", "cpu0 1 2 3 4"])
    def test_too_little_is_refused(self, text: str) -> None:
        with pytest.raises(MeasurementError):
            busy_seconds(text)

    def test_a_vanished_file_is_named(self, host: FakeHost) -> None:
        side = host.open()
        (host.root / "proc/stat").unlink()
        with pytest.raises(MeasurementError, match="proc/stat"):
            side.meter.start()


class TestEnergy:
    def test_packages_are_summed_and_their_parts_and_the_platform_are_not(
        self, host: FakeHost
    ) -> None:
        counters = [
            host.package("intel-rapl:0", "package-0", 1_000_000),
            host.package("intel-rapl:1", "package-1", 9_000_000),
            host.package("intel-rapl:0:0", "core", 0),
            host.package("intel-rapl:2", "psys", 0),
        ]
        window = host.open().meter.start()
        for counter in counters:
            counter.write_text(str(int(counter.read_text()) + 3_000_000))
        assert window.stop().totals["energy_j"] == pytest.approx(6.0)

    def test_a_window_survives_every_wrap_it_reads_across(self, host: FakeHost) -> None:
        counter = host.package("intel-rapl:0", "package-0", RANGE_UJ - 1_000_000)
        window = host.open().meter.start()
        for value in (1_999_999, RANGE_UJ, 999_999):
            counter.write_text(str(value))
            shown = window.read()
        total_uj = 3_000_000 + (RANGE_UJ - 1_999_999) + 1_000_000
        assert shown.totals["energy_j"] == pytest.approx(total_uj / 1e6)

    @given(
        st.integers(1, 2**48),
        st.integers(0, 2**48),
        st.lists(st.integers(0, 2**48), max_size=20),
    )
    def test_steps_below_the_range_are_never_lost(
        self, range_uj: int, start: int, steps: list[int]
    ) -> None:
        size = range_uj + 1
        position, counted, spent = start % size, 0, 0
        for step in (step % size for step in steps):
            after = (position + step) % size
            counted += counted_uj(position, after, range_uj)
            position, spent = after, spent + step
        assert counted == spent

    def test_where_there_is_no_counter_there_is_no_joule(self, host: FakeHost) -> None:
        side = host.open()
        assert side.metrics == ()
        assert "powercap" in side.cannot["energy_j"] and "powercap" in side.cannot["power_w"]
        window = side.meter.start()
        assert window.stop().totals.keys() == {"busy_s"}

    def test_a_counter_that_may_not_be_read_is_a_reason_in_words(self, host: FakeHost) -> None:
        host.package("intel-rapl:0", "package-0", 1).unlink()
        packages, why_not = find_packages(host.root)
        assert packages == ()
        assert "energy_uj" in why_not and "root" in why_not

    @pytest.mark.parametrize("text", ["", "-5", "many", "1.5"])
    def test_a_counter_that_tells_nonsense_fails_the_window(
        self, host: FakeHost, text: str
    ) -> None:
        counter = host.package("intel-rapl:0", "package-0", 1)
        window = host.open().meter.start()
        counter.write_text(text)
        with pytest.raises(MeasurementError, match="energy_uj"):
            window.stop()


class TestIdentity:
    def test_board_and_version_are_the_cpus_and_the_kernels(self, side: Side) -> None:
        assert (side.board, side.version) == ("Test CPU @ 2 GHz", "6.1.0-test")

    def test_an_arm_kernel_names_no_model(self) -> None:
        assert model_name("processor\t: 0\nBogoMIPS\t: 50.00\nmodel name\t:\n") == "unknown CPU"

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
