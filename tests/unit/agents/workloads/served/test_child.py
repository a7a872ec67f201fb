"""A server that the agent started: a request restarts it first if it ended; closing ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.host.machine import HostClock
from agents.target.side import Restartable, WaitingSignal
from agents.workloads import open_workload
from agents.workloads.served import child as starting
from tests.unit.agents.workloads.stand_in import StandIn
from tuner.core import DeviceLost


class Child:
    """The process of a server; once restarted, the server gives `answers`."""

    def __init__(self, server: StandIn) -> None:
        self.url, self.ends = server.url, 0
        self.answers, self._server = server.answers, server

    def revive(self) -> None:
        self._server.answers = self.answers

    def end(self) -> None:
        self.ends += 1


@pytest.fixture
def server() -> Iterator[StandIn]:
    server = StandIn()
    yield server
    server.close()


@pytest.fixture
def child(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> Child:
    child = Child(server)
    monkeypatch.setattr(starting, "ServerProcess", lambda *_: child)
    monkeypatch.setattr(starting, "NEEDS", ())
    return child


def test_a_server_that_cannot_be_attached_to_is_ended(child: Child, tmp_path: Path) -> None:
    child.url = "http://127.0.0.1:1"
    with pytest.raises(DeviceLost):
        open_workload("reference", seed=0, state_dir=tmp_path, clock=HostClock())
    assert child.ends == 1


def test_every_request_first_restarts_an_ended_server(
    server: StandIn, child: Child, tmp_path: Path
) -> None:
    server.more = {"incarnation": "a", "inside": 0}
    present = {"cpu_s": 1.0, "items": 2, "failed": 0, "pids": [], **server.more}
    waiting = "GET /stats?inside=0&within_s=0"
    server.override(waiting, present)
    side = open_workload("reference", seed=0, state_dir=tmp_path, clock=HostClock())
    actuator = side.actuator
    (live,) = side.signals
    assert isinstance(actuator, Restartable) and isinstance(live, WaitingSignal)
    before = actuator.read()
    calls: tuple[Callable[[], object], ...] = (
        actuator.read,
        lambda: actuator.apply(before),
        actuator.incarnation,
        live.read,
        lambda: live.wait_above(0.0, 0.0),
    )
    for ask in calls:
        server.answers = dict.fromkeys(("GET /knobs", "GET /stats", waiting), (500, b"{}"))
        ask()
    assert child.ends == 0
    side.close()
    assert child.ends == 1
