"""Flags of a service, set through a fake of systemd whose state is in files."""

from __future__ import annotations

import asyncio
import errno
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.actuator.device import Peer
from agents.actuator.driver import DriverProcess, KnobDriver, Value, _answered
from agents.actuator.grants import ActuatorConfig, Granted
from agents.actuator.journal import RestoreJournal
from agents.devices.unit.knobs import UnitFlags, discover
from tests.actuation import Direct, actuator_of
from tests.contracts.drivers import DriverContract
from tests.errors import raised
from tests.fake_systemd import COMMAND, NAME, UNIT, DirectFlags, FakeSystemd
from tuner.errors import ActuationError, Conflict

THREADS, BATCH, DRAFT = "--threads", "--batch", "--draft-max"
GRANT = {THREADS: ("1", "2", "4"), BATCH: ("32", "64"), DRAFT: ("0", "4")}
TERMS = Granted(match="unit:*", grant=GRANT, original={DRAFT: 0})
PEER = Peer(1, 1, 7)
DEVICE = f"unit:{NAME}"


@pytest.fixture
def systemd(tmp_path: Path) -> FakeSystemd:
    systemd = FakeSystemd(tmp_path)
    systemd.boot()
    return systemd


def offered(systemd: FakeSystemd, **terms: Any) -> DirectFlags:  # noqa: ANN401
    driver = systemd.driver()
    driver.offer(Granted(match="*", **terms) if terms else TERMS)
    return driver


class Committed(DirectFlags):
    """Commits each write, as the actuator does after the last one."""

    def write(self, knob: str, value: Value | None) -> None:
        super().write(knob, value)
        self.commit()


class TestFlags(DriverContract):
    @pytest.fixture
    def driver(self, systemd: FakeSystemd) -> KnobDriver:
        driver = Committed(systemd)
        driver.offer(TERMS)
        return driver


def test_one_restart_puts_all_words_in_force_and_one_takes_them_back(systemd: FakeSystemd) -> None:
    driver = offered(systemd)
    assert driver.read() == {THREADS: 2, BATCH: 64, DRAFT: 0}
    for knob, value in ((THREADS, 4), (BATCH, 32), (DRAFT, 4)):
        driver.write(knob, value)
    assert driver.read() == dict.fromkeys(GRANT)
    driver.commit()
    changed = COMMAND.replace("--threads 2", "--threads 4").replace("--batch=64", "--batch=32")
    assert systemd.state["running"] == f"{changed} --draft-max 4"
    assert driver.read() == {THREADS: 4, BATCH: 32, DRAFT: 4}
    for knob in GRANT:
        driver.write(knob, None)
    driver.commit()
    assert (systemd.state["running"], systemd.state["all"], systemd.left) == (COMMAND, 3, [])


def test_the_flags_of_a_vllm_with_drafts_are_knobs(systemd: FakeSystemd) -> None:
    """Its drafts by words without a quote: a real vLLM reads them in tests/vllm."""
    own = "/opt/vllm/bin/vllm serve /srv/m --max-num-seqs 128 --speculative-config.method=ngram"
    drafts, batch = "--speculative-config.num_speculative_tokens", "--max-num-batched-tokens"
    systemd.boot(UNIT.replace(COMMAND, f"{own} {drafts}=3"))
    grant = {"--max-num-seqs": ("8", "128"), drafts: ("1", "3"), batch: ("512", "2048")}
    driver = offered(systemd, grant=grant, original={batch: 2048})
    assert driver.read() == {"--max-num-seqs": 128, drafts: 3, batch: 2048}
    for knob in grant:
        driver.write(knob, driver.ranges()[knob][0])
    driver.commit()
    changed = own.replace("128", "8")
    assert systemd.state["running"] == f"{changed} {drafts}=1 {batch} 512"
    for knob in grant:
        driver.write(knob, None)
    driver.commit()
    assert systemd.state["running"] == f"{own} {drafts}=3"


