"""Power modes, set through a fake of NVIDIA's program that keeps its mode in a file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agents.actuator.device import Peer
from agents.actuator.driver import DriverProcess, KnobDriver, Value, _answered
from agents.actuator.grants import ActuatorConfig, Granted
from agents.actuator.journal import RestoreJournal
from agents.devices.cpu.knobs import discover as discover_cpus
from agents.devices.nvpmodel.knobs import MODE, discover
from tests.actuation import Direct, actuator_of, replayed
from tests.contracts.drivers import DriverContract
from tuner.errors import ActuationError, Conflict

CONFIGURATION = """
< PARAM TYPE=FILE NAME=CPU_ONLINE >
CORE_1 /sys/devices/system/cpu/cpu1/online
< POWER_MODEL ID=0 NAME=MAXN >
TPC_POWER_GATING TPC_PG_MASK 0
GPU MAX_FREQ -1
< POWER_MODEL ID=1 NAME=MODE_15W >
TPC_POWER_GATING TPC_PG_MASK 248
GPU MAX_FREQ 420750000
< POWER_MODEL ID=2 NAME=MODE_30W >
TPC_POWER_GATING TPC_PG_MASK 0
GPU MAX_FREQ 624750000
< PM_CONFIG DEFAULT=2 >
"""
PROGRAM = """#!/bin/sh
mode={folder}/mode
case $1 in
-q) n=$(cat $mode); name=$(grep "ID=$n " {folder}/etc/nvpmodel.conf | sed 's/.*NAME=\\([^ ]*\\).*/\\1/')
    printf 'NV Power Mode: %s\\n%s\\n' "$name" "$n" ;;
-m) case $2 in
    1) echo 'Reboot required for changing to this power mode: 1. DO YOU WANT TO REBOOT NOW?'
       read answer; [ "$answer" = YES ] && echo $2 >$mode; exit 0 ;;
    *) echo $2 >$mode ;;
    esac ;;
esac
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("etc", "usr/sbin", "proc/device-tree"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/nvpmodel.conf").write_text(CONFIGURATION)
    (tmp_path / "proc/device-tree/model").write_text("Jetson AGX Orin\0")
    (tmp_path / "mode").write_text("0")
    program = tmp_path / "usr/sbin/nvpmodel"
    program.write_text(PROGRAM.format(folder=tmp_path))
    program.chmod(0o755)
    return tmp_path


class TestModes(DriverContract):
    @pytest.fixture
    def driver(self, root: Path) -> KnobDriver:
        (device,) = discover(str(root))
        return device


def test_a_mode_that_needs_a_reboot_is_not_offered_and_never_set(root: Path) -> None:
    (driver,) = discover(str(root))
    assert driver.ranges() == {MODE: ("MAXN", "MODE_30W")}
    with pytest.raises(ActuationError, match="MODE_15W was not set: Reboot required"):
        driver.write(MODE, "MODE_15W")
    assert driver.read() == {MODE: "MAXN"}


def test_a_mode_that_does_not_exist_is_refused_with_the_existing_ones(root: Path) -> None:
    (driver,) = discover(str(root))
    with pytest.raises(ActuationError, match="no power mode 'MODE_60W'; MAXN, MODE_15W, MODE_30W"):
        driver.write(MODE, "MODE_60W")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 3", "nvpmodel -q: exit status 3"),
        ("echo NVPM ERROR: failed to read PARAM GPU; exit 255", "-q: NVPM ERROR: failed to read"),
        ("printf 'NVPM ERROR: \\377' >&2; exit 255", "-q: NVPM ERROR: \ufffd"),
        ("echo NVPM WARN: power mode is not set! >&2", "-q reports no mode"),
    ],
)
def test_a_program_that_fails_is_an_error_in_its_own_words(
    root: Path, script: str, why: str
) -> None:
    """A board without a mode, or whose configuration names a missing file (jetson_stats 567, 148)."""
    (driver,) = discover(str(root))
    (root / "usr/sbin/nvpmodel").write_text(f"#!/bin/sh\n{script}\n")
    with pytest.raises(ActuationError, match=why):
        driver.read()


