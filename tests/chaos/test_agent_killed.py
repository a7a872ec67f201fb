"""kill -9 of the agent between every two steps: the trial ends at once, the hold after its grace."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from agents.attached import Attached
from agents.devices.remote import RemoteKnobs, open_remote
from agents.host import HostClock
from agents.pair import Pair
from tests.chaos.points import Points, count_files, count_sockets, fork, reap_all
from tests.chaos.theatre import FACTORY, GPU, HELD, READ, TRIED, TRIED_NEXT, Client, Theatre, until
from tests.fakes import Rig
from tuner.core import Metric, Origin, Phase, Plan
from tuner.wire import Assignment, HoldOrder, Release

Count = Callable[[str, int, int], None]

TRIAL = Assignment(
    study="s1",
    revision=1,
    trial=1,
    attempt=1,
    token=1,
    lease_s=30.0,
    phase=Phase.TUNING,
    setting=TRIED,
    baseline={"gpu.clock_mhz": 1410, "gpu.power_limit_w": 400},
    metrics=("energy_j",),
    window_s=10.0,
    max_window_s=10.0,
)
ORDERS = (
    TRIAL,
    HoldOrder(
        study="s1",
        revision=1,
        plan=Plan.single(HELD),
        baseline=TRIAL.baseline,
        metrics=("energy_j",),
        valid_for_s=3600.0,
        observe_s=600.0,
        window_s=10.0,
    ),
    TRIAL.model_copy(update={"trial": 2, "token": 2, "setting": TRIED_NEXT}),
    Release(why="the study is over"),
)


@dataclass
class RemoteRig(Rig):
    """An agent whose device is behind the actuator's socket."""

    remote: RemoteKnobs | None = None

    @property
    def pair(self) -> Pair:
        assert self.remote is not None
        device = Attached(
            name="fake",
            kind="fake",
            board=self.remote.board,
            version=self.remote.driver,
            space=self.remote.space,
            metrics=tuple(Metric(name, Origin.SIMULATED) for name in self.listed),
            actuator=self.remote,
            meter=self.meter,
            tenure=self.remote,
        )
        return Pair(device)


def open_rig(folder: Path, theatre: Theatre) -> RemoteRig:
    folder.mkdir(exist_ok=True)
    remote = open_remote(Path(theatre.config.socket), GPU, HostClock())
    return RemoteRig(folder, workload=False, remote=remote)


def work(folder: Path, theatre: Theatre, points: Points) -> None:
    """Be an agent that is killed at the chosen point."""
    points.adopt()
    count_sockets(points)
    count_files(points)
    rig = open_rig(folder, theatre)
    agent = rig.agent()
    agent.begin()
    for order in ORDERS:
        rig.tuner.orders.append(order)
        assert rig.remote is not None
        rig.remote.beat()
        agent.step()


@pytest.fixture
def theatre(tmp_path: Path) -> Iterator[Theatre]:
    theatre = Theatre(tmp_path / "t")
    actuator = theatre.start(theatre.clock, deadly=False)
    yield theatre
    os.kill(actuator, signal.SIGKILL)
    reap_all()


def seen(client: Client) -> Mapping[str, object]:
    return client.ask(READ)


def test_the_agent_killed_anywhere_leaves_what_the_level_below_says(
    theatre: Theatre, tmp_path: Path, count: Count
) -> None:
    dry = Points()
    agent = fork(lambda: work(tmp_path / "dry", theatre, dry))
    assert os.waitpid(agent, 0)[1] == 0
    assert theatre.values == FACTORY
    watcher = Client(theatre.config.socket, theatre.clock)
    wrong: list[str] = []
    levels: dict[str, int] = {}
    for at, label in enumerate(dry.labels, 1):
        folder = tmp_path / f"agent-{at}"
        agent = fork(lambda: work(folder, theatre, Points(at)))  # noqa: B023
        assert os.waitpid(agent, 0)[1] == signal.SIGKILL
        problem = ""
        try:
            until(lambda: seen(watcher)["holder"] == "", "the lease outlives its agent")
            level = str(seen(watcher)["level"])
            levels[level] = levels.get(level, 0) + 1
            wanted = {"hold": {**FACTORY, **HELD}, "original": FACTORY}[level]
            if theatre.values != wanted:
                problem = f"at level {level} it is at {theatre.values}"
            theatre.clock.shift_s += 21.0
            with suppress(AssertionError):
                until(lambda: seen(watcher)["level"] == "original", "the hold outlives its grace")
            problem = problem or theatre.check_original()
            problem = problem or restarted(folder, theatre, watcher)
        finally:
            if problem:
                wrong.append(f"killed before {at} ({label}): {problem}")
    watcher.close()
    count("agent", len(dry.labels), len(wrong))
    assert not wrong
    assert min(levels.values()) > 5, levels


def restarted(folder: Path, theatre: Theatre, watcher: Client) -> str:
    """Start the agent again on what the killed one left; it takes up its hold, or none."""
    rig = open_rig(folder, theatre)
    agent = rig.agent()
    agent.begin()
    hold = agent._holder.current
    wanted = {**FACTORY, **HELD} if hold is not None else FACTORY
    problem = "" if theatre.values == wanted else f"begun again, it is at {theatre.values}"
    assert rig.remote is not None
    rig.remote.release()
    rig.remote.close()
    return problem or theatre.check_original()
