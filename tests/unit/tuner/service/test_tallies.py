"""Figures of whole studies: which are worked out, when, and how many at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.unit.tuner.study.worlds import World, truth
from tuner.core import Notice, Topic
from tuner.service import tallies
from tuner.service.operations import Operations
from tuner.service.tallies import FRESH_S, StudyTallies
from tuner.wire import Change


@dataclass
class Watched:
    """A world whose studies are tallied; `asked` are those that were worked out."""

    world: World = field(default_factory=World)
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.verbs = Operations(self.world.loop)
        self.tallies = StudyTallies(self.verbs, self.world.time.monotonic)

    def count(self, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.0) -> None:
        """Note every study that is worked out, which takes so long."""
        worked_out = StudyTallies._worked_out

        def noted(this: StudyTallies, study: str) -> tallies.StudyTally:
            self.asked.append(study)
            self.world.time.sleep(seconds)
            return worked_out(this, study)

        monkeypatch.setattr(StudyTallies, "_worked_out", noted)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_studys_trials_are_told_by_state_and_by_todays_verdict(watched: Watched) -> None:
    watched.world.start()
    watched.world.run(truth)
    watched.tallies.renew()
    tally = watched.tallies.known()["s1"]
    assert tally is not None
    assert sum(tally.trials.values()) == len(watched.world.store.trials.list("s1"))
    assert {state for state, _ in tally.trials} == {"completed"}
    assert tally.explored_j is not None
    assert not tally.unmet


def test_only_what_has_changed_is_worked_out_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.world.start("a", id="s1")
    watched.world.start("b", id="s2")
    watched.count(monkeypatch)
    assert watched.tallies.renew() == 2
    assert watched.tallies.renew() == 0
    watched.world.store.bus.publish(Notice(Topic.ORDERS, "s2", ("b",)))
    assert watched.tallies.renew() == 1
    assert watched.asked == ["s1", "s2", "s2"]


def test_an_active_study_is_looked_at_again_by_the_clock_and_a_stopped_one_is_not(
    watched: Watched,
) -> None:
    watched.world.start("a", id="s1")
    watched.world.start("b", id="s2")
    watched.verbs.stop("s2", Change(who="ann"))
    assert watched.tallies.renew() == 2
    watched.world.time.sleep(FRESH_S)
    assert watched.tallies.renew() == 1


def test_no_more_is_worked_out_at_a_time_than_the_budget_and_the_oldest_first(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        watched.world.start(f"d{number}", id=f"s{number}")
    watched.count(monkeypatch, seconds=0.2)
    assert watched.tallies.renew(0.3) == 2
    assert sum(t is None for t in watched.tallies.known().values()) == 2
    assert watched.tallies.renew(0.3) == 2
    assert watched.asked == ["s0", "s1", "s2", "s3"]


def test_a_deleted_study_is_forgotten(watched: Watched) -> None:
    watched.world.start()
    watched.tallies.renew()
    watched.verbs.stop("s1", Change(who="ann"))
    watched.verbs.delete("s1", Change(who="ann"))
    watched.tallies.renew()
    assert watched.tallies.known() == {}