def test_with_a_full_disk_the_units_own_command_returns(
    systemd: FakeSystemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(file))

    driver = offered(systemd)
    for knob in (THREADS, DRAFT):
        driver.write(knob, 4)
    driver.commit()
    monkeypatch.setattr("agents.devices.unit.knobs._write", full)
    with raised(ActuationError, "No space left", "free space in /run"):
        driver.write(THREADS, None)
    for knob in GRANT:
        driver.write(knob, None)
    driver.commit()
    assert (systemd.state["running"], systemd.left) == (COMMAND, [])
    with raised(ActuationError, "No space left"):
        driver.write(THREADS, 4)
    driver.commit()
    assert (systemd.state["running"], systemd.left) == (COMMAND, [])


def test_an_unchanged_setting_of_a_unit_causes_no_restart(systemd: FakeSystemd) -> None:
    driver = offered(systemd)
    driver.write(THREADS, 2)
    driver.write(BATCH, None)
    driver.commit()
    assert (systemd.state["all"], systemd.left) == (1, [])


def test_the_configured_program_is_called(systemd: FakeSystemd) -> None:
    systemd.program()
    (driver,) = discover(NAME, systemd.root)
    driver.offer(TERMS)
    driver.write(THREADS, 4)
    driver.commit()
    assert "--threads 4" in systemd.state["running"]
    systemd.goes_wrong(masked=True)
    with raised(ActuationError, "masked"):
        driver.read()


@pytest.mark.parametrize(
    "line",
    [
        'ExecStart=/bin/sh -c "llama-server --threads 2"',
        "ExecStart=/usr/bin/llama-server $ARGS --threads 2",
        "ExecStart=/usr/bin/llama-server --threads %i",
        "ExecStart=/usr/bin/llama-server --threads 2 --threads 4",
        "ExecStart=/usr/bin/llama-server --threads 2 -- --threads",
        "ExecStart=/usr/bin/a --threads 2 ; /usr/bin/b",
        "ExecStart=/usr/bin/a --threads 2\nExecStart=/usr/bin/b",
        "ExecStart=@/usr/bin/a a --threads 2",
        "ExecStart=/usr/bin/a --threads --batch=64",
        "ExecStart=/usr/bin/a --threads",
        "ExecStart=/usr/bin/a --threads 2\\x20",
        "ExecStart=",
        "[Unit]\nExecStart=/usr/bin/a --threads 2",
    ],
)
def test_a_command_that_is_not_sure_is_refused_by_name(line: str, systemd: FakeSystemd) -> None:
    systemd.fragment.write_text(f"[Service]\n{line}\n")
    driver = offered(systemd, grant={THREADS: ("1", "2")})
    assert not driver.ranges()
    assert THREADS in driver.without[THREADS] or NAME in driver.without[THREADS]


def test_continued_lines_comments_and_drop_ins_are_read_as_systemd_does(
    systemd: FakeSystemd,
) -> None:
    text = "[Service]\nExecStart = /usr/bin/old \n ; gone\nExecStart=\n"
    text += "ExecStart=-/usr/bin/a \\\n# --threads 9\n --threads 2\n"
    systemd.fragment.write_text(text)
    assert offered(systemd, grant={THREADS: ("1", "2")}).read() == {THREADS: 2}
    folder = systemd.folders[0]
    folder.mkdir()
    (folder / "override.conf").write_text(
        "[Service]\nExecStart=\nExecStart=/usr/bin/b --threads 1\n"
    )
    systemd.call("daemon-reload")
    assert offered(systemd, grant={THREADS: ("1", "2")}).read() == {THREADS: 1}


