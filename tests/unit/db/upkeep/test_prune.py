"""A prune lists old rows first, then deletes these and no others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from db import Store, open_store
from db.upkeep import prune
from db.upkeep.check import check
from db.upkeep.prune import Pruning
from tests.builders import START, completed, setting, study
from tests.contracts.log import event, observation
from tuner.core import Delivery, Phase, StoreError

BEFORE = START + timedelta(minutes=5)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'tuner.sqlite'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Studies s0 to s3, of which the last is active, each with two trials; ten windows and events."""
    opened = open_store(url)
    for n in range(4):
        made = replace(
            study(id=f"s{n}", devices=(f"d{n}",)), created_at=START + timedelta(minutes=n)
        )
        opened.studies.add(made, "ann", "")
        for _ in range(2):
            trial = opened.trials.begin(made.id, setting(), Phase.TUNING, "", START)
            opened.trials.end(made.id, trial.number, completed(1), START)
        if n < 3:
            opened.studies.revise(
                opened.studies.get(made.id).moved(Phase.STOPPED), "ann", "enough", START
            )
    for minute in range(10):
        opened.observations.add_all([observation(minute, study="s3", device="d3")])
        opened.events.add(event(minute))
    yield opened
    opened.close()


@pytest.fixture
def pruning(url: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pruning]:
    monkeypatch.setattr(prune, "AT_ONCE", 2)
    opened = Pruning(url)
    yield opened
    opened.close()


def test_pruned_rows_are_listed_first_and_no_others_are_deleted(
    store: Store, pruning: Pruning
) -> None:
    plan = pruning.plan(BEFORE, keep_stopped=1)
    assert (plan.observations, plan.events, plan.studies, plan.trials) == (5, 5, ("s1", "s0"), 4)
    assert len(store.events.list()) == 10, "a plan deletes nothing"
    pruning.carry_out(plan)
    pruning.vacuum()
    assert [s.id for s in store.studies.list()] == ["s2", "s3"]
    assert len(store.trials.list("s3")) == 2
    assert [o.at.minute for o in store.observations.list("s3")] == [5, 6, 7, 8, 9]
    assert [e.at.minute for e in store.events.list()] == [5, 6, 7, 8, 9]
    assert pruning.plan(BEFORE, keep_stopped=1).empty


def test_without_a_number_no_study_goes(pruning: Pruning) -> None:
    assert pruning.plan(BEFORE, keep_stopped=None).studies == ()


def test_undelivered_events_are_kept(store: Store, pruning: Pruning) -> None:
    store.deliveries.put(Delivery("slack", 2))
    plan = pruning.plan(START + timedelta(days=1), keep_stopped=None)
    assert plan.events == 2
    pruning.carry_out(plan)
    assert [e.id for e in store.events.list()] == list(range(3, 11))


def test_the_newest_event_stays(store: Store, pruning: Pruning) -> None:
    pruning.carry_out(pruning.plan(START + timedelta(days=1), keep_stopped=None))
    assert [e.id for e in store.events.list()] == [10]


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        Pruning(f"sqlite:///{tmp_path / 'none.sqlite'}")
    assert not (tmp_path / "none.sqlite").exists()


def test_a_pruned_database_is_whole(store: Store, url: str, pruning: Pruning) -> None:
    pruning.carry_out(pruning.plan(BEFORE, keep_stopped=0))
    assert [c.about for c in check(url, lambda: START) if not c.well] == ["last backup"]
