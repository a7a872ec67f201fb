"""A tuner that repeats each order until it is obeyed, and its orders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.fakes import StubTuner
from tests.orders import assignment, hold_order
from tuner.core import Plan
from tuner.wire import Assignment, HoldOrder, Idle, Release

FOUND = {"gpu.clock_mhz": 1000, "batch_size": 1}
HELD = {"gpu.clock_mhz": 800, "batch_size": 2}
TRIAL = assignment({"gpu.clock_mhz": 600, "batch_size": 4}, FOUND)
HOLD = hold_order(Plan.single(HELD), FOUND, valid_for_s=36000.0, observe_s=15.0)
ORDERS = (
    TRIAL,
    HOLD,
    TRIAL.model_copy(update={"trial": 2, "token": 2, "setting": {**HELD, "batch_size": 4}}),
    Release(why="the study is over"),
)


@dataclass
class PatientTuner(StubTuner):
    """Repeats each order until it is obeyed, like a tuner whose answers may be lost."""

    script: tuple[Assignment | HoldOrder | Release, ...] = ORDERS
    given: int = 0
    held_polls: int = 0
    released: bool = False
    reported: set[int] = field(default_factory=set)

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        answered = super().answer(request)
        path, message = self.heard[-1]
        if path == "/v1/trials/report":
            self.reported.add(message["trial"])
        return answered

    @property
    def believed(self) -> bool:
        """Whether the tuner believes that a hold is in force, by the latest report."""
        for path, message in reversed(self.heard):
            if path.endswith("/next"):
                return bool(message["holding"])
        return False

    def _next(self, message: dict[str, Any]) -> httpx2.Response:
        while self.given < len(self.script) and self._obeyed(self.script[self.given], message):
            self.given += 1
        order = self.script[self.given] if self.given < len(self.script) else Idle(why="all done")
        self.released |= isinstance(order, Release)
        self.orders = [order]
        self.time.sleep(min(5.0, message["wait_s"]))
        return super()._next(message)

    def _obeyed(self, order: Assignment | HoldOrder | Release, poll: dict[str, Any]) -> bool:
        if isinstance(order, Assignment):
            return order.trial in self.reported
        if isinstance(order, Release):
            return not poll["holding"] and poll["applied"]["level"] == "original"
        self.held_polls += poll["holding"] == order.study
        return self.held_polls > 4 or bool(self._ends(order))

    def _ends(self, order: HoldOrder) -> list[dict[str, Any]]:
        reports = self.told("/holds/report")
        return [m for m in reports if m["ended"] and m["revision"] == order.revision]
