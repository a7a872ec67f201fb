"""A study that follows the load, on a made-up server under M/D/1 that the world sends load to."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest

from db import Store
from policies.polythrottle.policy import Polythrottle
from tests.builders import Time, applied, device, saved, study
from tests.stores import memory_store
from tests.unit.tuner.bo.served import BY, LIMIT_MS, SPACE, shown, truth
from tuner.core import (
    Level,
    Outcome,
    Phase,
    Plan,
    Row,
    Safety,
    Setting,
    Signal,
    Terms,
    TrialState,
    peak_name,
)
from tuner.presentation.reports import facts
from tuner.service.operations import Operations
from tuner.service.reports import StudyRecord, look
from tuner.service.views import study_view
from tuner.study.follow import REACH
from tuner.study.loop import Loop
from tuner.wire import Assignment, Decision, HoldOrder, HoldReport, Poll, Release, TrialReport


@dataclass
class Served:
    """A server whose load moves, an agent that does as it is told, and the tuner."""

    safety: Safety = Safety.BALANCED
    store: Store = field(default_factory=memory_store)
    time: Time = field(default_factory=Time)
    hold: HoldOrder | None = None
    wanted: list[tuple[float, Setting]] = field(default_factory=list)
    """The load and the applied setting at each poll."""

    def __post_init__(self) -> None:
        self.loop = self.restarted()
        signals = (Signal(BY, "1/s"),)
        self.loop.register(device(space=SPACE, signals=signals))
        fresh = study(
            Phase.BASELINE,
            constraints=(f"latency_p99_ms <= {LIMIT_MS}",),
            space=SPACE,
            signals=signals,
            policy="polythrottle",
            terms=Terms(trials=30, plan_by=BY, safety=self.safety),
        )
        self.store.studies.add(fresh, "test", "created")

    def restarted(self) -> Loop:
        """Return the loop as another process would have it."""
        policies = {"polythrottle": Polythrottle()}
        now, monotonic = self.time.now, self.time.monotonic
        return Loop(self.store, policies.__getitem__, now, monotonic=monotonic)

    def turn(self, load: float) -> None:
        """Let the agent ask once, and do what it is told."""
        self.time.sleep(60.0)
        held = self.hold
        setting = SPACE.default if held is None else _row(held.plan, load)
        self.wanted.append((load, setting))
        at = applied("sim", Level.ORIGINAL if held is None else Level.HOLD, setting)
        poll = Poll(
            agent="host/1",
            applied=replace(at, study=held.study if held else ""),
            holding=held.study if held else "",
            revision=held.revision if held else 0,
            context={BY: load},
        )
        order = self.loop.order("sim", poll)
        if isinstance(order, Assignment):
            assert order.follows == BY and not order.expected
            self.report(order, load)
        elif isinstance(order, HoldOrder):
            self.hold = order
            self.observe(order, load)
        elif isinstance(order, Release):
            self.hold = None

    def report(self, order: Assignment, load: float) -> None:
        seen = replace(shown(order.setting, load), started_at=self.time.now())
        outcome = Outcome(state=TrialState.COMPLETED, measurement=seen)
        report = TrialReport.of(order, device="sim", outcome=outcome)
        assert self.loop.trial_reports.record(report).result == "closed"

    def observe(self, order: HoldOrder, load: float) -> None:
        setting = _row(order.plan, load)
        window = replace(shown(setting, load), started_at=self.time.now())
        self.loop.hold_reports.observe(
            HoldReport.of(order, device="sim", setting=setting, measurement=window)
        )

    def run(self, loads: Iterable[float]) -> None:
        for load in loads:
            self.turn(load)

    @property
    def plan(self) -> Plan:
        assert self.hold is not None
        return self.hold.plan


def _row(plan: Plan, load: float) -> Setting:
    return plan.rows[plan.row({BY: load})].setting


@pytest.mark.slow
def test_one_setting_is_held_up_to_its_measured_load_and_grows_with_the_service() -> None:
    served = Served()
    served.run([15.0, 17.0, 20.0] * 20)
    low, above = served.plan.rows
    assert above.setting == SPACE.default != low.setting and low.below < 30.0
    served.run([40.0] * 120)
    grown, above = served.plan.rows
    assert above.setting == SPACE.default != grown.setting and grown.below > 40.0
    assert truth(grown.setting, 40.0)[1] <= LIMIT_MS
    assert _row(served.plan, 200.0) == SPACE.default
    for load, setting in served.wanted:
        energy_j, p99_ms = truth(setting, load)
        assert p99_ms <= LIMIT_MS and energy_j <= truth(SPACE.default, load)[0]


@pytest.mark.slow
def test_a_report_gives_the_basis_of_the_setting() -> None:
    served = Served()
    served.run([15.0, 17.0, 20.0] * 20)
    stored, trials = served.store.studies.get("s1"), served.store.trials.list("s1")
    report = look(
        served.loop, StudyRecord.read(served.loop, stored), study_view(stored, trials, ""), {}, ""
    ).report
    low, _ = report.rows
    assert low.windows >= 5 and low.saving is not None and low.saving.mean > 0.05
    assert low.metrics["latency_p99_ms"].mean <= LIMIT_MS
    lines = "\n".join(text for name, text in facts(report) if name == "plan")
    assert lines.count("saves") == 1 and "limit 60" in lines
    assert (saved(report.bill).saved_j or 0.0) > 0.0


@pytest.mark.slow
def test_a_tuner_that_is_started_again_at_any_moment_comes_to_the_same_plan() -> None:
    steady, killed = Served(), Served()
    for load in [15.0, 17.0, 20.0] * 20:
        steady.turn(load)
        killed.loop = killed.restarted()
        killed.turn(load)
    assert steady.plan == killed.plan
    assert len(steady.store.trials.list("s1")) == len(killed.store.trials.list("s1"))


@pytest.mark.slow
def test_another_trial_is_approved_up_to_the_load_that_it_met() -> None:
    served = Served(Safety.ADVISE)
    served.run([15.0, 17.0, 20.0] * 20)
    stored, trials = served.store.studies.get("s1"), served.store.trials.list("s1")
    assert stored.proposed is not None and served.hold is None, stored.reason
    others = [t for t in trials if not t.tries(stored.baseline) and t.phase is Phase.TUNING]
    other = next(t for t in others if stored.proposed.row_of(t.setting) is None)
    Operations(served.loop).approve("s1", Decision(who="ann", trial=other.number))
    top = max(t.ran_at[peak_name(BY)] for t in others if t.tries(other.setting))
    held = served.store.studies.get("s1").plan
    below = Row(REACH * top, other.setting), Row(math.inf, stored.baseline)
    assert held == Plan(below, BY, eager=True)
