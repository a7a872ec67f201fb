"""Ended trials are read once, and returned as they are stored."""

from __future__ import annotations

import pytest

from db import Store
from db.sql.trials import Trials
from tests.builders import START, completed, setting, study
from tests.stores import memory_store
from tuner.core import Phase
from tuner.study.ended import EndedTrials


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
