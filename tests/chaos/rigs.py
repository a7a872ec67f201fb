"""An agent whose device is behind the actuator's socket, and its orders."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from agents.actuator_client.client import RemoteKnobs, open_remote
from agents.target.target import Target
from tests.chaos.theatre import GPU, HELD, TRIED, TRIED_NEXT, Theatre
from tests.fakes import Rig, side_of
from tests.orders import assignment, hold_order
from tuner.core import Phase, Plan, Role
from tuner.wire import Assignment, HoldOrder, Release

TRIAL = assignment(TRIED, {"gpu.clock_mhz": 1410, "gpu.power_limit_w": 400})
Order = Assignment | HoldOrder | Release
ORDERS: tuple[Order, ...] = (
    TRIAL,
    hold_order(Plan.single(HELD), TRIAL.baseline, observe_s=600.0),
    TRIAL.model_copy(update={"trial": 2, "token": 2, "setting": TRIED_NEXT}),
    TRIAL.model_copy(
        update={"trial": 3, "token": 3, "setting": TRIAL.baseline, "phase": Phase.HOLDING}
    ),
    Release(why="the study is over"),
)


@dataclass
class RemoteRig(Rig):
    """An agent whose device is behind the actuator's socket."""

    remote: RemoteKnobs | None = None

    @property
    def target(self) -> Target:
        assert self.remote is not None
        space = self.remote.space
        return Target((side_of("fake", self.remote, space, self.meter, *self.listed),))


@dataclass(frozen=True)
class TurnedClock:
    """The clock of the stage's actuator."""

    theatre: Theatre

    def monotonic(self) -> float:
        return time.monotonic() + self.theatre.clock.shift_s

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def open_rig(folder: Path, theatre: Theatre) -> RemoteRig:
    folder.mkdir(exist_ok=True)
    roles = {"gpu.power_limit_w": Role.POWER_LIMIT}
    remote = open_remote(Path(theatre.config.socket), GPU, TurnedClock(theatre), roles=roles)
    return RemoteRig(folder, workload=False, remote=remote)