@pytest.mark.parametrize(
    ("grant", "more"),
    [
        ({"--model": ("/srv/a b.gguf",)}, {}),
        ({THREADS: ("4\nUser=root",)}, {}),
        ({THREADS: ("%n",)}, {}),
        ({THREADS: ("$HOME",)}, {}),
        ({THREADS: ('"4"',)}, {}),
        ({THREADS: ("--model",)}, {}),
        ({THREADS: (1, 8)}, {}),
        ({"User": ("root",)}, {}),
        ({"--a\nUser": ("root",)}, {}),
        ({DRAFT: ("4",)}, {}),
        ({THREADS: ("4",)}, {"original": {THREADS: 8}}),
        ({THREADS: ("4",)}, {"failsafe": {THREADS: 1}}),
    ],
)
def test_a_grant_that_is_not_a_flag_with_plain_words_is_refused(
    grant: dict[str, Any], more: dict[str, Any], systemd: FakeSystemd
) -> None:
    driver = offered(systemd, grant=grant, **more)
    assert not driver.ranges() and [*driver.without] == [*grant]


@pytest.mark.parametrize(
    "name", ["a", "../a.service", "jouletune-agent.service", "a.service\n", "a b.service"]
)
def test_a_name_that_is_not_a_service_is_refused(name: str) -> None:
    with pytest.raises(ActuationError, match="no service to set"):
        discover(name)
    assert discover() == []


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200
)
@given(
    grant=st.dictionaries(
        st.text(max_size=12) | st.sampled_from([*GRANT]),
        st.lists(st.text(max_size=9) | st.sampled_from("12"), min_size=1).map(tuple),
        max_size=3,
    ),
    wanted=st.lists(
        st.tuples(
            st.text(max_size=12) | st.sampled_from([*GRANT]),
            st.text(max_size=9) | st.integers() | st.floats() | st.sampled_from("12"),
        ),
        max_size=4,
    ),
)
def test_for_any_grant_and_request_the_drop_in_has_one_command_of_plain_words(
    systemd: FakeSystemd, grant: dict[str, Any], wanted: list[tuple[str, Value]]
) -> None:
    systemd.boot()
    driver = offered(systemd, grant=grant)
    for knob, value in wanted:
        driver.write(knob, value)
    drop_in = systemd.folders[1] / "zzz-jouletune.conf"
    if drop_in.exists():
        head, section, cleared, command = drop_in.read_text().removesuffix("\n").split("\n")
        assert (head[0], section, cleared) == ("#", "[Service]", "ExecStart=")
        word = r"[\w.,:/+-]+"
        plain = (
            f"ExecStart=/usr/bin/llama-server --model /srv/m.gguf --threads {word} --batch={word}"
        )
        assert re.fullmatch(plain, command, re.ASCII)
        words = {str(word) for knob in GRANT for word in grant.get(knob, ())} | {"2", "64"}
        assert {command.split()[4], command.partition("--batch=")[2]} <= words
    for knob, _ in wanted:
        driver.write(knob, None)
    driver.commit()
    assert systemd.left == [] and systemd.state["running"] == COMMAND


class Hand(DriverProcess):
    """Calls the driver in this process."""

    def __init__(self, driver: UnitFlags) -> None:
        super().__init__(lambda: (), 1.0)
        self.driver, self.takes_s, self.clock = driver, 0.0, [0.0]

    async def ask(self, verb: str, uuid: str = "", *details: Value | None) -> Any:  # noqa: ANN401
        if verb == "commit":
            self.clock[0] += self.takes_s
        return _answered({self.driver.uuid: self.driver}, verb, uuid, *details)


def started(
    systemd: FakeSystemd, clock: list[float], takes_s: float = 0.0, min_restart_s: float = 0.0
) -> Direct:
    """Return a new actuator with its journal replayed."""
    hand = Hand(offered(systemd))
    hand.takes_s, hand.clock = takes_s, clock
    config = ActuatorConfig(devices=(TERMS,), min_restart_s=min_restart_s)
    journal = RestoreJournal(systemd.root / "journal")
    made = Direct(actuator_of(config, lambda: hand, journal, "boot", lambda: clock[0]))
    made.replay()
    return made


