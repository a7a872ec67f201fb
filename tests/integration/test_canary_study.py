"""A study with a canary at a real tuner that is killed repeatedly; its two devices are simulated here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.builders import START, applied, completed, device, setting, window
from tests.integration.stage import Stage, stage
from tuner.core import Level, Setting
from tuner.wire import (
    ORDER,
    Assignment,
    HoldOrder,
    HoldReport,
    Idle,
    Message,
    Poll,
    Registration,
    Release,
    TrialReport,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CANARY, OTHER = "sim@one", "sim@two"
DRAFT: dict[str, Any] = {
    "devices": [CANARY, OTHER],
    "policy": "sobol",
    "constraints": ["latency_p99_ms <= 1.5x baseline"],
    "terms": {"trials": 5, "canary": CANARY, "canary_windows": 2},
}


@dataclass
class Fleet:
    """Two devices that save energy at lower clocks, and poll a tuner as their agents would."""

    played: Stage
    moment: datetime = START
    held: dict[str, HoldOrder] = field(default_factory=dict)
    ever: set[str] = field(default_factory=set)
    """The devices that ever got an order to hold."""

    def tell(self, method: str, path: str, message: Message) -> Any:  # noqa: ANN401
        return self.played.call(method, path, message.model_dump(mode="json"))

    def register(self) -> None:
        for name in (CANARY, OTHER):
            self.tell("PUT", f"/devices/{name}", Registration(device=device(name)))

    def ask(self, name: str) -> Assignment | HoldOrder | Idle | Release:
        hold = self.held.get(name)
        poll = Poll(
            agent=f"{name}/1",
            applied=applied(name, Level.HOLD if hold else Level.ORIGINAL),
            holding=hold.study if hold else "",
            revision=hold.revision if hold else 0,
        )
        order = ORDER.validate_python(self.tell("POST", f"/devices/{name}/next", poll))
        if isinstance(order, HoldOrder):
            self.held[name] = order
            self.ever.add(name)
        elif isinstance(order, Release):
            self.held.pop(name, None)
        elif isinstance(order, Assignment):
            self.report(name, order)
        return order

    def report(self, name: str, order: Assignment) -> None:
        clock = _clock(order.setting)
        report = TrialReport.of(
            order, device=name, outcome=completed(clock / 100.0, 100.0 + (1000.0 - clock) / 40.0)
        )
        self.tell("POST", "/trials/report", report)

    def show(self, energy_j: float) -> None:
        """Report one window of the canary's hold, a minute after the one before."""
        order = self.held[CANARY]
        self.moment += timedelta(minutes=1)
        report = HoldReport.of(
            order,
            device=CANARY,
            setting=order.plan.rows[0].setting,
            measurement=replace(window(energy_j, 100.0), started_at=self.moment),
        )
        self.tell("POST", "/holds/report", report)

    def until_held(self) -> HoldOrder:
        for _ in range(60):
            for name in (CANARY, OTHER):
                self.ask(name)
            if CANARY in self.held:
                return self.held[CANARY]
        raise AssertionError("the canary is to hold nothing")


def _clock(at: Setting) -> float:
    return float(at["gpu.clock_mhz"])


def crash(played: Stage) -> None:
    played.kill("tuner")
    played.start_tuner()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with stage(tmp_path) as played:
        played.start_tuner()
        enrolled = Fleet(played)
        enrolled.register()
        yield enrolled


def begun(fleet: Fleet) -> tuple[str, float]:
    """Play a study until its canary holds; return the study, and the joules at the held setting."""
    study = str(fleet.played.call("POST", "/studies", DRAFT)["id"])
    at = fleet.until_held().plan.rows[0].setting
    assert at != setting(), "there is something to hold"
    return study, _clock(at) / 100.0


@pytest.mark.promise("a study needs approval, or one device goes first")
def test_a_plan_is_held_on_the_rest_when_the_canary_confirms_it_through_every_crash(
    fleet: Fleet,
) -> None:
    study, joules = begun(fleet)
    crash(fleet.played)
    assert fleet.played.phase(study) == "canary"
    assert fleet.ask(CANARY) == fleet.held[CANARY], "the same hold as before"
    answer = fleet.ask(OTHER)
    assert isinstance(answer, Release) and f"canary {CANARY}" in answer.why
    fleet.show(joules)
    crash(fleet.played)
    assert fleet.played.phase(study) == "canary"
    assert OTHER not in fleet.ever
    fleet.show(joules)
    assert fleet.played.phase(study) == "holding"
    crash(fleet.played)
    first, second = fleet.ask(CANARY), fleet.ask(OTHER)
    assert isinstance(first, HoldOrder) and isinstance(second, HoldOrder)
    assert first.plan == second.plan


def test_a_canary_that_contradicts_its_plan_keeps_it_from_the_rest(fleet: Fleet) -> None:
    study, _ = begun(fleet)
    fleet.show(10.0)
    crash(fleet.played)
    fleet.show(10.0)
    view = fleet.played.call("GET", f"/studies/{study}")
    assert (view["phase"], view["plan"]) == ("baseline", None)
    assert view["phase_why"].startswith("the canary contradicts its plan: energy_j 0.0 ± ")
    assert OTHER not in fleet.ever
    assert isinstance(fleet.ask(CANARY), Assignment), "the evidence starts anew"


def test_an_advising_study_holds_on_the_canary_after_approval(fleet: Fleet) -> None:
    terms = {**DRAFT["terms"], "safety": "advise"}
    study = str(fleet.played.call("POST", "/studies", {**DRAFT, "terms": terms})["id"])
    for _ in range(60):
        orders = [fleet.ask(name) for name in (CANARY, OTHER)]
        if all(isinstance(order, Release) for order in orders):
            break
    assert (fleet.played.phase(study), fleet.ever) == ("proposed", set())
    crash(fleet.played)
    assert fleet.played.call("POST", f"/studies/{study}/approve", {})["phase"] == "canary"
    crash(fleet.played)
    assert isinstance(fleet.ask(CANARY), HoldOrder)
    assert isinstance(fleet.ask(OTHER), Release)
    order = fleet.held[CANARY]
    for _ in range(2):
        fleet.show(_clock(order.plan.rows[0].setting) / 100.0)
    assert isinstance(fleet.ask(OTHER), HoldOrder)
