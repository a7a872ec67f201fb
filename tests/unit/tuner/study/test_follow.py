"""Whether a held plan by load should grow: decided once for each band of load."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tests.builders import START, Time, applied, device, setting, study, trial
from tests.stores import memory_store
from tuner.core import Exploration, Level, Past, Phase, Plan, Signal, Suggestion, Terms, Try
from tuner.study.follow import PlanGrowth
from tuner.study.loop import Loop
from tuner.wire import HoldOrder, Poll

BY = "arrival_rate_per_s"
HELD = study(Phase.HOLDING, plan=Plan.single(setting()), terms=Terms(plan_by=BY))


@dataclass
class Eager:
    """A policy that always requests a trial, or fails, and counts its calls."""

    asked: int = 0
    fails: bool = False

    def suggest(self, past: Past) -> Suggestion:
        self.asked += 1
        if self.fails:
            raise ValueError("a plug-in's own")
        return Try(setting(600), "made up")


def why(growth: PlanGrowth, load: float, count: int = 1) -> str:
    return growth.why(HELD, count, {BY: load}, lambda _: [])


def test_an_alternating_load_calls_the_policy_once_per_band() -> None:
    policy = Eager()
    growth = PlanGrowth(memory_store(), lambda _: policy)
    answers = [why(growth, load) for load in (10.0, 40.0, 10.1, 40.1) * 3]
    assert policy.asked == 2
    assert all("more trials are needed" in answer for answer in answers)
    assert why(growth, 10.0, count=2) and policy.asked == 3, "a new trial may change the answer"


def test_once_all_trials_are_spent_the_plan_is_asked_for_once() -> None:
    policy = Eager()
    growth = PlanGrowth(memory_store(), lambda _: policy)
    spent = replace(HELD, terms=replace(HELD.terms, trials=1))
    one = [trial(1, setting(600))]
    for load in (10.0, 40.0, 160.0):
        assert growth.why(spent, 1, {BY: load}, lambda _: one)
    assert policy.asked == 1
    assert growth.why(spent, 2, {BY: 10.0}, lambda _: one) and policy.asked == 2


def test_without_a_load_nothing_is_asked() -> None:
    policy = Eager()
    assert PlanGrowth(memory_store(), lambda _: policy).why(HELD, 1, {}, lambda _: []) == ""
    assert policy.asked == 0


def test_a_policy_that_fails_ends_no_hold(caplog: pytest.LogCaptureFixture) -> None:
    growth = PlanGrowth(memory_store(), lambda _: Eager(fails=True))
    assert why(growth, 10.0) == ""
    assert "policy_failed" in caplog.text and "a plug-in's own" in caplog.text


@pytest.mark.parametrize(
    ("frozen", "spent", "stays"),
    [("", "", False), ("release day", "", True), ("", "10 % of the time", True)],
)
def test_a_plan_does_not_grow_while_nothing_may_be_tried(
    frozen: str, spent: str, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The study would leave its hold, and then only wait."""
    monkeypatch.setattr("tuner.study.loop.over_budget", lambda *_: spent)
    time, store = Time(), memory_store()
    loop = Loop(store, lambda _: Eager(), time.now, monotonic=time.monotonic)
    loop.register(device(signals=(Signal(BY, "1/s"),)))
    held = replace(HELD, exploration=Exploration(frozen=frozen), created_at=START)
    store.studies.add(held, "test", "created")
    poll = Poll(
        agent="host/1",
        applied=replace(applied("sim", Level.HOLD, setting()), study=held.id),
        holding=held.id,
        revision=held.revision,
        context={BY: 10.0},
    )
    order = loop.order("sim", poll)
    assert isinstance(order, HoldOrder) is stays
    assert (store.studies.get(held.id).phase is Phase.HOLDING) is stays
