"""Files that appear, vanish or change: offline CPUs, and governors that change the preference, too."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from agents.actuator.device import Peer
from agents.actuator.grants import ActuatorConfig, Granted
from agents.actuator.journal import COPIES, RestoreJournal
from agents.devices.cpu.knobs import discover
from tests.actuation import Direct, actuator_of, all_granted, finished
from tests.boards.fixtures import Mount, boards, mount
from tests.boards.mounted import MountedBoard
from tests.contracts.members import HandOf
from tuner.errors import ActuationError, UnknownKnob

__all__ = ["boards", "mount"]
ME, CLOCK = Peer(1, 1, 7), "cpu.max_mhz"
CPU3 = "sys/devices/system/cpu/cpu3/online"
CEILING3 = "sys/devices/system/cpu/cpufreq/policy3/scaling_max_freq"


class Hand(HandOf):
    """A driver process: a new one finds the files anew."""

    def __init__(self, root: str) -> None:
        self.root = root
        super().__init__(discover(root)[0])

    async def renew(self) -> None:
        self.__init__(self.root)  # type: ignore[misc]


@dataclass
class Host:
    """A mounted server, an actuator over it, and a clock that the test advances."""

    board: MountedBoard
    folder: Path
    clock: list[float] = field(default_factory=lambda: [0.0])
    slept_s: float = 0.0

    def __post_init__(self) -> None:
        self.board.do(reset=True)
        self.actuator = self.start()

    def start(self, terms: Granted | None = None) -> Direct:
        """Return the actuator as after a fresh start, with a driver process that finds the files anew.

        All that the files offer now is granted, unless `terms` are given.
        """
        (driver,) = discover(str(self.board.root))
        config = ActuatorConfig(devices=(terms or all_granted(driver.ranges()),))
        journal = RestoreJournal(self.folder / "journal")
        made = actuator_of(
            config, lambda: Hand(str(self.board.root)), journal, "boot", lambda: self.clock[0]
        )
        self.actuator = Direct(made)
        for device in self.actuator.inner.devices.values():
            device.restorer.suspended_s = lambda: self.slept_s
        self.actuator.replay()
        return self.actuator

    def trial(self, setting: dict[str, Any]) -> None:
        self.actuator.acquire(ME, "cpu", 5.0)
        self.actuator.apply(ME, "cpu", setting)

    def hold(self, setting: dict[str, Any]) -> None:
        self.actuator.hold(ME, "cpu", setting, 1000.0)

    def told(self) -> dict[str, Any]:
        return dict(self.actuator.read(ME, "cpu"))

    def passes(self, seconds: float) -> None:
        self.clock[0] += seconds
        self.actuator.tick()

    def online(self, whether: bool) -> None:
        self.board.file(CPU3).write_text(str(int(whether)))

    @property
    def journalled(self) -> bool:
        return any((self.folder / f"journal/cpu{copy}").exists() for copy in COPIES)


@pytest.fixture
def host(mount: Mount, tmp_path: Path) -> Callable[[str], Host]:
    return lambda name: Host(mount(name), tmp_path)


@pytest.mark.parametrize("killed", [False, True])
def test_a_ceiling_whose_cpu_is_offline_is_restored_once_it_is_online(
    host: Callable[[str], Host], killed: bool
) -> None:
    ryzen = host("ryzen")
    ryzen.trial({CLOCK: 2000})
    ryzen.online(False)
    if killed:
        ryzen.start()
    else:
        ryzen.actuator.release(ME, "cpu")
    (waiting,) = ryzen.told()["waiting"].items()
    assert waiting == (str(ryzen.board.root / CEILING3), "waiting: offline")
    assert ryzen.journalled and ryzen.told()["trouble"] == ""
    ryzen.trial({CLOCK: 3000})  # the other knobs can be set
    ryzen.actuator.release(ME, "cpu")
    ryzen.online(True)
    ryzen.passes(0.2)
    assert ryzen.board.altered == {} and not ryzen.journalled
    assert ryzen.told()["waiting"] == {}


def test_a_cpu_that_comes_online_in_a_hold_is_held_and_goes_back_to_its_own(
    host: Callable[[str], Host],
) -> None:
    ryzen = host("ryzen")
    ryzen.board.file(CEILING3).write_text("3000000")
    ryzen.online(False)
    ryzen.start()
    ryzen.hold({CLOCK: 2000})
    ryzen.online(True)
    ryzen.actuator.renew(ME, "cpu", 5.0)
    assert ryzen.board.file(CEILING3).read_text() == "2000000\n"
    assert ryzen.told()["values"][CLOCK] == 2000
    ryzen.actuator.release(ME, "cpu")
    assert ryzen.board.file(CEILING3).read_text() == "3000000\n"
    assert not ryzen.journalled


@pytest.mark.parametrize(
    ("name", "file", "texts"),
    [
        ("zen", "cpufreq/boost", "01"),
        ("ryzen", "cpufreq/boost", "01"),
        ("hybrid", "intel_pstate/no_turbo", "10"),
    ],
)
def test_a_ceiling_is_unchanged_after_boost_is_set(
    host: Callable[[str], Host], name: str, file: str, texts: str
) -> None:
    """Some kernels raise every ceiling to its maximum when boost is set (cpufreq_boost_set_sw)."""
    server = host(name)
    (driver,) = discover(str(server.board.root))
    held = {knob: words[1] for knob, words in driver.ranges().items() if knob.startswith(CLOCK)}
    for knob, value in held.items():
        driver.write(knob, value)  # an operator's
    written = server.board.altered
    for value, text in zip(("off", "on"), texts, strict=True):
        server.trial({"cpu.boost": value})
        assert server.board.file(f"sys/devices/system/cpu/{file}").read_text() == f"{text}\n"
        assert {f: t for f, t in server.board.altered.items() if f in written} == written
        server.actuator.release(ME, "cpu")
    assert server.board.altered == written


def test_with_boost_off_a_ceiling_above_the_nominal_clock_counts_as_requested(
    host: Callable[[str], Host],
) -> None:
    ryzen = host("ryzen")
    for boost, shown in (("off", "4500000\n"), ("on", "5300000\n")):
        setting = {"cpu.boost": boost, CLOCK: 5300}
        ryzen.hold(setting)
        assert setting.items() <= ryzen.told()["values"].items()
        assert ryzen.board.file(CEILING3).read_text() == shown
    ryzen.actuator.release(ME, "cpu")
    assert ryzen.board.altered == {}


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("first", ["on", "off"])
def test_the_boost_of_a_policy_goes_back_after_that_of_all(
    host: Callable[[str], Host], first: str, killed: bool
) -> None:
    """drivers/cpufreq/cpufreq.c: cpufreq_boost_trigger_state sets all policies, store_local_boost one."""
    ryzen = host("ryzen")
    boosts = [
        ryzen.board.file(f"sys/devices/system/cpu/cpufreq/{of}boost") for of in ("", "policy3/")
    ]
    boosts[1].write_text("0")
    before = dict(ryzen.board.altered)
    assert "cpu.boost_files" not in ryzen.start().read(ME, "cpu")["values"]
    for value in (first, "off", "on", "off"):
        ryzen.hold({"cpu.boost": value, "cpu.governor": "powersave"})
        assert ryzen.told()["values"]["cpu.boost"] == value and ryzen.told()["trouble"] == ""
    if killed:
        ryzen.start()
    ryzen.actuator.release(ME, "cpu")
    assert [one.read_text() for one in boosts] == ["1\n", "0\n"]
    assert ryzen.board.altered == before and not ryzen.journalled


@pytest.mark.parametrize("name", ["amd-server", "amd", "intel", "manual", "zen", "arm"])
@pytest.mark.parametrize("killed", [False, True])
def test_all_that_a_knob_moves_is_restored_with_it(
    host: Callable[[str], Host], name: str, killed: bool
) -> None:
    """Also intel_pstate's min_perf_pct, which boost off squashes, and the clock of `userspace`."""
    server = host(name)
    device = server.actuator.inner.devices["cpu"].restorer
    movers = [(knob, word) for knob in device.moves for word in device.granted.get(knob, ())]
    for knob, word in movers:
        server.hold({knob: word})
        if killed:
            server.start()
        else:
            server.actuator.release(ME, "cpu")
        left = server.board.altered, server.journalled, server.told()["paused"]
        assert left == ({}, False, ""), (knob, word)
    assert movers


