from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.actuator.device import Peer
from agents.actuator.driver import Value
from agents.actuator.grants import ActuatorConfig, Granted
from agents.actuator.journal import RestoreJournal
from agents.actuator.main import MOST_PEERS, RESERVED, ActuatorService, listen
from agents.actuator.requests import LONGEST_LINE, VERBS, parse
from agents.devices.fake import knobs as fake
from tests.actuation import DirectHand, actuator_of
from tests.profiles import examples
from tuner.core import InvalidInput

TURNS = 30
"""The turns of the loop after which every consequence of a sent message has happened."""

GPU = "GPU-1"
CLOCK, LIMIT = "gpu.clock_mhz", "gpu.power_limit_w"
NOBODY = 65534


class Welcoming(ActuatorService):
    def _welcome(self, peer: Peer, groups: set[int]) -> bool:
        return True


class Closed(ActuatorService):
    """Refuses every peer, and records it."""

    asked: ClassVar[list[tuple[int, set[int]]]] = []

    def _welcome(self, peer: Peer, groups: set[int]) -> bool:
        self.asked.append((peer.uid, groups))
        return False


class Breakable(DirectHand):
    """Raises a given error at a read."""

    broken: Exception | None = None

    async def ask(self, verb: str, uuid: str = "", *details: Value | None) -> Any:  # noqa: ANN401
        if self.broken and verb == "read":
            raise self.broken
        return await super().ask(verb, uuid, *details)


@dataclass
class House:
    """An actuator behind its socket, in this thread; the test turns its loop."""

    folder: Path
    runner: asyncio.Runner
    actuator: ActuatorService
    hand: Breakable
    hardware: Path

    def step(self) -> None:
        async def turn() -> None:
            for _ in range(TURNS):
                await asyncio.sleep(0)

        self.runner.run(turn())

    def enter(self, groups: Sequence[int] | None = None) -> socket.socket:
        """Connect; given groups, as an unprivileged user in these groups."""
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.settimeout(5.0)
        with nullcontext() if groups is None else as_nobody(groups):
            line.connect(str(self.folder / "socket"))
        self.step()
        return line

    def say(self, line: socket.socket, request: bytes) -> list[dict[str, Any]]:
        """Send bytes and return the answers to them."""
        if request:  # a refused peer's connection may be closed by now
            line.sendall(request)
        self.step()
        line.setblocking(False)
        try:
            heard = line.recv(1 << 20)
        except BlockingIOError:
            heard = b""
        line.settimeout(5.0)
        return [json.loads(one) for one in heard.splitlines()]

    def ask(self, line: socket.socket, **request: object) -> dict[str, Any]:
        (answer,) = self.say(line, json.dumps(request).encode() + b"\n")
        return answer

    @property
    def values(self) -> dict[str, Any]:
        return dict(fake.load(self.hardware)["devices"][GPU]["values"])


def house(folder: Path, kind: type[ActuatorService]) -> Iterator[House]:
    hardware = folder / "hardware.json"
    fake.save(hardware, fake.blank(GPU))
    (folder / "journal").mkdir()
    grant = {CLOCK: (600.0, 1410.0), LIMIT: (150.0, 350.0)}
    config = ActuatorConfig(devices=(Granted(match="GPU-*", grant=grant),))
    hand = Breakable(hardware)

    async def opened() -> tuple[ActuatorService, asyncio.Server]:
        made = await actuator_of(
            config, lambda: hand, RestoreJournal(folder / "journal"), "boot", lambda: 0.0
        )
        made.__class__ = kind
        await made.replay()
        return made, await listen(made, folder / "socket")

    async def shut(server: asyncio.Server) -> None:
        server.close()
        for _ in range(TURNS):
            await asyncio.sleep(0)

    with asyncio.Runner() as runner:
        actuator, server = runner.run(opened())
        yield House(folder, runner, actuator, hand, hardware)
        runner.run(shut(server))


@pytest.fixture
def open_house(tmp_path: Path) -> Iterator[House]:
    yield from house(tmp_path, Welcoming)


def test_a_trial_over_the_wire(open_house: House) -> None:
    line = open_house.enter()
    assert open_house.ask(line, verb="capabilities")["protocol"] == 4
    assert open_house.ask(line, verb="acquire", device=GPU, lease_s=5)["ok"]
    setting = {CLOCK: 810, LIMIT: 250}
    assert open_house.ask(line, verb="apply", device=GPU, setting=setting)["values"] == setting
    assert open_house.values[CLOCK] == 810
    line.close()
    open_house.step()
    assert (open_house.values[CLOCK], open_house.values[LIMIT]) == (None, 400)


