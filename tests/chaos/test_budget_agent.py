"""An agent of a member of a power budget, with its actuator in a separate process; also killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agents.agent.loop import DeviceAgent
from tests.chaos.budgets import AT_FLOOR, FLOOR, LEAVE, LIMIT
from tests.chaos.points import Points, count_files, count_sockets, fork, reap_all
from tests.chaos.rigs import ORDERS, TRIAL, RemoteRig, open_rig
from tests.chaos.theatre import FACTORY, HELD, READ, Client, Theatre
from tests.fakes import refusal, steady
from tests.processes import until
from tests.unit.tuner.study.worlds import World
from tuner.config import TunerConfig
from tuner.core import Limit, TrialState
from tuner.service.energy_price import EnergyPrice
from tuner.service.operations import Operations
from tuner.wire import (
    BudgetDraft,
    BudgetOrder,
    BudgetReport,
    CapOrder,
    Change,
    GridDraft,
    HoldOrder,
)

pytestmark = pytest.mark.timeout(1200)  # a process or more for each point
Count = Callable[[str, int, int], None]
HOLD = ORDERS[1]
RELEASE = BudgetOrder(kind="release", group="rack", revision=9)


def caps(revision: int, *steps: tuple[float, float]) -> BudgetOrder:
    """Return an order of caps: seconds from now, and watts."""
    whole = tuple(CapOrder(in_s=s, cap_w=w, at_most={LIMIT: w}) for s, w in steps)
    return BudgetOrder(kind="caps", group="rack", revision=revision, steps=whole)


@pytest.fixture
def theatre(tmp_path: Path) -> Iterator[Theatre]:
    theatre = Theatre(tmp_path / "t", floor=FLOOR)
    actuator = theatre.start(theatre.clock, deadly=False)
    yield theatre
    os.kill(actuator, signal.SIGKILL)
    reap_all()


@dataclass
class Host:
    """An agent and its hardware."""

    theatre: Theatre
    folder: Path
    rig: RemoteRig = field(init=False)
    agent: DeviceAgent = field(init=False)

    def __post_init__(self) -> None:
        self.rig = open_rig(self.folder, self.theatre)
        self.agent = self.rig.agent()
        self.agent.begin()

    def told(self, order: BudgetOrder) -> Mapping[str, Any]:
        """Let the tuner answer with an order; return the agent's next report."""
        self.rig.tuner.budgets.append(order)
        self.agent.budget.exchange()
        return self.reports()

    def reports(self) -> Mapping[str, Any]:
        self.agent.budget.exchange()
        return self.rig.tuner.told("/budget")[-1]

    def works(self, order: Any) -> None:  # noqa: ANN401
        self.rig.tuner.orders.append(order)
        self.agent.step()

    def tried(self, order: Any) -> Mapping[str, Any]:  # noqa: ANN401
        self.works(order)
        self.rig.tuner.orders.clear()
        self.agent.step()
        outcome: Mapping[str, Any] = self.rig.tuner.told("/trials/report")[-1]["outcome"]
        return outcome

    @property
    def limit(self) -> int:
        limit: int = self.theatre.values[LIMIT]
        return limit

    def close(self) -> None:
        assert self.rig.remote is not None
        self.rig.remote.close()


@pytest.fixture
def host(theatre: Theatre, tmp_path: Path) -> Iterator[Host]:
    host = Host(theatre, tmp_path / "agent")
    yield host
    host.close()


def test_a_member_at_its_original_within_its_caps_is_marked(host: Host) -> None:
    assert host.reports()["knobs"] == [
        {"name": LIMIT, "floor": 150.0, "floor_w": 150.0, "default_w": 400.0, "default": 400.0}
    ]
    assert host.rig.tuner.told("/budget")[-1]["group"] == ""
    report = host.told(caps(1, (0.0, 305.0)))
    assert (report["group"], report["revision"]) == ("rack", 1)
    assert (report["at_most"], report["most_w"]) == ({LIMIT: 305.0}, 305.0)
    assert host.theatre.values == {**FACTORY, LIMIT: 300}
    host.told(caps(2, (0.0, 200.0)))
    assert host.limit == 200
    host.told(caps(3, (0.0, 350.0)))
    assert host.limit == 350
    report = host.told(RELEASE)
    assert host.theatre.values == FACTORY
    assert (report["group"], report["at_most"]) == ("", {})


def test_a_hold_stays_within_its_caps_and_rises_with_them(host: Host) -> None:
    host.told(caps(1, (0.0, 350.0)))
    host.works(HOLD)
    assert host.theatre.values == {**FACTORY, **HELD}
    host.told(caps(2, (0.0, 200.0)))
    assert host.theatre.values == {**FACTORY, **HELD, LIMIT: 200}
    host.rig.time.sleep(700.0)
    host.agent.step()
    host.agent.step()
    held = host.rig.tuner.told("/holds/report")
    assert held[-1]["setting"][LIMIT] == 200
    assert not held[-1]["ended"]
    host.told(caps(3, (0.0, 350.0)))
    assert host.theatre.values == {**FACTORY, **HELD}