def test_a_grant_that_boost_off_hides_is_made_once_boost_is_on(
    host: Callable[[str], Host],
) -> None:
    """drivers/cpufreq/amd-pstate.c: without boost cpuinfo_max_freq is the nominal clock."""
    server = host("amd")
    full = server.actuator.inner.devices["cpu"].restorer.terms
    boost = server.board.file("sys/devices/system/cpu/cpufreq/boost")
    boost.write_text("0")
    server.start(full)
    server.passes(0.2)
    with pytest.raises(UnknownKnob):
        server.trial({CLOCK: 2500})
    server.actuator.release(ME, "cpu")
    boost.write_text("1")
    server.passes(0.2)
    server.trial({CLOCK: 2500})
    assert server.told()["values"][CLOCK] == 2500
    server.actuator.release(ME, "cpu")
    assert server.board.altered == {} and not server.journalled


@pytest.mark.parametrize("name", ["amd-server", "amd", "intel"])
def test_a_preference_excluded_by_the_governor_is_refused_without_blame(
    host: Callable[[str], Host], name: str
) -> None:
    server = host(name)
    with pytest.raises(ActuationError, match="rejects power"):
        server.trial({"cpu.governor": "performance", "cpu.epp": "power"})
    assert server.board.altered == {} and server.told()["paused"] == ""
    both = {"cpu.governor": "powersave", "cpu.epp": "power"}
    server.trial(both)
    assert {k: server.told()["values"][k] for k in both} == both
    server.actuator.release(ME, "cpu")
    assert server.board.altered == {} and not server.journalled


