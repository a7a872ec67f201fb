from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agents.actuator.driver import MOST_LINGERING, DriverProcess, KnobDriver, Value
from agents.devices.fake import knobs as fake
from agents.devices.fake.knobs import FakeKnobs
from tests.errors import raised
from tests.processes import kill, link, listed, until
from tuner.core import ActuationError, DeviceLost

GPU = "GPU-1"
DEADLINE_S = 60.0


class Now(DriverProcess):
    """A hand that waits for every call."""

    def now(self, verb: str, *details: Any) -> Any:  # noqa: ANN401
        return asyncio.run(self.ask(verb, *map(str, details[:1]), *details[1:]))

    def late(self, verb: str, *details: Value | None) -> None:
        """Make a call with a deadline of 0.3 s; other calls have a long one, for busy machines."""
        kept, self._deadline_s = self._deadline_s, 0.3
        with raised(DeviceLost, "did not answer within 0.3 s"):
            self.now(verb, *details)
        self._deadline_s = kept


@pytest.fixture
def hardware(tmp_path: Path) -> Path:
    path = tmp_path / "hardware.json"
    fake.save(path, fake.blank(GPU))
    return path


@pytest.fixture
def hand(hardware: Path) -> Iterator[Now]:
    def discover() -> Sequence[KnobDriver]:
        return fake.discover(str(hardware))

    hand = Now(discover, DEADLINE_S)
    yield hand
    asyncio.run(hand.close())
    until(lambda: not hand.lingering)
    # Reap ended children only: those of other tests, such as a database server, still run.
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def fault(hardware: Path, **faults: object) -> None:
    state = fake.load(hardware)
    state["devices"][GPU]["faults"] = {k.replace("__", "."): v for k, v in faults.items()}
    fake.save(hardware, state)


def test_the_child_acts_as_the_driver_would(hand: Now, hardware: Path) -> None:
    (device,) = hand.now("describe")
    assert (device["uuid"], device["board"]) == (GPU, "A100 (fake)")
    assert device["ranges"]["gpu.mem_clock_mhz"] == [405, 1215]
    hand.now("write", GPU, "gpu.power_limit_w", 250)
    hand.now("write", GPU, "gpu.clock_mhz", 810)
    values, entries, silent, epoch = hand.now("read", GPU)
    assert values == {"gpu.clock_mhz": None, "gpu.mem_clock_mhz": None, "gpu.power_limit_w": 250}
    assert entries["gpu.power_limit_w"] == ["gpu.power_limit_w", 250, None]
    assert (silent, epoch) == ({}, "1")
    assert hand.now("plan", GPU, {"gpu.clock_mhz": 810}) == {
        "gpu.clock_mhz": {"gpu.clock_mhz": 810}
    }
    hand.now("write", GPU, "gpu.power_limit_w", None)
    assert hand.now("read", GPU)[0]["gpu.power_limit_w"] == 400


def test_the_drivers_answers_are_passed_on(hand: Now, hardware: Path) -> None:
    fault(hardware, gpu__clock_mhz="refuse")
    with raised(ActuationError, "gpu.clock_mhz=810"):
        hand.now("write", GPU, "gpu.clock_mhz", 810)
    fault(hardware, **{"*": "lost"})
    with pytest.raises(DeviceLost, match="fell off"):
        hand.now("read", GPU)
    with raised(DeviceLost, "GPU-9"):
        hand.now("read", "GPU-9")


def test_a_call_that_hangs_hangs_only_the_child(hand: Now, hardware: Path) -> None:
    hand.now("read", GPU)
    fault(hardware, gpu__clock_mhz="hang")
    hand.late("write", GPU, "gpu.clock_mhz", 810)
    assert hand.now("read", GPU)[0]["gpu.power_limit_w"] == 400


def test_a_child_that_dies_is_replaced(hand: Now) -> None:
    hand.now("read", GPU)
    kill(hand._child)
    with raised(DeviceLost, "ended"):
        hand.now("read", GPU)
    assert hand.now("read", GPU)[-1] == "1"


def test_a_child_that_dies_unheard_and_is_reaped_at_once_is_replaced(hand: Now) -> None:
    """The kernel may reap the child itself; its process id may then belong to another process."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        hand.now("read", GPU)
        kill(hand._child)
        with raised(DeviceLost, "ended"):
            hand.now("read", GPU)
        assert hand.now("read", GPU)[-1] == "1"
    finally:
        signal.signal(signal.SIGCHLD, before)


class Broken(FakeKnobs):
    """A driver with two bugs: whole floats break it, and it fails to describe one device."""

    def write(self, knob: str, value: Value | None) -> None:
        if isinstance(value, float):
            raise TypeError("an integer is required")
        super().write(knob, value)

    def ranges(self) -> Mapping[str, tuple[Value, ...]]:
        if self.uuid == "GPU-2":
            raise ZeroDivisionError
        return super().ranges()


def test_a_broken_driver_is_reported_and_ends_nothing(hardware: Path) -> None:
    fake.save(hardware, fake.blank(GPU, "GPU-2"))
    hand = Now(lambda: [Broken(hardware, GPU), Broken(hardware, "GPU-2")], DEADLINE_S)
    whole, broken = hand.now("describe")
    assert whole["uuid"] == GPU and "absent" not in whole
    assert broken == {"uuid": "GPU-2", "absent": "its driver failed: ZeroDivisionError()"}
    child = hand._child
    with pytest.raises(ActuationError, match="an integer is required"):
        hand.now("write", GPU, "gpu.clock_mhz", 810.0)
    hand.now("write", GPU, "gpu.clock_mhz", 810)
    assert hand._child == child
    asyncio.run(hand.close())
    until(lambda: not hand.lingering)


def test_a_killed_child_lingers_until_its_system_call_ends(hardware: Path) -> None:
    hand = Now(lambda: fake.discover(str(hardware)), DEADLINE_S)
    fault(hardware, gpu__power_limit_w="late")
    assert hand.now("read", GPU)[0]["gpu.power_limit_w"] == 400
    hand.late("write", GPU, "gpu.power_limit_w", 250)
    assert hand.lingering == 1
    assert hand.now("read", GPU)[0]["gpu.power_limit_w"] == 400
    assert hand.lingering == 1
    hardware.with_suffix(".let_go").touch()
    until(lambda: not hand.lingering)
    assert hand.now("read", GPU)[0]["gpu.power_limit_w"] == 250
    asyncio.run(hand.close())
    until(lambda: not hand.lingering)


def test_no_more_children_are_started_for_a_driver_that_holds_them(hand: Now) -> None:
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(4)]
    for ours, _ in pairs:
        ours.setblocking(False)
        hand._left.append(ours)
    assert len(pairs) == MOST_LINGERING
    with raised(DeviceLost, MOST_LINGERING):
        hand.now("read", GPU)
    pairs[0][1].close()
    assert hand.now("read", GPU)[-1] == "1"
    for _, theirs in pairs:
        theirs.close()


def test_the_child_keeps_nothing_of_the_actuators(hand: Now, tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w"):
        hand.now("read", GPU)
        held = [link(hand._child, f"fd/{name}") for name in listed(hand._child, "fd")]
    assert not [name for name in held if "secret" in name]
    assert len([name for name in held if name.startswith("socket:")]) == 1