def test_a_limit_broken_under_a_cap_does_not_end_the_hold(host: Host) -> None:
    assert isinstance(HOLD, HoldOrder)
    host.told(caps(1, (0.0, 200.0)))
    limits = ((Limit("energy_j", "<=", 0.001),),)
    host.works(HOLD.model_copy(update={"limits": limits, "valid_for_s": 36000.0}))
    for _ in range(5):
        host.rig.time.sleep(700.0)
        host.agent.step()
    assert host.agent.broken_windows == 0
    assert host.limit == 200


def test_a_trial_above_the_cap_is_refused_by_name(host: Host) -> None:
    host.told(caps(1, (0.0, 200.0)))
    outcome = host.tried(TRIAL)
    assert outcome["state"] == TrialState.CONTAMINATED
    assert LIMIT in outcome["reason"] and "200" in outcome["reason"]
    assert host.theatre.values[LIMIT] <= 200


def test_a_baseline_measured_at_the_original_within_the_cap_is_marked(host: Host) -> None:
    host.told(caps(1, (0.0, 300.0)))
    outcome = host.tried(TRIAL.model_copy(update={"setting": TRIAL.baseline}))
    assert outcome["state"] == TrialState.COMPLETED
    assert "300" in outcome["measurement"]["sources"]["power cap"]


def test_a_cap_that_falls_in_a_trial_spoils_it_at_once(host: Host) -> None:
    host.told(caps(1, (0.0, 300.0)))
    calm, left = steady(), [3]

    def shows(began: float, now: float) -> Mapping[str, Any]:
        left[0] -= 1
        if left[0] == 0:
            host.told(caps(2, (0.0, 200.0)))
            assert host.limit == 200
        return calm(began, now)

    host.rig.shows = shows
    outcome = host.tried(TRIAL)
    assert outcome["state"] == TrialState.CONTAMINATED
    assert left[0] > -3


def test_a_member_by_clock_that_draws_more_goes_to_its_floor_and_reports_it(tmp_path: Path) -> None:
    clock = "gpu.clock_mhz"
    theatre = Theatre(tmp_path / "t", floor={clock: 630})
    actuator = theatre.start(theatre.clock, deadly=False)
    host = Host(theatre, tmp_path / "agent")
    order = CapOrder(in_s=0.0, cap_w=110.0, at_most={clock: 870.0})
    used_j, high_w = [0.0], [100.0]
    host.rig.shows = lambda began, now: {"energy_j": used_j[0]}

    def watched(seconds: int) -> None:
        for _ in range(seconds):
            used_j[0] += high_w[0] if theatre.values[clock] == 870 else 90.0
            host.rig.time.sleep(1.0)
            host.agent.budget.watch()
            host.agent.budget.tick()

    try:
        assert host.reports()["knobs"][0]["floor_w"] is None
        host.told(BudgetOrder(kind="caps", group="rack", revision=1, steps=(order,)))
        watched(6)
        assert theatre.values[clock] == 870
        high_w[0] = 130.0
        watched(6)
        assert theatre.values[clock] == 630
        report = host.reports()
        assert 110.0 < report["above_w"] <= 130.0
        assert (report["above_at"], report["at_most"]) == ({clock: 870.0}, {clock: 630.0})
        higher = order.model_copy(update={"cap_w": 143.0})
        report = host.told(BudgetOrder(kind="caps", group="rack", revision=2, steps=(higher,)))
        assert report["above_w"] == 0.0
        watched(6)
        assert theatre.values[clock] == 870
        assert host.rig.meter.open == 1
        host.told(RELEASE)
        watched(1)
        assert theatre.values == FACTORY
        assert host.rig.meter.open == 0
    finally:
        host.close()
        os.kill(actuator, signal.SIGKILL)
        reap_all()


def test_steps_known_ahead_happen_without_the_tuner(host: Host) -> None:
    host.told(caps(1, (0.0, 350.0), (8.0, 200.0), (16.0, 350.0)))
    host.works(HOLD)
    host.rig.tuner.broken = lambda _: refusal(503, "unavailable")
    theatre = host.theatre
    theatre.clock.shift_s += 8.5
    until(lambda: host.limit == 200, "the actuator does not lower by itself")
    host.agent.budget.tick()
    assert host.limit == 200
    theatre.clock.shift_s += 8.5
    host.agent.budget.tick()
    assert host.theatre.values == {**FACTORY, **HELD}


def test_an_agent_that_comes_back_knows_its_caps(host: Host, tmp_path: Path) -> None:
    host.told(caps(1, (0.0, 200.0)))
    host.works(HOLD)
    host.close()
    again = Host(host.theatre, tmp_path / "agent")
    assert again.limit == 200
    report = again.reports()
    assert (report["group"], report["revision"], report["most_w"]) == ("rack", 1, 200.0)
    assert again.limit == 200
    again.close()


