"""A study whose plan follows the load, on a made-up M/D/1 server with a varying external load."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest

from db import Store
from policies.polythrottle.policy import Polythrottle
from tests.builders import Time, applied, device, study
from tests.stores import memory_store
from tests.unit.tuner.bo.test_load import BY, LIMIT_MS, SPACE, shown, truth
from tuner.core import (
    Level,
    Outcome,
    Phase,
    Plan,
    Setting,
    Signal,
    Terms,
    TrialState,
    render_setting,
)
from tuner.presentation.facts import facts
from tuner.service.reports import look
from tuner.service.views import study_view
from tuner.study.loop import Loop
from tuner.wire import Assignment, HoldOrder, HoldReport, Poll, Release, TrialReport

DAY = [30.0] * 25 + [60.0] * 25 + [15.0] * 20 + [45.0] * 20 + [30.0] * 10 + [60.0] * 10


@dataclass
class Served:
    """A server with a moving load, an obedient agent, and the tuner."""

    store: Store = field(default_factory=memory_store)
    time: Time = field(default_factory=Time)
    hold: HoldOrder | None = None
    wanted: list[tuple[float, Setting]] = field(default_factory=list)
    """The load and the setting at every read of the hold."""

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
            terms=Terms(trials=30, plan_by=BY),
        )
        self.store.studies.add(fresh, "test", "created")

    def restarted(self) -> Loop:
        """Return a new loop, like that of another process."""
        policies = {"polythrottle": Polythrottle()}
        now, monotonic = self.time.now, self.time.monotonic
        return Loop(self.store, policies.__getitem__, now, monotonic=monotonic)

    def turn(self, load: float) -> None:
        """Let the agent poll once, and obey the order."""
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
        report = TrialReport(
            device="sim",
            study=order.study,
            trial=order.trial,
            attempt=order.attempt,
            token=order.token,
            nonce=order.nonce,
            outcome=outcome,
        )
        assert self.loop.trial_reports.record(report).result == "closed"

    def observe(self, order: HoldOrder, load: float) -> None:
        setting = _row(order.plan, load)
        window = replace(shown(setting, load), started_at=self.time.now())
        self.loop.hold_reports.observe(
            HoldReport(
                device="sim",
                study=order.study,
                revision=order.revision,
                setting=setting,
                measurement=window,
            )
        )

    def run(self, loads: Iterable[float]) -> None:
        for load in loads:
            self.turn(load)

    @property
    def plan(self) -> Plan:
        assert self.hold is not None
        return self.hold.plan

    def confirmed(self, setting: Setting, load: float) -> bool:
        """Return whether a setting was measured in a confirming window at this load or a higher one."""
        own = [t for t in self.store.trials.list("s1") if t.phase is Phase.CONFIRMING]
        return any(t.tries(setting) and load <= t.ran_at[BY] * 1.26 for t in own)


def _row(plan: Plan, load: float) -> Setting:
    return plan.rows[plan.row({BY: load})].setting


@pytest.mark.slow
def test_a_plan_grows_as_loads_come_by_and_never_holds_an_unconfirmed_row() -> None:
    served = Served()
    grown: list[int] = []
    for load in DAY:
        before = served.hold
        served.turn(load)
        if served.hold is not None and served.hold != before:
            grown.append(len(served.plan.rows))
            for row in served.plan.rows:
                rests = row.setting == SPACE.default
                assert rests or (row.at and served.confirmed(row.setting, row.at)), (
                    f"{render_setting(row.setting)} at {row.at} is held unconfirmed"
                )
    assert grown and max(grown) > min(grown), "the plan grew"
    clocks = [int(str(row.setting["gpu.clock_mhz"])) for row in served.plan.rows]
    assert clocks == sorted(clocks) and len(clocks) >= 3
    assert _row(served.plan, 200.0) == SPACE.default
    for load, setting in served.wanted:
        energy_j, p99_ms = truth(setting, load)
        assert p99_ms <= LIMIT_MS and energy_j <= truth(SPACE.default, load)[0]
    for load in (15.0, 30.0):
        assert truth(_row(served.plan, load), load)[0] < 0.95 * truth(SPACE.default, load)[0]


@pytest.mark.slow
def test_a_report_says_what_each_row_rests_on_beside_the_baseline_at_its_load() -> None:
    served = Served()
    served.run(DAY[:60])
    stored, trials = served.store.studies.get("s1"), served.store.trials.list("s1")
    report = look(served.loop, stored, trials, study_view(stored, trials, ""), {}, "").report
    assert len(report.rows) == len(served.plan.rows) >= 3
    for row in report.rows:
        if row.setting == SPACE.default:
            continue
        assert row.at is not None and row.windows >= 2 and row.saving is not None
        before, after = (truth(at, row.at)[0] for at in (SPACE.default, row.setting))
        assert row.saving.mean == pytest.approx(1.0 - after / before, abs=0.02)
        assert row.metrics["latency_p99_ms"].mean <= LIMIT_MS
    lines = "\n".join(text for name, text in facts(report) if name == "plan")
    assert lines.count("saves") == len(report.rows) - 1 and "limit 60" in lines
    assert report.bill.saved_j is not None and report.bill.saved_j > 0.0


@pytest.mark.slow
def test_a_constant_load_gives_one_setting_and_the_baseline_above() -> None:
    served = Served()
    served.run([30.0 * (1.0 + 0.02 * (-1) ** n) for n in range(60)])
    assert [row.setting == SPACE.default for row in served.plan.rows] == [False, True]
    assert served.store.studies.get("s1").phase is Phase.HOLDING


@pytest.mark.slow
def test_a_tuner_that_is_started_again_at_any_moment_grows_the_same_plan() -> None:
    steady, killed = Served(), Served()
    for load in DAY[:60]:
        steady.turn(load)
        killed.loop = killed.restarted()
        killed.turn(load)
    assert steady.plan == killed.plan
    assert len(steady.store.trials.list("s1")) == len(killed.store.trials.list("s1"))
