"""kill -9 of the agent between every two steps: the trial ends at once, the hold after its grace."""

from __future__ import annotations

import math
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from agents.agent.loop import DeviceAgent
from tests.chaos.points import Points, count_files, count_sockets, fork
from tests.chaos.rigs import ORDERS, TRIAL, Order, open_rig
from tests.chaos.theatre import FACTORY, HELD, READ, Client, Theatre
from tests.orders import hold_order
from tests.processes import until
from tuner.core import Level, Plan, Row

pytestmark = pytest.mark.timeout(1200)  # a process or more for each point
Count = Callable[[str, int, int], None]


def work(
    folder: Path, theatre: Theatre, points: Points, orders: Sequence[Order] = ORDERS
) -> DeviceAgent:
    """Run an agent that is killed at the chosen point; return it if it is not."""
    points.adopt()
    count_sockets(points)
    count_files(points)
    rig = open_rig(folder, theatre)
    agent = rig.agent()
    agent.begin()
    for order in orders:
        rig.tuner.orders.append(order)
        assert rig.remote is not None
        rig.remote.beat()
        agent.step()
    return agent


def seen(client: Client) -> Mapping[str, object]:
    return client.ask(READ)


@pytest.mark.promise(
    "an agent dies during a trial",
    "the device is restored at once (with the actuator) or at the agent's next start;"
    " the same trial is repeated",
)
def test_an_agent_killed_anywhere_leaves_the_next_lower_level(
    theatre: Theatre, tmp_path: Path, count: Count
) -> None:
    dry = Points()
    agent = fork(lambda: work(tmp_path / "dry", theatre, dry))
    assert os.waitpid(agent, 0)[1] == 0
    assert theatre.values == FACTORY
    wrong: list[str] = []
    levels: list[str] = []
    for at, label in enumerate(dry.labels, 1):
        folder = tmp_path / f"agent-{at}"
        agent = fork(lambda: work(folder, theatre, Points(at)))  # noqa: B023
        assert os.waitpid(agent, 0)[1] == signal.SIGKILL
        level, problem = left_behind(theatre)
        levels.append(level)
        problem = problem or restarted(folder, theatre)
        if problem:
            wrong.append(f"killed before {at} ({label}): {problem}")
    count("agent", len(dry.labels), len(wrong))
    assert not wrong
    assert min(levels.count(level) for level in ("hold", "original")) > 5


@pytest.mark.promise("the baseline drifts while another setting is held")
def test_the_agent_killed_anywhere_in_a_control_window_is_held_or_original_and_holds_again(
    theatre: Theatre, tmp_path: Path, count: Count
) -> None:
    reached: list[list[str]] = []
    for done in (3, 4):
        dry = Points()
        os.waitpid(fork(lambda: work(tmp_path / f"dry-{done}", theatre, dry, ORDERS[:done])), 0)  # noqa: B023
        left_behind(theatre)
        reached.append(dry.labels)
    before, after = reached
    assert after[: len(before)] == before
    wrong: list[str] = []
    for at, label in enumerate(after[len(before) :], len(before) + 1):
        folder = tmp_path / f"agent-{at}"
        agent = fork(lambda: work(folder, theatre, Points(at), ORDERS[:4]))  # noqa: B023
        assert os.waitpid(agent, 0)[1] == signal.SIGKILL
        problem = left_behind(theatre)[1] or restarted(folder, theatre, holds=True)
        if problem:
            wrong.append(f"killed before {at} ({label}): {problem}")
    count("agent in a control window", len(after) - len(before), len(wrong))
    assert len(after) - len(before) > 5
    assert not wrong


@pytest.mark.parametrize("done", [1, 2, 3, 4])
def test_the_agent_killed_anywhere_in_its_next_start_leaves_so_too(
    done: int, theatre: Theatre, tmp_path: Path, count: Count
) -> None:
    """Kill the agent in a trial, in a hold, and in a trial and a control window over a hold."""
    start = tmp_path / "start"

    def die() -> None:
        work(start, theatre, Points(-1), ORDERS[:done])
        os.kill(os.getpid(), signal.SIGKILL)

    def begin(folder: Path, points: Points) -> None:
        shutil.copytree(start, folder)
        if done == 1:
            rig = open_rig(folder, theatre)
            entry = {"spec": "fake"}
            rig.journal.record("fake@host", rig.target, Level.TRIAL, rig.boot, entry)
        work(folder, theatre, points, ())

    os.waitpid(fork(die), 0)
    left_behind(theatre)
    dry = Points()
    os.waitpid(fork(lambda: begin(tmp_path / "dry", dry)), 0)
    left_behind(theatre)
    wrong: list[str] = []
    for at, label in enumerate(dry.labels, 1):
        folder = tmp_path / f"agent-{at}"
        agent = fork(lambda: begin(folder, Points(at)))  # noqa: B023
        assert os.waitpid(agent, 0)[1] == signal.SIGKILL
        problem = left_behind(theatre)[1] or restarted(folder, theatre)
        if problem:
            wrong.append(f"killed before {at} ({label}): {problem}")
    count(f"agent's next start, {done} orders done", len(dry.labels), len(wrong))
    assert dry.labels and not wrong


