"""A server that the agent started: a request restarts it first if it ended; closing ends it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import pytest

from agents.host.processes.server_process import ServerProcess
from agents.target.side import (
    Closing,
    Restartable,
    Side,
    SignalSample,
    WaitingSignal,
)
from agents.workloads.served.child import revived
from tuner.core import DeviceLost, Knob, Meter, Setting, Signal, Space

BATCH = Knob("batch_size", (1, 2), 1)


class Child:
    """A fake server process; `events` records the calls to it and to its side."""

    url = "http://127.0.0.1:1"

    def __init__(self) -> None:
        self.events: list[str] = []

    def revive(self) -> None:
        self.events.append("revive")

    def end(self) -> None:
        self.events.append("end")


class Server:
    """The side's actuator and its signal."""

    signal = Signal("requests_in_system")

    def __init__(self, child: Child) -> None:
        self._child = child

    def read(self) -> Setting:
        self._child.events.append("read")
        return {"batch_size": 1}

    def apply(self, setting: Setting) -> None:
        self._child.events.append(f"apply {dict(setting)}")

    def incarnation(self) -> str:
        self._child.events.append("incarnation")
        return "first"

    def close(self) -> None:
        self._child.events.append("close")


class Live:
    signal = Signal("requests_in_system")

    def __init__(self, child: Child) -> None:
        self._child = child

    def read(self) -> SignalSample:
        self._child.events.append("look")
        return SignalSample(2.0)


class LiveWaiting(Live):
    def wait_above(self, value: float, seconds: float) -> SignalSample:
        self._child.events.append(f"wait above {value:g}")
        return SignalSample(value)


def opened(child: Child, server: Server, live: Live) -> Side:
    def attach(url: str) -> Side:
        assert url == child.url
        return Side(
            name="ours",
            kind="reference",
            board="this host",
            version="1",
            space=Space((BATCH,)),
            metrics=(),
            actuator=server,
            meter=cast("Meter", None),
            signals=(live,),
        )

    return revived(cast("ServerProcess", child), attach)


@pytest.fixture
def child() -> Child:
    return Child()


def test_a_server_that_cannot_be_attached_to_is_ended(child: Child) -> None:
    def attach(_: str) -> Side:
        raise DeviceLost("it does not answer")

    with pytest.raises(DeviceLost):
        revived(cast("ServerProcess", child), attach)
    assert child.events == ["end"]


def test_every_request_first_restarts_an_ended_server(child: Child) -> None:
    side = opened(child, Server(child), LiveWaiting(child))
    actuator, (live,) = side.actuator, side.signals
    assert isinstance(actuator, Restartable)
    assert isinstance(live, WaitingSignal)
    calls: Mapping[str, Callable[[], object]] = {
        "read": actuator.read,
        "apply {'batch_size': 2}": lambda: actuator.apply({"batch_size": 2}),
        "incarnation": actuator.incarnation,
        "look": live.read,
        "wait above 3": lambda: live.wait_above(3.0, 1.0),
    }
    for event, ask in calls.items():
        child.events.clear()
        ask()
        assert child.events == ["revive", event]


def test_it_has_the_servers_abilities_and_no_more(child: Child) -> None:
    side = opened(child, Server(child), Live(child))
    assert not isinstance(side.signals[0], WaitingSignal)
    assert side.signals[0].signal.name == "requests_in_system"


def test_closing_ends_the_connection_and_then_the_server(child: Child) -> None:
    side = opened(child, Server(child), Live(child))
    assert isinstance(side.actuator, Closing)
    side.close()
    assert child.events == ["close", "end"]