def test_without_the_program_the_device_is_missing(tmp_path: Path) -> None:
    assert discover(str(tmp_path)) == []


class Modes(DriverProcess):
    """Calls the stand-in's driver in this process."""

    def __init__(self, root: Path) -> None:
        super().__init__(lambda: (), 1.0)
        self._drivers: dict[str, KnobDriver] = {d.uuid: d for d in discover(str(root))}

    async def ask(self, verb: str, uuid: str = "", *details: Value | None) -> Any:  # noqa: ANN401
        return _answered(self._drivers, verb, uuid, *details)


def actuator(root: Path, boot: str, grant: tuple[str, ...]) -> Direct:
    """Return a new actuator over the board, with its journal replayed."""
    terms = Granted(match="nvpmodel", grant={MODE: grant})
    return replayed(terms, lambda: Modes(root), root / "journal", boot)


def test_after_a_power_cut_in_a_trial_the_mode_is_the_original_again(root: Path) -> None:
    """NVIDIA's guide: "the mode persists across power cycles", as the stand-in's does."""
    peer = Peer(1, 1, 7)
    first = actuator(root, "boot 1", ("MAXN", "MODE_30W"))
    first.acquire(peer, "nvpmodel", 5.0)
    first.apply(peer, "nvpmodel", {MODE: "MODE_30W"})
    assert (root / "mode").read_text() == "2\n"
    second = actuator(root, "boot 2", ("MAXN", "MODE_30W"))
    assert (root / "mode").read_text() == "0\n"
    assert second.read(peer, "nvpmodel")["found"] == {MODE: "MAXN"}
    assert not list((root / "journal").glob("*.json"))


def test_a_mode_missing_in_its_file_is_not_offered_and_is_reported(root: Path) -> None:
    (root / "etc/nvpmodel.conf").write_text(CONFIGURATION.replace("ID=0 NAME=MAXN", "ID=7 NAME=X"))
    (root / "usr/sbin/nvpmodel").write_text("#!/bin/sh\necho NV Power Mode: MAXN\n")
    devices = actuator(root, "boot 1", ("MAXN", "MODE_30W")).capabilities(Peer(1, 1, 7))["devices"]
    assert devices[0]["granted"] == {} and "no value" in devices[0]["errors"][0]


MOVING = """#!/bin/sh
mode={folder}/mode; cpu={folder}/sys/devices/system/cpu
case $1 in
-q) n=$(cat $mode); name=$(grep "ID=$n " {folder}/etc/nvpmodel.conf | sed 's/.*NAME=\\([^ ]*\\).*/\\1/')
    printf 'NV Power Mode: %s\\n%s\\n' "$name" "$n" ;;
-m) echo $2 >$mode
    if [ $2 = 0 ]; then echo 1 >$cpu/cpu1/online; echo 2201600 >$cpu/cpufreq/policy0/scaling_max_freq
    else echo 0 >$cpu/cpu1/online; echo 1728000 >$cpu/cpufreq/policy0/scaling_max_freq; fi ;;
esac
"""


def test_a_modes_side_effects_are_restored_after_it(root: Path) -> None:
    """A mode takes CPUs offline and sets ceilings, also those that an operator had lowered."""
    conf = root / "etc/nvpmodel.conf"
    named = "MAX_FREQ /sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq\n"
    conf.write_text(CONFIGURATION.replace("< POWER_MODEL ID=0", f"{named}< POWER_MODEL ID=0"))
    (root / "usr/sbin/nvpmodel").write_text(MOVING.format(folder=root))
    online = root / "sys/devices/system/cpu/cpu1/online"
    ceiling = root / "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq"
    for file, text in ((online, "1"), (ceiling, "1190400")):
        file.parent.mkdir(parents=True)
        file.write_text(text)
    for killed in (False, True):
        first = actuator(root, "boot", ("MODE_30W",))
        first.hold(Peer(1, 1, 7), "nvpmodel", {MODE: "MODE_30W"}, 100.0)
        assert (root / "mode").read_text().strip() == "2"
        assert (online.read_text(), ceiling.read_text()) == ("0\n", "1728000\n")
        if killed:
            actuator(root, "boot", ("MODE_30W",))
        else:
            first.release(Peer(1, 1, 7), "nvpmodel")
        assert (root / "mode").read_text().strip() == "0"
        assert (online.read_text().strip(), ceiling.read_text()) == ("1", "1190400")
        assert not [*(root / "journal").glob("*.json")]


