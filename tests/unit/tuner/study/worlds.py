"""A tuner's loop over a memory store, and devices that answer as a surface says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from db import Store
from tests.builders import Descend, Time, applied, completed, device, study
from tests.stores import memory_store
from tuner.core import Level, Outcome, Phase, Setting, Study
from tuner.study.changes import Telemetry
from tuner.study.loop import Loop
from tuner.wire import (
    Assignment,
    HoldOrder,
    Poll,
    TrialReport,
)


@dataclass
class World:
    """A tuner's loop over a memory store, and devices that answer as a surface says."""

    time: Time = field(default_factory=Time)
    store: Store = field(default_factory=memory_store)
    telemetry: Telemetry = field(default_factory=Telemetry)

    def __post_init__(self) -> None:
        self.loop = self.restarted()

    def restarted(self) -> Loop:
        """Return a new loop, like that of another process."""
        return Loop(
            self.store,
            lambda _: Descend(),
            self.time.now,
            monotonic=self.time.monotonic,
            telemetry=self.telemetry,
        )

    def wait(self, seconds: float) -> int:
        """Advance the time and reap like the schedule; return the number of abandoned trials."""
        ended = 0
        for _ in range(math.ceil(seconds / 10.0)):
            self.time.sleep(10.0)
            ended += self.loop.trial_reports.reap()
        return ended

    @property
    def patience_s(self) -> float:
        """A little more than the time for which a trial waits for its agent, in seconds."""
        return self.loop.lease_s + self.loop.abandon_s + 20.0

    def start(self, *names: str, **changes: Any) -> Study:  # noqa: ANN401
        for name in names or ("sim",):
            self.loop.register(device(name))
        fresh = study(Phase.BASELINE, devices=names or ("sim",), **changes)
        self.store.studies.add(fresh, "test", "created")
        return fresh

    def ask(
        self, name: str = "sim", agent: str = "host/1", holding: str = "", unable: str = ""
    ) -> object:
        poll = Poll(agent=agent, applied=applied(name), holding=holding, unable=unable)
        return self.loop.order(name, poll)

    def ask_holding(self, hold: HoldOrder, agent: str = "host/1", unable: str = "") -> object:
        """Poll like an agent with a hold in force."""
        in_force = applied("sim", Level.HOLD, hold.plan.rows[-1].setting)
        poll = Poll(
            agent=agent, applied=in_force, holding=hold.study, revision=hold.revision, unable=unable
        )
        return self.loop.order("sim", poll)

    def assigned(self, name: str = "sim", agent: str = "host/1") -> Assignment:
        order = self.ask(name, agent)
        assert isinstance(order, Assignment), order
        return order

    def report(self, order: Assignment, outcome: Outcome, name: str = "sim") -> str:
        return self.loop.trial_reports.record(
            TrialReport.of(order, device=name, outcome=outcome)
        ).result

    def step(self, surface: Callable[[Setting], Outcome], *names: str) -> dict[str, object]:
        """Let every device poll, and run and report its trial; return the orders."""
        orders = {name: self.ask(name) for name in names}
        for name, order in orders.items():
            if isinstance(order, Assignment):
                self.report(order, surface(order.setting), name)
        return orders

    def run(self, surface: Callable[[Setting], Outcome], most: int = 40) -> HoldOrder:
        for _ in range(most):
            order = self.ask()
            if isinstance(order, HoldOrder):
                return order
            assert isinstance(order, Assignment), order
            assert self.report(order, surface(order.setting)) == "closed"
        raise AssertionError("the study does not come to hold")


def truth(at: Setting) -> Outcome:
    clock = float(at["gpu.clock_mhz"])
    return completed(clock / 100.0, 100.0 + (1000.0 - clock) / 40.0)
