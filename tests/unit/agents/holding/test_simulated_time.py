"""A held simulated server: its time advances with the host's, and the plan follows its load."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest

from agents.holding.holder import Holder
from agents.holding.journal import Journal
from agents.holding.plan_runner import POLLED_TICK_S, TICK_S, PlanRunner
from agents.host.machine import Host
from agents.target.target import Target
from jouletune_bench.llm import LlmServer, attach, board_of
from jouletune_bench.llm.requests import poisson
from tests.builders import Time
from tests.unit.agents.holding.orders import order
from tuner.core import Plan, Row

RATE = "arrival_rate_per_s"
SLOW, FAST = {"gpu.clock_mhz": 1200}, {"gpu.clock_mhz": 1980}
PLAN = Plan((Row(6.0, SLOW, 0.1), Row(math.inf, FAST)), RATE, eager=True)


class Ticks(threading.Event):
    """Stops a runner after so many ticks."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def wait(self, timeout: float | None = None) -> bool:
        self.left -= 1
        return self.left < 0


class Held:
    """A simulated server at a given rate of requests, with the agent's holder and runner."""

    def __init__(self, folder: Path, rate: float) -> None:
        self.server = LlmServer(board_of("h100-llm"), poisson(rate, 1), seed=0)
        target, time = Target((attach(self.server, "server", "board"),)), Time()
        self.holder = Holder(
            "server",
            target,
            folder=folder / "holds",
            journal=Journal(folder / "journal"),
            attached={"spec": "server"},
            host=Host("host", "boot", 1),
            clock=time,
            now=time.now,
        )
        self.runner = PlanRunner("server", target, self.holder, self.server)

    def take(self) -> None:
        metrics = ("energy_j",)
        self.holder.take(order(plan=PLAN, baseline=FAST, limits=((), ()), metrics=metrics))


@pytest.mark.parametrize(("rate", "setting"), [(3.0, SLOW), (12.0, FAST)])
def test_a_held_server_follows_its_plan_without_a_measurement(
    tmp_path: Path, rate: float, setting: object
) -> None:
    scene = Held(tmp_path, rate)
    scene.take()
    scene.runner.run(Ticks(300))
    assert 300 * POLLED_TICK_S <= scene.server.monotonic() <= 300 * TICK_S
    assert scene.server.read() == setting
    assert scene.runner.context[RATE] == pytest.approx(rate, rel=0.5)


def test_only_a_window_passes_the_time_while_there_is_one(tmp_path: Path) -> None:
    scene = Held(tmp_path, 3.0)
    for lend in (False, True):
        with scene.holder.set_aside(lend=lend):
            scene.runner.run(Ticks(20))
    assert scene.server.monotonic() == 0.0


def test_the_load_continues_without_a_hold(tmp_path: Path) -> None:
    scene = Held(tmp_path, 3.0)
    scene.runner.run(Ticks(60))
    assert scene.runner.context[RATE] == pytest.approx(3.0, rel=0.5)


def test_two_threads_may_pass_time_at_once(tmp_path: Path) -> None:
    rate, each_s, steps = 20.0, 2.0, 200
    server = LlmServer(board_of("h100-llm"), poisson(rate, 1), seed=0)

    def sleep() -> None:
        for _ in range(steps):
            server.sleep(each_s)

    threads = [threading.Thread(target=sleep) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen, served = server.counters(), server.take()
    assert seen.now_s == pytest.approx(2 * steps * each_s)
    assert seen.arrived == pytest.approx(rate * seen.now_s, rel=0.05)
    assert len(served) == seen.served
