"""What an agent that waits is told: cheaply, and never anything but what is in force."""

from __future__ import annotations

from dataclasses import replace

import pytest

from db.memory.store import MemoryTrials
from tests.builders import setting, window
from tests.unit.tuner.study.worlds import World, truth
from tuner.core import Constraint, Outcome, Phase, Plan, TrialState
from tuner.service.operations import Operations
from tuner.wire import Change, HoldOrder, Idle, Release


@pytest.fixture
def world() -> World:
    made = World()
    made.start()
    made.run(truth)
    return made


def told(world: World) -> HoldOrder:
    order = world.ask(holding="s1")
    assert isinstance(order, HoldOrder), order
    return order


def test_waiting_at_a_hold_loads_no_trials(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = told(world)
    monkeypatch.delattr(MemoryTrials, "list")
    assert told(world) == before
    assert world.loop.reap() == 0


def test_waiting_for_an_operator_or_the_hour_loads_no_trials(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs = Operations(world.loop)
    verbs.pause("s1", Change(who="ann"))
    with monkeypatch.context() as patched:
        patched.delattr(MemoryTrials, "list")
        assert isinstance(world.ask(holding="s1"), Release)
    world.loop.start_over(world.store.studies.get("s1"), "a new driver")
    verbs.resume("s1", Change(who="ann"))
    world.loop.hours = lambda _: False
    monkeypatch.delattr(MemoryTrials, "list")
    assert isinstance(world.ask(), Idle)


def test_a_changed_constraint_is_told_at_once(world: World) -> None:
    before = told(world)
    study = world.store.studies.get("s1")
    wider = replace(study, constraints=(Constraint.parse("latency_p99_ms <= 1.5x baseline"),))
    world.store.studies.revise(wider, "ann", "wider", world.time.now())
    after = told(world)
    assert after.revision == before.revision + 1
    assert after.limits[0][0].value == pytest.approx(before.limits[0][0].value * 1.5 / 1.2)


def test_another_plan_is_told_at_once(world: World) -> None:
    told(world)
    study = world.store.studies.get("s1")
    other = replace(study, plan=Plan.single(setting(800)))
    world.store.studies.revise(other, "ann", "other", world.time.now())
    assert told(world).plan == Plan.single(setting(800))


def test_a_trial_of_another_process_is_heeded_at_once(world: World) -> None:
    before = told(world)
    trial = world.store.trials.begin("s1", setting(), Phase.CONFIRMING, "", world.time.now())
    assert not isinstance(world.ask(holding="s1"), HoldOrder)
    slower = Outcome(state=TrialState.COMPLETED, measurement=window(10.0, 140.0))
    world.store.trials.end("s1", trial.number, slower, world.time.now())
    assert told(world).limits[0][0].value > before.limits[0][0].value
