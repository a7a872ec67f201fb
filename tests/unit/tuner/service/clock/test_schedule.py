"""Reaping, drift and retention."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import timedelta
from threading import RLock

import pytest

from db.sql.bus import Bus
from db.sql.log import Observations
from db.sql.studies import Studies
from tests.builders import completed, setting, window
from tests.unit.tuner.study.worlds import World
from tuner.core import Event, Observation, Phase, Setting, StoreError
from tuner.service.clock import schedule
from tuner.service.clock.schedule import (
    Lead,
    Maintenance,
    Periodic,
    start,
)


def observe(world: World, at: Setting, *energies: float) -> None:
    """Report windows of a hold, a minute apart."""
    world.time.sleep(3600)
    for number, energy in enumerate(energies):
        now = world.time.now() + timedelta(minutes=number)
        shown = replace(window(energy), started_at=now)
        world.store.observations.add_all(
            [Observation(study="s1", device="sim", setting=at, measurement=shown, at=now)]
        )


def test_a_drifted_study_goes_back_to_its_baseline(held: World) -> None:
    chores = Maintenance(held.loop, keep_days=30)
    chores.watch_drift()
    assert held.store.studies.get("s1").phase is Phase.HOLDING
    observe(held, setting(600), *[7.5] * 10)
    chores.watch_drift()
    stored = held.store.studies.get("s1")
    assert (stored.phase, stored.since_trial) == (Phase.BASELINE, 9)


def test_a_study_that_follows_a_load_does_not_drift_at_another(held: World) -> None:
    stored = held.store.studies.get("s1")
    follows = replace(stored.terms, plan_by="arrival_rate_per_s")
    held.store.studies.revise(replace(stored, terms=follows), "ann", "", held.time.now())
    observe(held, setting(600), *[7.5] * 10)
    Maintenance(held.loop, keep_days=30).watch_drift()
    assert held.store.studies.get("s1").phase is Phase.HOLDING


def test_the_watch_for_drift_pauses_after_each_study(held: World) -> None:
    pauses = list[float]()
    Maintenance(held.loop, keep_days=30, pause=pauses.append).watch_drift()
    assert len(pauses) == 1 and pauses[0] > 0.0


def test_the_watch_for_drift_ends_once_another_tuner_leads(
    held: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe(held, setting(600), *[7.5] * 10)
    monkeypatch.setattr(held.store.bus, "leads", lambda: False)
    Maintenance(held.loop, keep_days=30).watch_drift()
    assert held.store.studies.get("s1").phase is Phase.HOLDING
    monkeypatch.undo()
    Maintenance(held.loop, keep_days=30).watch_drift()
    assert held.store.studies.get("s1").phase is not Phase.HOLDING


def test_single_tuner_tasks_run_at_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    world, done, expected = World(), list[int](), list[int]()
    leads = [False]
    monkeypatch.setattr(Bus, "leads", lambda _: leads[0])
    monkeypatch.setattr(schedule, "expect", lambda _: expected.append(1))
    task = Lead(world.loop).alone(lambda: done.append(1))
    task()
    assert not done and not expected
    leads[0] = True
    task()
    task()
    assert len(done) == 2
    assert len(expected) == 1, "who has just begun to lead waits for all devices anew"


def test_a_pause_during_the_drift_check_is_not_overwritten(held: World) -> None:
    observe(held, setting(600), *[7.5] * 10)
    lock = held.loop.changes.lock("s1")

    def paused_first(study: str) -> RLock:
        stored = held.store.studies.get(study)
        held.store.studies.revise(stored.moved(Phase.PAUSED), "ann", "mine", held.time.now())
        return lock

    held.loop.changes.lock = paused_first  # type: ignore[method-assign]
    Maintenance(held.loop, keep_days=30).watch_drift()
    assert held.store.studies.latest("s1").who == "ann"


def test_watching_reads_neither_whole_windows_nor_every_revision(
    monkeypatch: pytest.MonkeyPatch, held: World
) -> None:
    observe(held, setting(600), *[7.5] * 10)
    monkeypatch.delattr(Observations, "list")
    monkeypatch.setattr(Studies, "revisions", lambda *_: pytest.fail("all were loaded"))
    Maintenance(held.loop, keep_days=30).watch_drift()
    assert held.store.studies.get("s1").phase is Phase.BASELINE


@pytest.mark.parametrize(("energy", "phase"), [(10.0, Phase.HOLDING), (14.0, Phase.BASELINE)])
def test_a_held_baseline_that_has_drifted_is_tuned_again(energy: float, phase: Phase) -> None:
    """No setting was better when it was measured; now one may be."""
    world = World()
    world.start()
    order = world.run(lambda at: completed(10.0, 100.0))
    assert order.plan.rows[-1].setting == setting(1000)
    observe(world, setting(1000), *[energy] * 10)
    Maintenance(world.loop, keep_days=30).watch_drift()
    assert world.store.studies.get("s1").phase is phase


def test_old_events_are_pruned_and_their_number_is_reported(held: World) -> None:
    trials = held.store.trials.list("s1")
    held.time.sleep(40 * 86400.0)
    held.store.events.add(Event(at=held.time.now(), kind="note", text="young"))
    Maintenance(held.loop, keep_days=30).prune()
    kept = [e.text for e in held.store.events.list()]
    assert kept[0] == "young"
    assert "events from before" in kept[1]
    assert held.store.trials.list("s1") == trials


def test_a_clock_a_year_ahead_for_an_hour_deletes_a_day_of_the_oldest_rows() -> None:
    world = World()
    world.start()
    begun = world.store.events.oldest()
    assert begun is not None
    for day in range(60):
        world.store.events.add(Event(at=begun + timedelta(days=day), kind="note", text=f"{day}"))
    world.time.sleep((60 + 365) * 86400.0)
    observe(world, setting(600), 6.0)
    Maintenance(world.loop, keep_days=90).prune()
    assert [e.text for e in world.store.events.list() if e.text.isdigit()] == [
        f"{day}" for day in range(1, 60)
    ]
    assert len(world.store.observations.list("s1")) == 1


def test_accumulated_rows_are_pruned_one_day_at_a_time() -> None:
    world = World()
    world.start()
    observe(world, setting(600), 6.0)
    world.time.sleep(5 * 86400.0)
    observe(world, setting(600), 6.0, 6.0)
    world.time.sleep(100 * 86400.0)
    chores = Maintenance(world.loop, keep_days=90)
    chores.prune()
    assert len(world.store.observations.list("s1")) == 2
    chores.prune()
    chores.prune()
    assert world.store.observations.list("s1") == ()


def test_the_chores_run_in_the_background_and_end() -> None:
    def tell() -> None:
        """Tell the other tuners."""

    def refresh() -> None:
        """Read series again."""

    def divide() -> None:
        """Divide watts."""

    before = threading.active_count()
    scheduler = start(Maintenance(World().loop, keep_days=30), tell, refresh, divide)
    try:
        assert threading.active_count() > before
    finally:
        scheduler.shutdown(wait=True)
    assert threading.active_count() == before


def test_work_continues_after_any_failure_and_never_runs_twice_at_a_time() -> None:
    done, at_once, most = list[float](), 0, 0

    def slow() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        done.append(time.monotonic())
        time.sleep(0.03)
        at_once -= 1
        if len(done) % 2:
            raise StoreError("away")
        raise ValueError("a bug")

    periodic = Periodic([(slow, 0.01)])
    while len(done) < 6:
        time.sleep(0.01)
    periodic.shutdown(wait=True)
    assert most == 1


@pytest.mark.parametrize(("seconds", "way"), [(3600.0, "forward"), (-3600.0, "back")])
def test_setting_the_clock_is_logged_once(seconds: float, way: str) -> None:
    world = World()
    chores = Maintenance(world.loop, keep_days=30)
    for _ in range(3):
        world.time.sleep(1.0)
        chores.watch_clock()
    world.time.step(timedelta(seconds=seconds))
    for _ in range(3):
        chores.watch_clock()
    (event,) = (e for e in world.store.events.list() if e.kind == "clock")
    assert f"set {way} by 3600 s" in event.text