def test_a_start_that_fails_or_hangs_ends_the_trial_with_the_units_own_command(
    systemd: FakeSystemd,
) -> None:
    for fault in ("bad", "hang"):
        actuator = started(systemd, [0.0])
        systemd.goes_wrong(**{fault: "4"})
        actuator.acquire(PEER, DEVICE, 5.0)
        with pytest.raises(ActuationError):
            actuator.apply(PEER, DEVICE, {THREADS: 4})
        assert systemd.state["running"] == COMMAND and systemd.left == []
        assert actuator.read(PEER, DEVICE)["level"] == "original"
        systemd.goes_wrong(**{fault: None})


def test_a_service_is_restarted_at_most_once_in_a_while_and_always_to_restore_it(
    systemd: FakeSystemd,
) -> None:
    clock = [0.0]
    actuator = started(systemd, clock, min_restart_s=60.0)
    actuator.acquire(PEER, DEVICE, 5.0)
    actuator.apply(PEER, DEVICE, {THREADS: 4})
    actuator.apply(PEER, DEVICE, {THREADS: 4})  # it has this value already
    restarts = systemd.state["all"]
    for number in range(9):
        clock[0] += 1.0
        with pytest.raises(Conflict, match="less than 60 s"):
            actuator.apply(PEER, DEVICE, {THREADS: 4 if number % 2 else 1, BATCH: 32})
        actuator.acquire(PEER, DEVICE, 5.0)
    assert systemd.state["all"] == restarts + 1, "once, to restore it"
    assert systemd.state["running"] == COMMAND
    clock[0] += 60.0
    actuator.acquire(PEER, DEVICE, 5.0)
    actuator.apply(PEER, DEVICE, {THREADS: 4})


def test_a_reload_that_is_lost_is_an_error_and_is_repeated(systemd: FakeSystemd) -> None:
    clock = [0.0]
    actuator = started(systemd, clock)
    systemd.goes_wrong(lost=True)
    actuator.acquire(PEER, DEVICE, 5.0)
    with pytest.raises(ActuationError, match="has not loaded"):
        actuator.apply(PEER, DEVICE, {THREADS: 4})
    systemd.goes_wrong(lost=False)
    for _ in range(3):
        clock[0] += 100.0
        actuator.tick()
    assert systemd.state["running"] == COMMAND and systemd.left == []


def test_a_unit_that_is_masked_is_not_set_and_goes_back_once_it_is_not(
    systemd: FakeSystemd,
) -> None:
    clock = [0.0]
    actuator = started(systemd, clock)
    actuator.acquire(PEER, DEVICE, 5.0)
    actuator.apply(PEER, DEVICE, {THREADS: 4})
    systemd.goes_wrong(masked=True)
    with pytest.raises(ActuationError, match="masked"):
        actuator.release(PEER, DEVICE)
    systemd.goes_wrong(masked=False)
    clock[0] += 100.0
    actuator.tick()
    assert systemd.state["running"] == COMMAND and systemd.left == []


def test_an_operators_new_command_comes_first(systemd: FakeSystemd) -> None:
    clock = [0.0]
    actuator = started(systemd, clock)
    actuator.hold(PEER, DEVICE, {THREADS: 4}, 1000.0)
    systemd.fragment.write_text(UNIT.replace("--threads 2", "--threads 1"))
    with pytest.raises(ActuationError, match="was changed"):
        actuator.renew(PEER, DEVICE, 5.0)
    clock[0] += 100.0
    actuator.tick()
    assert systemd.state["running"] == COMMAND.replace("--threads 2", "--threads 1")
    assert systemd.left == [] and systemd.state["all"] == 3
    actuator.hold(PEER, DEVICE, {THREADS: 4, BATCH: 32}, 1000.0)
    systemd.fragment.write_text(UNIT.replace("--batch=64", "--batch=32 --mlock on"))
    for _ in range(2):
        clock[0] += 100.0
        actuator.tick()
    assert systemd.state["running"].endswith("--threads 2 --batch=32 --mlock on")
    assert systemd.left == []


