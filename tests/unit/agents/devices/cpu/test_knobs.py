"""Root's writes to CPUs, on mounted servers whose files refuse and clamp as the kernel's do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agents.actuator.driver import KnobDriver
from agents.devices.cpu.knobs import discover
from tests.boards.fixtures import Mount, boards, mount
from tests.boards.servers import SERVERS
from tests.contracts.drivers import FileDriverContract
from tests.contracts.members import MemberContract
from tuner.errors import ActuationError

__all__ = ["boards", "mount"]


@pytest.mark.parametrize("name", sorted({*SERVERS} - {"sixteen"}))
class TestServers(FileDriverContract, MemberContract):
    cap_knobs = ("cpu.package_power_limit_w", "cpu.max_mhz")

    @pytest.fixture
    def driver(self, mount: Mount, name: str) -> KnobDriver:
        (device,) = discover(str(mount(name).root))
        return device


@pytest.mark.parametrize(("name", "packages"), [("xeon", 2), ("sixteen", 16)])
def test_both_windows_of_all_packages_are_limited_and_go_back(
    mount: Mount, name: str, packages: int
) -> None:
    board = mount(name)
    (driver,) = discover(str(board.root))
    original = driver.read()["cpu.package_power_limit_w"]
    assert original == " ".join(["125"] * packages + ["150"] * packages)
    driver.write("cpu.package_power_limit_w", 80)
    limits = board.root.glob("sys/class/powercap/intel-rapl:*/constraint_*_power_limit_uw")
    packaged = [file for file in limits if file.parent.name.count(":") == 1]
    assert [file.read_text().strip() for file in packaged] == ["80000000"] * 2 * packages
    driver.write("cpu.package_power_limit_w", original)
    assert board.altered == {}


def test_a_clock_under_a_floor_is_refused_and_named(mount: Mount) -> None:
    board = mount("xeon")
    (driver,) = discover(str(board.root))
    floor = board.file("sys/devices/system/cpu/cpufreq/policy2/scaling_min_freq")
    floor.write_text("2000000")
    with pytest.raises(ActuationError, match=r"policy2/scaling_max_freq rejects 1000000: Inval"):
        driver.write("cpu.max_mhz", 1000)


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


def test_a_machine_without_any_such_file_has_no_device(tmp_path: Path) -> None:
    assert discover(str(tmp_path)) == []


def test_missing_boost_is_not_offered(mount: Mount) -> None:
    (driver,) = discover(str(mount("arm").root))
    assert "cpu.boost" in driver.knobs and "cpu.boost" not in driver.ranges()


def test_a_jetson_is_left_to_its_own_driver(mount: Mount) -> None:
    assert discover(str(mount("orin").root)) == []


CPUS = "/sys/devices/system/cpu"
POLICY0 = "sys/devices/system/cpu/cpufreq/policy0"
EPP = "energy_performance_preference"


class TestUnkindServers:
    """The stand-ins behave like servers in the kernel's sources and in public reports."""

    def test_at_its_top_rung_a_clock_shows_more_than_its_ceiling(self, mount: Mount) -> None:
        """acpi-cpufreq on an EPYC 7451: 2.89 GHz over 2.3 (util-linux 755, oshi 1296)."""
        board = mount("zen")
        shown, ceiling = (board.file(f"{POLICY0}/scaling_{f}_freq") for f in ("cur", "max"))
        assert (shown.read_text(), ceiling.read_text()) == ("2894214\n", "2300000\n")
        board.file("sys/devices/system/cpu/cpufreq/boost").write_text("0")
        assert shown.read_text() == "2300000\n"

    def test_boost_off_lowers_the_maximum_of_amd_pstate(self, mount: Mount) -> None:
        """drivers/cpufreq/amd-pstate.c, amd_pstate_cpu_boost_update."""
        board = mount("ryzen")
        board.file("sys/devices/system/cpu/cpufreq/boost").write_text("0")
        assert board.file(f"{POLICY0}/cpuinfo_max_freq").read_text() == "4500000\n"
        assert board.file(f"{POLICY0}/scaling_max_freq").read_text() == "4500000\n"

    def test_a_cap_clamps_at_any_moment_and_leaves_the_request(self, mount: Mount) -> None:
        """drivers/cpufreq/cpufreq.c: scaling_max_freq shows the lowest of all frequency QoS requests."""
        board = mount("xeon")
        board.do(cap=2_800_000)
        assert board.file(f"{POLICY0}/scaling_max_freq").read_text() == "2800000\n"
        board.do(cap=0)
        assert board.file(f"{POLICY0}/scaling_max_freq").read_text() == "3800000\n"

    @pytest.mark.parametrize(
        ("fault", "number"), [("locked", errno.EACCES), ("nodata", errno.ENODATA)]
    )
    def test_a_power_limit_that_the_bios_has_locked_refuses(
        self, mount: Mount, fault: str, number: int
    ) -> None:
        """drivers/powercap/intel_rapl_common.c, set_power_limit: "locked by BIOS"; ENODATA (raplcap 14)."""
        board = mount("hybrid")
        limit = board.file("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw")
        assert board.file("sys/class/powercap/intel-rapl:0/enabled").read_text() == "1\n"
        board.do(faults={f"/{limit.relative_to(board.root)}": fault})
        with pytest.raises(OSError) as refused:
            limit.write_text("60000000")
        assert refused.value.errno == number

    def test_every_file_of_a_policy_without_a_cpu_is_busy_and_keeps_its_limits(
        self, mount: Mount
    ) -> None:
        """drivers/cpufreq/cpufreq.c, show and store: policy_is_inactive; commit 1608f023 for the limit."""
        board = mount("zen")
        ceiling, governor = (board.file(f"{POLICY0}/scaling_{f}") for f in ("max_freq", "governor"))
        sibling = board.file(f"{POLICY0}/affected_cpus")
        ceiling.write_text("1200000")
        board.do(write={f"{CPUS}/cpu1/online": "0"})
        assert sibling.read_text() == "0\n" and ceiling.read_text() == "1200000\n"
        other = board.file("sys/devices/system/cpu/cpufreq/policy2/scaling_max_freq")
        other.write_text("1700000")
        board.do(write={f"{CPUS}/cpu{n}/online": "0" for n in (2, 3)})
        assert board.file("sys/devices/system/cpu/online").read_text() == "0\n"
        for file in other.parent.iterdir():
            for answer in (file.read_text, lambda file=file: file.write_text("1200000")):
                with pytest.raises(OSError) as busy:
                    answer()
                assert busy.value.errno == errno.EBUSY or not os.access(file, os.W_OK)
        board.do(write={f"{CPUS}/cpu3/online": "1"})
        assert other.read_text() == "1700000\n" and governor.read_text() == "ondemand\n"

    def test_a_policy_of_a_driver_that_is_loaded_anew_is_a_new_one(self, mount: Mount) -> None:
        """drivers/cpufreq/cpufreq.c: cpufreq_policy_free; an absent CPU's comes with the CPU."""
        board = mount("zen")
        folder = board.root / POLICY0
        folder.joinpath("scaling_max_freq").write_text("1200000")
        number = folder.stat().st_ino
        board.do(write={f"{CPUS}/cpu{n}/online": "0" for n in (2, 3)})
        board.do(reload=True)
        assert folder.joinpath("scaling_max_freq").read_text() == "2300000\n"
        assert folder.stat().st_ino != number
        assert not folder.with_name("policy2").exists()
        board.do(write={f"{CPUS}/cpu2/online": "1"})
        assert folder.with_name("policy2").joinpath("scaling_max_freq").read_text() == "2300000\n"

    @pytest.mark.parametrize(("name", "stays"), [("amd", True), ("intel", False)])
    def test_the_governor_performance_changes_the_preference(
        self, mount: Mount, name: str, stays: bool
    ) -> None:
        """After the governor's restore amd-pstate keeps the preference; intel_pstate restores it."""
        board = mount(name)
        words = {f: board.file(f"{POLICY0}/{f}") for f in ("scaling_governor", EPP)}
        listed = board.file(f"{POLICY0}/energy_performance_available_preferences")
        words[EPP].write_text("power")
        words["scaling_governor"].write_text("performance")
        assert words[EPP].read_text() == "performance\n"
        assert (listed.read_text() == "performance\n") is stays
        with pytest.raises(OSError) as busy:
            words[EPP].write_text("power")
        assert busy.value.errno == errno.EBUSY
        words["scaling_governor"].write_text("powersave")
        assert words[EPP].read_text() == ("performance\n" if stays else "power\n")

    @pytest.mark.parametrize("name", ["amd", "intel", "manual"])
    def test_a_driver_declares_all_files_that_its_knobs_move(self, mount: Mount, name: str) -> None:
        board = mount(name)
        (driver,) = discover(str(board.root))
        FileDriverContract().test_writing_a_knob_moves_only_its_declared_files(driver)
        assert board.altered == {}

    def test_a_resume_opens_ceilings(self, mount: Mount) -> None:
        """linrunner/TLP 265 and 775."""
        board = mount("xeon")
        ceiling = board.file(f"{POLICY0}/scaling_max_freq")
        ceiling.write_text("1200000")
        board.do(resume=True)
        assert ceiling.read_text() == "3800000\n"

    def test_counters_begin_anew_after_a_resume(self, mount: Mount) -> None:
        """joular/powerjoular 87, mlco2/codecarbon 1321."""
        board = mount("sixteen")
        zones = list(board.root.glob("sys/class/powercap/intel-rapl:*/energy_uj"))
        assert len([zone for zone in zones if zone.parent.name.count(":") == 1]) == 16
        board.do(pass_s=600.0, manual=True)
        before = [int(zone.read_text()) for zone in zones]
        board.do(restart_counters=True)
        assert all(int(zone.read_text()) < was for zone, was in zip(zones, before, strict=True))
