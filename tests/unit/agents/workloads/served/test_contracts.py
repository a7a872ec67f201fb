from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.host.machine import HostClock
from agents.load.generator import LoadShape
from agents.target.side import Side
from agents.workloads.served import attach
from tests.contracts.actuator import SettableContract
from tests.contracts.meter import Later, MeterContract
from tests.unit.agents.workloads.stand_in import StandIn


@pytest.fixture
def server() -> Iterator[StandIn]:
    server = StandIn()
    server.gate.clear()
    yield server
    server.close()


@pytest.fixture
def side(server: StandIn) -> Iterator[Side]:
    side = attach(server.url, seed=0, state_dir=Path(), clock=HostClock(), shape=LoadShape(2))
    yield side
    server.gate.set()
    side.close()


@pytest.fixture
def later(server: StandIn) -> Callable[[], None]:
    """Let 60 requests through, or wait until half a second passes without any."""

    def pass_on() -> None:
        server.gate.set()
        before = seen = server.items
        quiet_since = time.monotonic()
        while seen < before + 60 and time.monotonic() < quiet_since + 0.5:
            time.sleep(0.005)
            if server.items > seen:
                seen, quiet_since = server.items, time.monotonic()

    return pass_on


class TestKnobActuator(SettableContract):
    pass


class TestLoadMeter(MeterContract):
    pass


def test_close_ends_a_load_that_was_not_stopped(server: StandIn, side: Side, later: Later) -> None:
    side.meter.start()
    later()
    side.close()
    time.sleep(0.1)  # requests in progress are still counted
    sent = server.items
    time.sleep(0.1)
    assert 0 < sent == server.items