def test_a_groups_watts_reach_the_hardware_and_are_given_back(host: Host) -> None:
    """The tuner's division of watts at one end, and the actuator's hardware at the other."""
    world = World()
    operations = Operations(world.loop, EnergyPrice.of(TunerConfig()))
    world.loop.register(host.agent.device)
    away = [False]

    def answer(request: httpx2.Request) -> httpx2.Response | None:
        if away[0] or not request.url.path.endswith("/budget"):
            return refusal(503, "unavailable")
        report = BudgetReport.model_validate_json(request.content)
        text = operations.divider.answer(host.agent.device.id, report).model_dump_json()
        return httpx2.Response(200, content=text)

    def pass_s(seconds: int) -> None:
        for _ in range(0, seconds, 2):
            world.time.sleep(2.0)
            host.theatre.clock.shift_s += 2.0
            operations.divider.divide()
            host.agent.budget.exchange()

    def event(after_s: float, watts: float) -> None:
        at = world.time.now() + timedelta(seconds=after_s)
        until_s = at + timedelta(seconds=60.0)
        draft = {"effective_at": at, "expires_at": until_s, "watts": watts}
        operations.grid_event(GridDraft.model_validate(draft))

    host.rig.tuner.broken = answer
    host.agent.budget.exchange()
    operations.set_budget(
        "rack", BudgetDraft.model_validate({"select": {"id": ("fake*",)}, "watts": 300.0})
    )
    pass_s(4)
    assert host.limit == 300
    event(0.0, 205.0)
    pass_s(4)
    assert host.limit == 200
    pass_s(80)
    assert host.limit == 300
    event(10.0, 160.0)
    pass_s(4)
    assert host.limit == 300
    away[0] = True
    host.theatre.clock.shift_s += (
        8.0  # less than the agent's grace, after which the floor is in force
    )
    until(lambda: host.limit == 160, "the step does not happen without the tuner")
    away[0] = False
    world.time.sleep(8.0)
    operations.release_budget("rack", Change())
    pass_s(4)
    assert host.theatre.values == FACTORY


def work(folder: Path, theatre: Theatre, points: Points) -> None:
    """Run a member's agent that is killed at the chosen point."""
    points.adopt()
    count_sockets(points)
    count_files(points)
    host = Host(theatre, folder)
    for budget, order in (
        (caps(1, (0.0, 350.0)), HOLD),
        (caps(2, (0.0, 200.0)), TRIAL.model_copy(update={"setting": {**HELD, LIMIT: 180}})),
        (caps(3, (0.0, 350.0)), ORDERS[4]),
    ):
        host.told(budget)
        host.works(order)
        host.agent.budget.tick()
    host.told(RELEASE)


@pytest.mark.promise(
    "the agent of a member of a power budget dies",
    "its device is never above the greater of its floor and its current cap, and at its floor after the "
    "agent's grace",
)
def test_the_agent_of_a_member_killed_anywhere_leaves_no_more_than_its_cap(
    theatre: Theatre, tmp_path: Path, count: Count
) -> None:
    dry = Points()
    agent = fork(lambda: work(tmp_path / "dry", theatre, dry))
    assert os.waitpid(agent, 0)[1] == 0
    assert theatre.values == FACTORY
    wrong: list[str] = []
    for at, label in enumerate(dry.labels, 1):
        folder = tmp_path / f"agent-{at}"
        agent = fork(lambda: work(folder, theatre, Points(at)))  # noqa: B023
        assert os.waitpid(agent, 0)[1] == signal.SIGKILL
        problem = left_behind(theatre, folder)
        if problem:
            wrong.append(f"killed before {at} ({label}): {problem}")
    count("budget: agent", len(dry.labels), len(wrong))
    assert dry.labels and not wrong


def left_behind(theatre: Theatre, folder: Path) -> str:
    """Return what is wrong after an agent was killed: after its grace, and once it is back."""
    watcher = Client(theatre.config.socket, theatre.clock)
    until(lambda: watcher.ask(READ)["holder"] == "", "the lease outlives its agent")
    budget = watcher.ask(READ)["budget"]
    most = budget["at_most"].get(LIMIT, FACTORY[LIMIT])
    limit = theatre.values[LIMIT]
    problem = f"at {limit} W, the cap is {most} W" if limit > most else ""
    theatre.clock.shift_s += 21.0
    until(lambda: watcher.ask(READ)["level"] == "original", "the hold outlives its grace")
    wanted = AT_FLOOR if budget["group"] else FACTORY
    if theatre.values != wanted:
        problem = problem or f"after the grace at {theatre.values}"
    again = Host(theatre, folder)
    again.agent.budget.exchange()
    if budget["group"] and again.limit > most:
        problem = problem or f"begun again, at {again.limit} W, the cap is {most} W"
    again.told(RELEASE)
    assert again.rig.remote is not None
    again.rig.remote.release()
    again.close()
    watcher.ask(LEAVE)
    watcher.close()
    return problem or theatre.check_original()