BUSY = {"gpu.clock_mhz": 1110, "gpu.power_limit_w": 350}
LOWEST_MHZ = 210
BY_LOAD = hold_order(
    Plan((Row(8.0, HELD, at=7.0), Row(math.inf, BUSY)), "arrival_rate_per_s", eager=True),
    TRIAL.baseline,
    observe_s=600.0,
)


def follow(
    folder: Path, theatre: Theatre, points: Points, rows: Sequence[int], parks: int = 0
) -> None:
    """Run an agent that follows a plan by load and is killed at the chosen point.

    It changes rows, then parks the device and ends that again.
    """
    agent = work(folder, theatre, points, [BY_LOAD])
    for row in rows:
        hold = agent._holder.current
        assert hold is not None
        agent._holder.follow(hold, row)
    for _ in range(parks):
        agent._holder.park({"fake": {**BUSY, "gpu.clock_mhz": LOWEST_MHZ}})
        assert theatre.values["gpu.clock_mhz"] == LOWEST_MHZ
        agent._holder.unpark()


@pytest.mark.promise(
    "an agent dies while it changes the row of a plan",
    "the device is at a row of the plan or at its original",
)
def test_the_agent_killed_anywhere_in_a_change_of_row_is_at_a_row_or_original(
    theatre: Theatre, tmp_path: Path, count: Count
) -> None:
    reached: list[list[str]] = []
    for rows in ((0,), (0, 1, 0, 1)):
        dry = Points()
        os.waitpid(fork(lambda: follow(tmp_path / f"dry-{len(rows)}", theatre, dry, rows)), 0)  # noqa: B023
        assert not left_behind(theatre, HELD, BUSY)[1]
        reached.append(dry.labels)
    before, after = map(len, reached)
    wrong: list[str] = []
    for at in range(before + 1, after + 1):
        folder = tmp_path / f"agent-{at}"
        agent = fork(lambda: follow(folder, theatre, Points(at), (0, 1, 0, 1)))  # noqa: B023
        assert os.waitpid(agent, 0)[1] == signal.SIGKILL
        problem = left_behind(theatre, HELD, BUSY)[1] or restarted(folder, theatre, HELD, BUSY)
        if problem:
            wrong.append(f"killed before {at} ({reached[1][at - 1]}): {problem}")
    count("agent in a change of row", after - before, len(wrong))
    assert after - before > 5
    assert not wrong


@pytest.mark.promise(
    "an agent dies while its device is parked", "the device is at its held setting or its original"
)
def test_the_agent_killed_anywhere_in_parking_is_held_or_original(
    theatre: Theatre, tmp_path: Path, count: Count
) -> None:
    reached: list[list[str]] = []
    for parks in (0, 2):
        dry = Points()
        agent = fork(lambda: follow(tmp_path / f"dry-{parks}", theatre, dry, (1,), parks))  # noqa: B023
        assert os.waitpid(agent, 0)[1] == 0
        assert not left_behind(theatre, BUSY)[1]
        reached.append(dry.labels)
    (before, after), killed = map(len, reached), 0
    wrong: list[str] = []
    for at in range(before + 1, after + 1):
        folder = tmp_path / f"agent-{at}"
        agent = fork(lambda: follow(folder, theatre, Points(at), (1,), 2))  # noqa: B023
        killed += os.waitpid(agent, 0)[1] == signal.SIGKILL
        problem = left_behind(theatre, BUSY)[1] or restarted(folder, theatre, BUSY)
        if problem:
            wrong.append(f"killed before {at} ({reached[1][at - 1]}): {problem}")
    count("agent that parks its device", killed, len(wrong))
    assert killed > 20  # a renewal of the lease may add boundaries to one run
    assert not wrong


def left_behind(theatre: Theatre, *held: Mapping[str, int]) -> tuple[str, str]:
    """Return the level of a killed agent's device, and what is wrong with it.

    `held` are the settings at which it may be held; default: the only one.
    """
    watcher = Client(theatre.config.socket, theatre.clock)
    until(lambda: seen(watcher)["holder"] == "", "the lease outlives its agent")
    level = str(seen(watcher)["level"])
    wanted = {"hold": _whole(held or (HELD,)), "original": [FACTORY]}[level]
    problem = "" if theatre.values in wanted else f"at level {level} it is at {theatre.values}"
    theatre.clock.shift_s += 21.0
    with suppress(AssertionError):
        until(lambda: seen(watcher)["level"] == "original", "the hold outlives its grace")
    watcher.close()
    return level, problem or theatre.check_original()


def _whole(held: Sequence[Mapping[str, int]]) -> list[dict[str, int | None]]:
    return [{**FACTORY, **each} for each in held]


def restarted(folder: Path, theatre: Theatre, *held: Mapping[str, int], holds: bool = False) -> str:
    """Start an agent on the killed one's folder; it resumes the hold, or has none.

    Having none is wrong if it must hold (`holds`).
    """
    rig = open_rig(folder, theatre)
    agent = rig.agent()
    agent.begin()
    hold = agent._holder.current
    wanted = _whole(held or (HELD,)) if hold is not None else [FACTORY]
    problem = "" if theatre.values in wanted else f"begun again, it is at {theatre.values}"
    if holds and hold is None:
        problem = "begun again, it holds nothing"
    assert rig.remote is not None
    rig.remote.release()
    rig.remote.close()
    return problem or theatre.check_original()