CLOCKS = {"cpu.max_mhz": (800, 2000)}


class Both(Modes):
    """The board's power modes, and the clocks of its CPUs."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._drivers.update({driver.uuid: driver for driver in discover_cpus(str(root))})

    async def ask(self, verb: str, uuid: str = "", *details: Value | None) -> Any:  # noqa: ANN401
        await asyncio.sleep(0)  # the other device's turn
        return await super().ask(verb, uuid, *details)


def test_two_devices_that_share_a_file_are_set_one_after_the_other(root: Path) -> None:
    """A mode also sets the ceilings of CPUs; neither device takes that for a foreign change."""
    cpus, peer = root / "sys/devices/system/cpu", Peer(1, 1, 7)
    conf = root / "etc/nvpmodel.conf"
    named = "MAX_FREQ /sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq\n"
    conf.write_text(CONFIGURATION.replace("< POWER_MODEL ID=0", f"{named}< POWER_MODEL ID=0"))
    (root / "usr/sbin/nvpmodel").write_text(MOVING.format(folder=root))
    (cpus / "cpufreq/policy0").mkdir(parents=True)
    for limit, khz in (("min", 800_000), ("max", 2_201_600)):
        for kind in ("cpuinfo", "scaling"):
            (cpus / f"cpufreq/policy0/{kind}_{limit}_freq").write_text(f"{khz}\n")
    for cpu in ("cpu0", "cpu1"):
        (cpus / cpu).mkdir()
        (cpus / cpu / "online").write_text("1\n")
    (cpus / "cpu0/cpufreq").symlink_to(cpus / "cpufreq/policy0")
    settings = {"nvpmodel": {MODE: "MODE_30W"}, "cpu": {"cpu.max_mhz": 1000}}
    grant = {MODE: ("MODE_30W",)}
    terms = Granted(match="nvpmodel", grant=grant), Granted(match="cpu", grant=CLOCKS)
    config = ActuatorConfig(devices=terms)
    journal = RestoreJournal(root / "journal")
    actuator = Direct(actuator_of(config, lambda: Both(root), journal, "boot", lambda: 0.0))
    actuator.replay()
    for first, second in (("cpu", "nvpmodel"), ("nvpmodel", "cpu")):
        actuator.hold(peer, first, settings[first], 100.0)
        with pytest.raises(Conflict, match=f"is set by {first}"):
            actuator.hold(peer, second, settings[second], 100.0)
        assert actuator.read(peer, first)["level"] == "hold"
        actuator.release(peer, first)
        assert (cpus / "cpufreq/policy0/scaling_max_freq").read_text().strip() == "2201600"
        assert [actuator.read(peer, device)["paused"] for device in settings] == ["", ""]

    async def both() -> list[Any]:
        holds = (
            actuator.inner.devices[device].ask(
                peer, "hold", {"setting": wanted, "valid_for_s": 100.0}
            )
            for device, wanted in settings.items()
        )
        return [*await asyncio.gather(*holds, return_exceptions=True)]

    for device in actuator.inner.devices.values():
        device.lock = asyncio.Lock()
    refused = [answer for answer in asyncio.run(both()) if isinstance(answer, Exception)]
    assert [type(error) for error in refused] == [Conflict], "both were set at the same time"
