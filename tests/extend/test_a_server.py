"""A server of your own under a trace: `server.py` beside this, named on the command line as MODULE:NAME.

    PYTHONPATH=. make bench-load TRACE=trace.csv DEVICE=server:open_server

It is one object with knobs, time, counters and its answered requests (`ServesRequests`); as a side it
is measured, followed and tuned like any device.
"""

from __future__ import annotations

import pytest

from agents.target.side import Side
from agents.target.target import Target
from jouletune_bench.llm import Request, attach
from tests.bench.load.play import Fixed, play
from tests.bench.load.servers import opener
from tests.contracts.actuator import SettableContract
from tests.contracts.meter import Later, MeterContract
from tests.extend.server import OneByOne
from tuner.core import Origin

ASKED = [Request(0.5 * k, 100, 20) for k in range(2000)]


@pytest.fixture
def server() -> OneByOne:
    return OneByOne(ASKED)


@pytest.fixture
def side(server: OneByOne) -> Side:
    return attach(server, "server", "one by one")


class TestActuator(SettableContract):
    """It keeps the contract of every actuator."""


class TestMeter(MeterContract):
    origin = Origin.SIMULATED
    """Its meter keeps the contract of every meter."""

    @pytest.fixture
    def later(self, server: OneByOne) -> Later:
        return lambda: server.sleep(30.0)


def test_it_is_played_a_trace_and_measured() -> None:
    fast, slow = (
        play(opener("tests.extend.server:open_server"), ASKED, Fixed(setting), 0, 600.0)
        for setting in ({"gpu.clock_mhz": 1200}, {"gpu.clock_mhz": 600})
    )
    assert fast.ttft_p99_s == pytest.approx(0.1)
    assert slow.ttft_p99_s == pytest.approx(0.2)
    assert fast.watts == pytest.approx(86.0, rel=0.01)
    assert slow.watts == pytest.approx(64.4, rel=0.01)


def test_it_offers_the_signals_that_plans_can_follow(server: OneByOne, side: Side) -> None:
    live = Target((side,)).signals["arrival_rate_per_s"]
    server.sleep(10.0)
    before = live.read().integral
    server.sleep(100.0)
    after = live.read().integral
    assert before is not None and after is not None
    assert (after - before) / 100.0 == pytest.approx(2.0, rel=0.02)