def test_a_file_that_does_not_answer_leaves_its_knob_unknown_and_the_others_held(
    host: Callable[[str], Host],
) -> None:
    xeon = host("xeon")
    xeon.hold({CLOCK: 2000, "cpu.epp": "power"})
    read = Path.read_text

    def reading(path: Path) -> str:
        if path.name == "energy_performance_preference":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return read(path)

    with mock.patch.object(Path, "read_text", reading):
        xeon.actuator.renew(ME, "cpu", 5.0)
        values = xeon.told()["values"]
        assert (values["cpu.epp"], values[CLOCK]) == (None, 2000)
    assert xeon.told()["level"] == "hold" and xeon.told()["values"]["cpu.epp"] == "power"
    xeon.actuator.release(ME, "cpu")
    assert xeon.board.altered == {}


@pytest.mark.parametrize("deed", ["reload", "resume"])
def test_a_setting_lost_by_reload_or_resume_is_held_again_and_ends_a_trial(
    host: Callable[[str], Host], deed: str
) -> None:
    ryzen = host("ryzen")
    for held in (True, False):
        (ryzen.hold if held else ryzen.trial)({CLOCK: 2000})
        ryzen.board.do(**{deed: True})
        ryzen.slept_s += 60.0 if deed == "resume" else 0.0
        if held:
            ryzen.actuator.renew(ME, "cpu", 5.0)
            assert ryzen.told()["values"][CLOCK] == 2000
            ryzen.actuator.release(ME, "cpu")
        elif deed == "reload":
            with pytest.raises(ActuationError, match="lost"):
                ryzen.actuator.renew(ME, "cpu", 5.0)
        else:
            ryzen.passes(0.2)
        assert (ryzen.told()["level"], ryzen.told()["paused"]) == ("original", "")
        assert ryzen.board.altered == {} and not ryzen.journalled


@pytest.mark.parametrize("found_anew", [False, True])
def test_the_numbers_of_a_governor_are_restored_after_it(
    host: Callable[[str], Host], found_anew: bool
) -> None:
    """kernel/sched/cpufreq_schedutil.c, sugov_exit: they are freed with the last policy that has it."""
    zen = host("zen")
    threshold = zen.board.file("sys/devices/system/cpu/cpufreq/ondemand/up_threshold")
    for governor in ("schedutil", "performance", "ondemand", "schedutil"):
        zen.hold({"cpu.governor": governor})
        assert threshold.exists() is (governor == "ondemand") and zen.told()["waiting"] == {}
        if found_anew:
            for device in zen.actuator.inner.devices.values():
                finished(device.restorer.driver.renew())
    zen.actuator.release(ME, "cpu")
    assert zen.board.altered == {} and not zen.journalled and threshold.read_text() == "60\n"


def test_a_kill_before_the_journal_is_removed_blames_no_program(
    host: Callable[[str], Host],
) -> None:
    """Cores with maxima of their own show those, where the greatest of all was written."""
    ryzen = host("ryzen")
    ryzen.hold({CLOCK: 2000})
    (left,) = {path.read_bytes() for path in (ryzen.folder / "journal").glob("cpu.*")}
    ryzen.actuator.release(ME, "cpu")
    (ryzen.folder / "journal" / f"cpu{COPIES[1]}").write_bytes(left)
    ryzen.start()
    assert ryzen.told()["paused"] == "" and not ryzen.journalled and ryzen.board.altered == {}


@pytest.mark.parametrize("name", ["xeon", "ryzen", "epyc"])
def test_every_preference_that_is_offered_can_be_set(
    host: Callable[[str], Host], name: str
) -> None:
    """`default` reads as another word (show_energy_performance_preference), so no trial of it holds."""
    board = host(name)
    offered = board.actuator.inner.devices["cpu"].restorer.granted["cpu.epp"]
    assert len(offered) == 4
    for word in offered:
        board.trial({"cpu.governor": "powersave", "cpu.epp": word})
        assert board.told()["values"]["cpu.epp"] == word
    board.actuator.release(ME, "cpu")
    assert board.board.altered == {} and not board.journalled