async def answered(driver: UnitFlags, *request: str) -> Any:  # noqa: ANN401 - JSON
    process = DriverProcess(lambda: [driver], 30.0)
    try:
        return await process.ask(*request)
    finally:
        await process.close()


def test_a_refusal_of_systemd_is_an_error_in_the_drivers_process(systemd: FakeSystemd) -> None:
    """The actuator ignores SIGCHLD; its children inherit that, which would hide exit statuses from them."""
    systemd.program()
    script = "#!/bin/sh\necho 'Access denied' >&2\nexit 1\n"
    (systemd.root / "usr/bin/systemctl").write_text(script)
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with raised(ActuationError, f"systemctl show {NAME}: Access denied"):
            asyncio.run(answered(UnitFlags(NAME, systemd.root), "read", DEVICE))
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_service_that_its_operator_stopped_is_not_started(systemd: FakeSystemd) -> None:
    actuator = started(systemd, [0.0])
    actuator.hold(PEER, DEVICE, {THREADS: 4}, 1000.0)
    systemd.goes_wrong(active="inactive", running="")
    actuator.release(PEER, DEVICE)
    assert (systemd.state["running"], systemd.left) == ("", [])
    actuator.acquire(PEER, DEVICE, 5.0)
    with pytest.raises(ActuationError, match="inactive"):
        actuator.apply(PEER, DEVICE, {THREADS: 4})


def test_the_time_of_a_restart_is_not_the_agents(systemd: FakeSystemd) -> None:
    clock = [0.0]
    actuator = started(systemd, clock, takes_s=70.0)
    actuator.acquire(PEER, DEVICE, 5.0)
    actuator.apply(PEER, DEVICE, {THREADS: 4})
    actuator.tick()
    assert actuator.read(PEER, DEVICE)["level"] == "trial"
    actuator.hold(PEER, DEVICE, {THREADS: 1}, 1000.0)
    actuator.tick()
    assert actuator.read(PEER, DEVICE)["level"] == "hold"
    assert "--threads 1" in systemd.state["running"]


@pytest.mark.parametrize("result", ["", "signal"])
def test_a_restart_of_the_actuator_restarts_no_service_at_its_hold(
    result: str, systemd: FakeSystemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    first = started(systemd, clock)
    first.hold(PEER, DEVICE, {THREADS: 4}, 1000.0)
    systemd.goes_wrong(jobs="7 jouletune-actuator.service restart running\n")
    if result:  # it was killed, and ExecStopPost= runs
        monkeypatch.setenv("SERVICE_RESULT", result)
    else:
        first.close()
    started(systemd, clock).close()
    monkeypatch.delenv("SERVICE_RESULT", raising=False)
    second = started(systemd, clock)
    assert second.read(PEER, DEVICE)["level"] == "hold"
    second.hold(PEER, DEVICE, {THREADS: 4}, 1000.0)
    assert "--threads 4" in systemd.state["running"] and systemd.state["all"] == 2
    clock[0] += 61.0  # and no agent came
    second.tick()
    assert systemd.state["running"] == COMMAND and systemd.left == []


@pytest.mark.parametrize(
    ("environ", "jobs"),
    [
        ({}, ""),
        ({"NOTIFY_SOCKET": "x"}, "7 jouletune-actuator.service stop running\n"),
        ({"NOTIFY_SOCKET": "x", "SERVICE_RESULT": "exit-code"}, ""),
    ],
)
def test_an_actuator_that_stops_or_cannot_start_leaves_nothing_set(
    environ: dict[str, str], jobs: str, systemd: FakeSystemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    systemd.goes_wrong(jobs=jobs)
    actuator = started(systemd, [0.0])
    actuator.hold(PEER, DEVICE, {THREADS: 4}, 1000.0)
    actuator.close()
    assert systemd.state["running"] == COMMAND and systemd.left == []
