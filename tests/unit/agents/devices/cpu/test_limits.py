"""RAPL's power limits as machines have them, in trees of plain files.

Sources: drivers/powercap/intel_rapl_common.c of the kernel (`max_power_uw` is the rated power; a domain
locked by the BIOS shows 0 in `enabled` and refuses writes with EACCES; the limits by MSR and by MMIO
both apply); raplcap issue 14 (i9-13900HX: 135 and 162 W in force beside 55 W).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from agents.actuator.device import Peer
from agents.actuator.driver import DriverProcess, Value, _answered
from agents.actuator.grants import Granted
from agents.devices.cpu.knobs import POWER, UNCORE, discover
from tests.actuation import Direct, replayed
from tuner.errors import ActuationError

PEER = Peer(1, 1, 7)
WINDOWS = ("power_limit_uw", "max_power_uw")


def zone(root: Path, name: str, limits: Mapping[int, tuple[int, int]], /, **files: object) -> Path:
    """Make a package: for each window its limit in force and its reported maximum, in watts."""
    folder = root / "sys/class/powercap" / name
    folder.mkdir(parents=True)
    number = name.rpartition(":")[2]
    for file, text in {"name": f"package-{number}", **files}.items():
        (folder / file).write_text(f"{text}\n")
    for window, watts in limits.items():
        for file, value in zip(WINDOWS, watts, strict=True):
            (folder / f"constraint_{window}_{file}").write_text(f"{value * 1_000_000}\n")
    return folder


def limits(root: Path) -> list[str]:
    files = sorted(root.glob("sys/class/powercap/*/constraint_*_power_limit_uw"))
    return [file.read_text().strip() for file in files]


@pytest.mark.parametrize(
    ("constraints", "reaches"),
    [
        ({0: (135, 55), 1: (162, 0)}, (13, 162)),
        ({0: (125, 125), 1: (150, 0)}, (31, 150)),
        ({0: (4095, 0), 1: (4095, 0)}, (10, 4095)),
        ({0: (4095, 125), 1: (4095, 0)}, (31, 4095)),
        ({0: (90, 0), 1: (120, 0)}, (22, 120)),
    ],
)
def test_the_range_includes_the_values_in_force(
    constraints: Mapping[int, tuple[int, int]], reaches: tuple[int, int], tmp_path: Path
) -> None:
    zone(tmp_path, "intel-rapl:0", constraints)
    (driver,) = discover(str(tmp_path))
    values = driver.ranges()[POWER]
    assert (values[0], values[-1]) == reaches
    assert len(values) <= 1000


def test_all_packages_are_limited_however_many_and_mmio_too(tmp_path: Path) -> None:
    for number in range(16):
        zone(tmp_path, f"intel-rapl:{number}", {0: (125, 125), 1: (150, 0)}, enabled=1)
    zone(tmp_path, "intel-rapl-mmio:0", {0: (100, 125)}, enabled=1)
    zone(tmp_path, "intel-rapl:0:0", {0: (50, 50)}, name="core")
    (driver,) = discover(str(tmp_path))
    original = driver.read()[POWER]
    driver.write(POWER, 80)
    assert limits(tmp_path).count("80000000") == 33 and "50000000" in limits(tmp_path)
    driver.write(POWER, original)
    assert limits(tmp_path).count("125000000") == 16


def test_limits_that_are_not_enabled_are_not_offered_with_the_reason(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", {0: (125, 125)}, enabled=1)
    zone(tmp_path, "intel-rapl:1", {0: (125, 125)}, enabled=0)
    (driver,) = discover(str(tmp_path))
    assert POWER not in driver.ranges()
    assert "package-1" in driver.without[POWER] and "disabled" in driver.without[POWER]


def test_a_disabled_mmio_zone_binds_nothing(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", {0: (125, 125)}, enabled=1)
    zone(tmp_path, "intel-rapl-mmio:0", {0: (15, 15)}, enabled=0)
    (driver,) = discover(str(tmp_path))
    driver.write(POWER, 80)
    assert sorted(limits(tmp_path)) == ["15000000", "80000000"]


@pytest.mark.parametrize("text", ["", "x", "-5", "1e9", "9" * 30])
@pytest.mark.parametrize("file", ["constraint_0_power_limit_uw", "constraint_0_max_power_uw"])
def test_any_text_in_a_limits_file_ends_nothing(file: str, text: str, tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", {0: (125, 125), 1: (150, 0)})
    (folder / file).write_text(text)
    (driver,) = discover(str(tmp_path))
    assert POWER in driver.ranges() or driver.without[POWER]
    assert len(driver.ranges().get(POWER, ())) <= 1000


def test_an_uncore_in_clusters_is_set_and_restored_by_cluster(tmp_path: Path) -> None:
    """A package's own folder shows the greatest clock of its clusters, and writes all (TuneD 590)."""
    top = tmp_path / "sys/devices/system/cpu/intel_uncore_frequency"
    tops = {"package_00_die_00": 2500, "uncore00": 2200, "uncore01": 2500}
    for name, mhz in tops.items():
        (top / name).mkdir(parents=True)
        for file, khz in (("initial_max", mhz), ("max", mhz), ("initial_min", 800), ("min", 800)):
            (top / name / f"{file}_freq_khz").write_text(f"{khz}000\n")

    def now() -> list[int]:
        return [int((top / name / "max_freq_khz").read_text()) // 1000 for name in tops]

    (driver,) = discover(str(tmp_path))
    assert driver.ranges()[UNCORE][-1] == driver.read()[UNCORE] == 2500
    for mhz, shown in ((1500, [2500, 1500, 1500]), (2400, [2500, 2200, 2400])):
        driver.write(UNCORE, mhz)
        assert now() == shown and driver.read()[UNCORE] == mhz
    driver.write(UNCORE, 2500)
    assert now() == [*tops.values()]


class Hand(DriverProcess):
    """Calls the driver in this process; writes of some files are refused, as by firmware."""

    def __init__(self, root: Path, refusals: Mapping[str, int]) -> None:
        super().__init__(lambda: (), 1.0)
        self._drivers = {driver.uuid: driver for driver in discover(str(root))}
        self.refusals = refusals

    async def ask(self, verb: str, uuid: str = "", *details: Value | None) -> Any:  # noqa: ANN401
        write = Path.write_text

        def writing(path: Path, text: str) -> int:
            number = next((e for name, e in self.refusals.items() if path.match(name)), 0)
            if number:
                raise OSError(number, os.strerror(number), str(path))
            return write(path, text)

        with mock.patch.object(Path, "write_text", writing):
            return _answered(self._drivers, verb, uuid, *details)


def actuator(root: Path, hand: Hand) -> Direct:
    terms = Granted(match="cpu", grant={POWER: (60, 120)})
    return replayed(terms, lambda: hand, root / "journal")


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENODATA])
def test_a_lock_that_only_a_write_shows_refuses_the_trial_and_nothing_stays(
    number: int, tmp_path: Path
) -> None:
    zone(tmp_path, "intel-rapl:0", {0: (125, 125), 1: (150, 0)})
    started = actuator(tmp_path, Hand(tmp_path, {"constraint_1_power_limit_uw": number}))
    started.acquire(PEER, "cpu", 5.0)
    with pytest.raises(ActuationError, match="constraint_1_power_limit_uw rejects"):
        started.apply(PEER, "cpu", {POWER: 100})
    assert sorted(limits(tmp_path)) == ["125000000", "150000000"]
    assert not list((tmp_path / "journal").glob("*.json"))