def test_a_refusal_has_its_reason_and_the_connection_continues(open_house: House) -> None:
    line = open_house.enter()
    answer = open_house.ask(line, verb="apply", device=GPU, setting={})
    assert (answer["ok"], answer["code"]) == (False, "conflict")
    assert "acquire" in answer["hint"]
    assert open_house.ask(line, verb="capabilities")["ok"]
    line.close()


def test_lines_may_come_in_pieces_and_together(open_house: House) -> None:
    line = open_house.enter()
    assert open_house.say(line, b'{"verb": "capa') == []
    answers = open_house.say(line, b'bilities"}\n{"verb":"read","device":"GPU-1"}\n{')
    assert [a["ok"] for a in answers] == [True, True]
    line.close()


def test_a_line_without_end_is_cut_off(open_house: House) -> None:
    line = open_house.enter()
    line.sendall(b"x" * (LONGEST_LINE - 1))
    for _ in range(3):
        open_house.step()
    (answer,) = open_house.say(line, b"xx")
    assert "at most" in answer["message"]
    assert line.recv(10) == b""
    line.close()


def test_the_number_of_served_peers_is_limited(open_house: House) -> None:
    lines = [open_house.enter() for _ in range(MOST_PEERS + RESERVED)]
    with closing(open_house.enter()) as late:
        refused = json.loads(late.recv(4096))["code"]
    answer = open_house.ask(lines[0], verb="capabilities")
    for line in lines:
        line.close()
    assert (refused, answer["ok"]) == ("unauthorised", True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_other_users_leave_connections_for_root(tmp_path: Path) -> None:
    for inside in house(tmp_path, Welcoming):
        reached = open_way(tmp_path / "socket")
        (tmp_path / "socket").chmod(0o666)
        lines = [inside.enter([]) for _ in range(MOST_PEERS)]
        with closing(inside.enter([])) as late:
            refused = json.loads(late.recv(4096))["code"]
        with closing(inside.enter()) as root:
            answer = inside.ask(root, verb="capabilities")
        for line in lines:
            line.close()
        for folder, before in reached.items():
            folder.chmod(before)
        assert (refused, answer["ok"]) == ("unauthorised", True)


@contextmanager
def as_nobody(groups: Sequence[int]) -> Iterator[None]:
    """Act as an unprivileged user in these groups."""
    before = os.getgroups()
    os.setgroups(groups)
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("group", [5000, 5299, 7000])
def test_a_peer_in_very_many_groups_is_known_by_all_of_them(tmp_path: Path, group: int) -> None:
    many = list(range(5000, 5300))
    for inside in house(tmp_path, ActuatorService):
        inside.actuator.gid = group
        reached = open_way(tmp_path / "socket")
        (tmp_path / "socket").chmod(0o666)
        member = group in many
        with closing(inside.enter(many)) as line:
            (answer,) = inside.say(line, b'{"verb": "capabilities"}\n' if member else b"")
        for folder, before in reached.items():
            folder.chmod(before)
        assert (answer["ok"], answer.get("code")) == (member, None if member else "unauthorised")


def test_an_unexpected_error_is_answered_and_the_connection_continues(open_house: House) -> None:
    with closing(open_house.enter()) as line:
        assert open_house.ask(line, verb="acquire", device=GPU, lease_s=5)["ok"]
        open_house.ask(line, verb="apply", device=GPU, setting={CLOCK: 810})
        open_house.hand.broken = KeyError("unforeseen")
        answer = open_house.ask(line, verb="renew", device=GPU, lease_s=5)
        assert (answer["ok"], answer["code"]) == (False, "internal")
        assert "unforeseen" in answer["message"]
        open_house.hand.broken = None
        assert open_house.ask(line, verb="read", device=GPU)["level"] == "original"
        assert open_house.ask(line, verb="capabilities")["ok"]


def test_an_unauthorised_peer_is_disconnected(tmp_path: Path) -> None:
    Closed.asked.clear()
    for inside in house(tmp_path, Closed):
        line = inside.enter()
        assert json.loads(line.recv(4096))["code"] == "unauthorised"
        assert line.recv(10) == b""
        line.close()
    assert Closed.asked == [(os.geteuid(), {os.getegid(), *os.getgroups()})]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("mode", [0o660, 0o666])
def test_another_unprivileged_user_is_refused(tmp_path: Path, mode: int) -> None:
    """By the socket's mode; if that was widened, by the peer's credentials."""
    for inside in house(tmp_path, ActuatorService):
        path = tmp_path / "socket"
        assert path.stat().st_mode & 0o777 == 0o660
        path.chmod(mode)
        reached = open_way(path)
        child = os.fork()
        if child == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os._exit(heard_as_nobody(path))
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            inside.step()
            time.sleep(0.005)
        code = os.waitstatus_to_exitcode(ended[1])
        assert code == {0o660: 13, 0o666: 42}[mode]
        assert inside.hand.puts == []
        for folder, before in reached.items():
            folder.chmod(before)


def open_way(path: Path) -> dict[Path, int]:
    """Let every user reach a folder, as in /run; return the former modes."""
    before = {}
    for folder in path.parents:
        before[folder] = folder.stat().st_mode
        folder.chmod(before[folder] | 0o011)
    return before


def heard_as_nobody(path: Path) -> int:
    """Return 42 if the actuator refused us by name, the errno if the kernel did."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(5.0)
    try:
        line.connect(str(path))
    except OSError as error:
        return error.errno or 1
    problem = json.loads(line.recv(4096))
    return 42 if problem["code"] == "unauthorised" and str(NOBODY) in problem["message"] else 1


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        b"3",
        b"[]",
        b'"release"',
        b"{}",
        b'{"verb": []}',
        b'{"verb": "shell", "device": "GPU-1"}',
        b'{"verb": "__init__"}',
        b'{"verb": "close"}',
        b'{"verb": "tick"}',
        b'{"verb": "release"}',
        b'{"verb": "release", "device": 3}',
        b'{"verb": "release", "device": "GPU-1", "path": "/etc/passwd"}',
        b'{"verb": "acquire", "device": "GPU-1", "lease_s": NaN}',
        b'{"verb": "acquire", "device": "GPU-1", "lease_s": true}',
        b'{"verb": "apply", "device": "GPU-1", "setting": {"gpu.clock_mhz": [810]}}',
        b'{"verb": "apply", "device": "GPU-1", "setting": {"gpu.clock_mhz": true}}',
        b'{"verb": "apply", "device": "GPU-1", "setting": {"gpu.clock_mhz": Infinity}}',
        b'{"verb": "hold", "device": "GPU-1", "setting": {}, "valid_for_s": 1e999}',
        b'{"verb": "apply", "device": "GPU-1", "setting": {"gpu.clock_mhz": -1e999}}',
        b'{"verb": "stay", "device": "GPU-1"}',
        b"[" * 60000,
        b"\xff\xfe",
        b"1" * 10000,
    ],
)
def test_an_invalid_request_is_refused(request_: bytes) -> None:
    with pytest.raises(InvalidInput):
        parse(request_)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
NUMBERS = st.one_of(st.integers(), st.floats(), st.sampled_from([0, 5, 10, 1e300, 10**400]))
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(0, 2000), st.sampled_from([630, 810, 300]), JSON
)
SETTINGS = st.dictionaries(
    st.sampled_from([CLOCK, LIMIT, "gpu.mem_clock_mhz", "", "../x"]), VALUES, max_size=3
)
FIELDS = {
    "device": st.sampled_from([GPU, "GPU-2", "", "../../etc/passwd"]),
    "lease_s": NUMBERS,
    "trial": st.text(max_size=5),
    "setting": SETTINGS,
    "study": st.text(max_size=5),
    "revision": st.integers(),
    "valid_for_s": NUMBERS,
    "knob": st.sampled_from([CLOCK, LIMIT, "gpu.mem_clock_mhz", ""]),
    "why": st.text(max_size=5),
    "group": st.text(max_size=5),
    "job": st.text(max_size=5),
    "steps": st.lists(
        st.fixed_dictionaries({"in_s": NUMBERS, "cap_w": NUMBERS, "at_most": SETTINGS}) | JSON,
        max_size=2,
    ),
}
NEARLY = st.sampled_from(sorted(VERBS)).flatmap(
    lambda verb: st.fixed_dictionaries(
        {"verb": st.just(verb), **{name: FIELDS[name] for name in VERBS[verb]}}
    )
)
REQUESTS = st.one_of(
    NEARLY.map(lambda r: json.dumps(r).encode() + b"\n"),
    NEARLY.map(lambda r: json.dumps(r).encode() + b"\n"),
    JSON.map(lambda r: json.dumps(r).encode() + b"\n"),
    st.binary(min_size=1, max_size=40),
)


@settings(max_examples=examples(2))
@given(requests=st.lists(REQUESTS, max_size=12))
def test_for_any_message_nothing_breaks_and_only_granted_values_are_written(
    tmp_path_factory: pytest.TempPathFactory, requests: list[bytes]
) -> None:
    for inside in house(tmp_path_factory.mktemp("h"), Welcoming):
        line = inside.enter()
        for request in requests:
            for answer in inside.say(line, request):
                assert answer["ok"] or (answer["code"] and answer["message"])
                assert answer.get("code") != "internal"
        line.close()
        for knob, value in inside.hand.puts:
            granted = {CLOCK: range(600, 1411), LIMIT: (*range(150, 351), 400)}[knob]
            assert value is None or value in granted
        other = inside.enter()
        assert inside.ask(other, verb="capabilities")["ok"]
        other.close()
