"""Ended trials are read once, and each event is noted once, after the work is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from db import Store
from db.sql.trials import Trials
from tests.builders import START, applied, completed, setting, study, window
from tests.stores import memory_store
from tests.unit.tuner.study.worlds import World, truth
from tuner.core import Applied, Device, Level, Limit, Measurement, Outcome, Phase, Study
from tuner.study.changes import EndedTrials, Telemetry
from tuner.wire import HoldOrder, HoldReport, TrialReport


@pytest.fixture
def store() -> Store:
    made = memory_store()
    for name in ("s1", "s2"):
        made.studies.add(study(id=name, devices=(name,)), "ann", "")
    return made


def tried(store: Store, name: str = "s1") -> None:
    trial = store.trials.begin(name, setting(), Phase.TUNING, "", START)
    store.trials.end(name, trial.number, completed(), START)


def test_shown_trials_equal_the_stored_ones_while_trials_begin_and_end(store: Store) -> None:
    ended = EndedTrials(store.trials)
    assert ended.list("s1") == ()
    for _ in range(3):
        tried(store)
        assert ended.list("s1") == store.trials.list("s1")
        running = store.trials.begin("s1", setting(), Phase.TUNING, "", START)
        assert ended.list("s1") == store.trials.list("s1")
        store.trials.end("s1", running.number, completed(), START)
        assert ended.list("s1") == store.trials.list("s1")


def test_trials_that_have_ended_are_read_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    listed = Trials.list

    def counted(self: Trials, name: str, first: int = 1) -> object:
        read.append(first)
        return listed(self, name, first)

    monkeypatch.setattr(Trials, "list", counted)
    ended = EndedTrials(store.trials)
    for _ in range(4):
        tried(store)
        ended.list("s1")
    assert read == [1, 1, 2, 3]


def test_a_study_with_the_name_of_a_deleted_one_is_read_anew(store: Store) -> None:
    ended = EndedTrials(store.trials)
    for _ in range(2):
        tried(store)
    ended.list("s1")
    stopped = store.studies.get("s1").moved(Phase.STOPPED)
    store.studies.revise(stopped, "ann", "", START)
    store.studies.delete("s1")
    store.studies.add(study(id="s1", devices=("s1",)), "ann", "")
    assert ended.list("s1") == ()
    tried(store)
    assert ended.list("s1") == store.trials.list("s1")


def test_no_more_is_kept_than_there_is_room_for(store: Store) -> None:
    ended = EndedTrials(store.trials, most=3)
    for name in ("s1", "s2"):
        for _ in range(2):
            tried(store, name)
    for _ in range(2):
        for name in ("s1", "s2"):
            assert ended.list(name) == store.trials.list(name)
            assert ended._kept <= 3


class Heard(Telemetry):
    """Records the notes."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.windows: list[Measurement] = []
        self.limits: list[tuple[Limit, ...]] = []
        self.outcomes: list[Outcome] = []
        self.levels: list[Level] = []
        self.policies: list[str] = []

    def noted(self, kind: str) -> None:
        self.kinds.append(kind)

    def measured(self, of: Study | Device, device: str, window: Measurement) -> None:
        self.windows.append(window)

    def held(self, study: Study, device: str, window: Measurement, limits: Sequence[Limit]) -> None:
        self.limits.append(tuple(limits))

    def ended(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def applied(self, applied: Applied) -> None:
        self.levels.append(applied.level)

    def suggested(self, policy: str, seconds: float) -> None:
        self.policies.append(policy)


@pytest.fixture
def world() -> World:
    made = World(telemetry=Heard())
    made.start()
    return made


def heard(world: World) -> Heard:
    telemetry = world.telemetry
    assert isinstance(telemetry, Heard)
    return telemetry


def report(order: HoldOrder, world: World, minute: int) -> HoldReport:
    began = world.time.now() + timedelta(minutes=minute)
    return HoldReport.of(
        order,
        device="sim",
        setting=order.plan.rows[-1].setting,
        measurement=replace(window(), started_at=began),
    )


def test_every_trial_is_heard_once_with_its_window(world: World) -> None:
    world.run(truth)
    trials = world.store.trials.list("s1")
    recorded = heard(world)
    assert len(recorded.outcomes) == len(recorded.windows) == len(trials)
    assert set(recorded.policies) == {"scripted"}
    assert "holding" in recorded.kinds


def test_a_report_that_comes_twice_is_heard_once(world: World) -> None:
    order = world.assigned()
    message = TrialReport.of(order, device="sim", outcome=truth(order.setting))
    assert [world.loop.trial_reports.record(message).result for _ in range(2)] == [
        "closed",
        "duplicate",
    ]
    assert len(heard(world).windows) == 1


def test_a_window_of_a_hold_is_heard_once_with_the_limits_it_is_held_by(world: World) -> None:
    order = world.run(truth)
    before = len(heard(world).windows)
    for minute in (1, 1, 2):
        world.loop.hold_reports.observe(report(order, world, minute))
    assert len(heard(world).windows) == before + 2
    assert heard(world).limits == [order.limits[-1]] * 2


def test_a_window_of_a_hold_that_this_process_never_ordered_has_no_limits(world: World) -> None:
    order = world.run(truth)
    world.telemetry = Heard()
    world.loop = world.restarted()
    world.loop.hold_reports.observe(report(order, world, 1))
    assert heard(world).limits == [()]


def test_a_setting_is_heard_of_when_it_changes(world: World) -> None:
    world.ask()
    world.ask()
    assert heard(world).levels == [applied().level]
