"""The host's CPU: the kernel's files, counters that wrap, and unreadable files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from agents.actuator_client.client import RemoteKnobs
from agents.devices.catalogue import open_device
from agents.devices.cpu.device import Ceilings
from agents.target.side import Side
from tests.contracts.actuator import ActuatorContract
from tests.contracts.meter import MeterContract
from tuner.core import (
    InvalidInput,
    Knob,
    MeasurementError,
    Setting,
    Space,
    UnknownKnob,
    Value,
)

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
        """Add this much busy time over all CPUs, and twice as much idle time."""
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


class TestCpuActuator(ActuatorContract):
    def test_there_is_nothing_to_set_and_that_is_reported(self, side: Side) -> None:
        assert side.space.size == 1 and side.actuator.read() == {}
        with pytest.raises(UnknownKnob, match=r"cpu\.max_mhz"):
            side.actuator.apply({"cpu.max_mhz": 2000})
        assert "measured only" in side.cannot["cpu.max_mhz"]


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

    def test_cpu_takes_no_argument(self) -> None:
        with pytest.raises(InvalidInput, match="'1'"):
            open_device("cpu:1", seed=0, state_dir=None)


def test_this_very_host_can_be_opened() -> None:
    side = open_device("cpu", seed=0, state_dir=None)
    window = side.meter.start()
    sum(range(200_000))
    assert window.stop().totals["busy_s"] >= 0.0


class Remote:
    """The knobs behind an actuator, as the meter reads them: the found values, and our setting."""

    def __init__(self, **originals: Value) -> None:
        self.space = Space(
            tuple(
                Knob(name, tuple(sorted({value, *OTHERS[name]})), value)
                for name, value in ((n.replace("_", ".", 1), v) for n, v in originals.items())
            )
        )
        self.applied: Setting = {}


OTHERS: dict[str, tuple[Value, ...]] = {
    "cpu.max_mhz": (1700, 2300),
    "cpu.boost": ("off", "on"),
}


class TestClocksAgainstCeilings:
    """An EPYC 7451 under acpi-cpufreq shows 2.89 GHz over a ceiling of 2.3 GHz (util-linux 755, oshi 1296).

    `scaling_cur_freq` is measured from APERF and MPERF on x86 (arch/x86/kernel/cpu/aperfmperf.c), and the
    table's top rung is P0, from which the hardware boosts by itself.
    """

    @pytest.fixture
    def epyc(self, host: FakeHost) -> FakeHost:
        for number in (0, 1):
            for file, text in {
                "scaling_driver": "acpi-cpufreq",
                "scaling_available_frequencies": "2300000 1700000 1200000",
                "cpuinfo_min_freq": "1200000",
                "cpuinfo_max_freq": "2300000",
                "scaling_min_freq": "1200000",
                "scaling_max_freq": "2300000",
                "scaling_cur_freq": "2894214",
            }.items():
                host.write(f"sys/devices/system/cpu/cpufreq/policy{number}/{file}", f"{text}\n")
        return host

    def ours(self, host: FakeHost, remote: Remote) -> list[float]:
        ceilings = Ceilings(host.root, cast("RemoteKnobs", remote)).ours()
        return sorted({ceiling.ceiling for ceiling in ceilings})

    def test_a_window_on_an_untouched_machine_that_boosts_is_good(self, epyc: FakeHost) -> None:
        window = epyc.open().meter.start()
        window.read()
        window.stop()

    def test_neither_the_top_rung_nor_the_original_is_a_ceiling_of_ours(
        self, epyc: FakeHost
    ) -> None:
        remote = Remote(cpu_max_mhz=1700)
        for value in (1700, 2300):
            remote.applied = {"cpu.max_mhz": value}
            assert self.ours(epyc, remote) == []

    def test_a_lower_rung_counts_as_our_ceiling(self, epyc: FakeHost) -> None:
        remote = Remote(cpu_max_mhz=2300)
        assert self.ours(epyc, remote) == []
        remote.applied = {"cpu.max_mhz": 1700}
        assert self.ours(epyc, remote) == [1_700_000]

    def test_a_preferred_core_at_its_own_maximum_may_boost(self, epyc: FakeHost) -> None:
        for number, top in ((0, "5759000"), (1, "5308000")):
            folder = epyc.root / f"sys/devices/system/cpu/cpufreq/policy{number}"
            (folder / "scaling_available_frequencies").unlink()
            (folder / "cpuinfo_max_freq").write_text(top)
        remote = Remote(cpu_max_mhz=5759)
        remote.applied = {"cpu.max_mhz": 5400}
        (held,) = Ceilings(epyc.root, cast("RemoteKnobs", remote)).ours()
        assert held.runs.parent.name == "policy0" and held.ceiling == 5_400_000

    def test_a_like_core_at_the_top_of_its_own_table_may_boost(self, epyc: FakeHost) -> None:
        """Two like cores whose tables differ (_PSS of each core): both follow one ceiling."""
        folder = epyc.root / "sys/devices/system/cpu/cpufreq/policy1"
        for file, text in (
            ("scaling_available_frequencies", "2400000 2300000 1700000 1200000"),
            ("cpuinfo_max_freq", "2400000"),
        ):
            (folder / file).write_text(text)
        remote = Remote(cpu_max_mhz=2400)
        remote.applied = {"cpu.max_mhz": 2300}
        (held,) = Ceilings(epyc.root, cast("RemoteKnobs", remote)).ours()
        assert held.runs.parent == folder and held.ceiling == 2_300_000
        remote.applied = {"cpu.max_mhz": 1700}
        assert self.ours(epyc, remote) == [1_700_000]

    def test_boost_that_we_set_off_makes_the_nominal_clock_a_ceiling(self, epyc: FakeHost) -> None:
        remote = Remote(cpu_boost="on", cpu_max_mhz=2300)
        remote.applied = {"cpu.boost": "off", "cpu.max_mhz": 2300}
        assert self.ours(epyc, remote) == [2_300_000]
        remote.applied = {"cpu.boost": "on", "cpu.max_mhz": 2300}
        assert self.ours(epyc, remote) == []
        remote = Remote(cpu_boost="off")  # the found value: not set by us
        remote.applied = {"cpu.boost": "off"}
        assert self.ours(epyc, remote) == []
