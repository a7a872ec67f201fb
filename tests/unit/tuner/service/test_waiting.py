"""What an agent that waits is told: cheaply, and never anything but what is in force."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
from fastapi import Request

from db.memory.store import MemoryTrials
from tests.builders import policies, setting, window
from tests.unit.tuner.study.worlds import World, truth
from tuner.core import Constraint, NotFound, Outcome, Phase, Plan, TrialState
from tuner.service.operations import Operations
from tuner.service.waiting import Waiting
from tuner.study.loop import MOST_TRUSTED_S, Loop
from tuner.study.news import News
from tuner.wire import Change, HoldOrder, Idle, Release


@pytest.fixture
def world() -> World:
    made = World()
    made.start()
    made.run(truth)
    return made


def another(world: World) -> Loop:
    """Return the loop of another process on the same store."""
    return Loop(world.store, policies, world.time.now)


def told(world: World) -> HoldOrder:
    order = world.ask(holding="s1")
    assert isinstance(order, HoldOrder), order
    return order


def test_waiting_at_a_hold_loads_no_trials(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = told(world)
    monkeypatch.delattr(MemoryTrials, "list")
    assert told(world) == before
    assert world.loop.reap() == 0


def test_who_asks_again_without_news_costs_no_look_at_the_store(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = told(world)
    with monkeypatch.context() as patched:
        for table in ("studies", "trials", "devices", "stops", "leases"):
            patched.delattr(world.store, table)
        assert told(world) == before
        world.time.sleep(MOST_TRUSTED_S - 1.0)
        assert told(world) == before
        world.time.sleep(1.0)
        with pytest.raises(AttributeError):
            told(world)
    assert told(world) == before


def test_who_asks_something_else_is_looked_at_anew(world: World) -> None:
    told(world)
    order = world.ask(holding="s1", unable="an operator is at work")
    assert isinstance(order, Idle), order
    assert isinstance(told(world), HoldOrder)


def test_a_device_that_was_forgotten_is_told_so(world: World) -> None:
    verbs = Operations(world.loop)
    verbs.stop("s1", Change())
    assert isinstance(world.ask(), Release)
    assert isinstance(world.ask(), Release)
    world.loop.presence.forget("sim")
    world.time.sleep(3600.0)
    verbs.forget("sim", Change())
    with pytest.raises(NotFound):
        world.ask()


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
    world.loop.revise(wider, "ann", "wider")
    after = told(world)
    assert after.revision == before.revision + 1
    assert after.limits[0][0].value == pytest.approx(before.limits[0][0].value * 1.5 / 1.2)


def test_another_plan_is_told_at_once(world: World) -> None:
    told(world)
    study = world.store.studies.get("s1")
    other = replace(study, plan=Plan.single(setting(800)))
    another(world).revise(other, "ann", "other")
    assert told(world).plan == Plan.single(setting(800))


def test_a_trial_of_another_process_is_heeded_at_once(world: World) -> None:
    before = told(world)
    trial = world.store.trials.begin("s1", setting(), Phase.CONFIRMING, "", world.time.now())
    another(world).publish(world.store.studies.get("s1"))
    assert not isinstance(world.ask(holding="s1"), HoldOrder)
    slower = Outcome(state=TrialState.COMPLETED, measurement=window(10.0, 140.0))
    world.store.trials.end("s1", trial.number, slower, world.time.now())
    another(world).publish(world.store.studies.get("s1"))
    assert told(world).limits[0][0].value > before.limits[0][0].value


class Caller:
    """A request whose caller hangs up when it is told to."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, str]:
        await self.gone.wait()
        return {"type": "http.disconnect"}


async def waited(does: Callable[[Caller, News], object], seconds: float = 60.0) -> bool:
    """Return whether a caller still waits after what is done shortly after it began."""
    news, caller = News(), Caller()
    request = cast("Request", caller)
    waiting = Waiting(news, lambda: False)
    asyncio.get_running_loop().call_later(0.05, does, caller, news)
    return await asyncio.wait_for(waiting.for_news(request, "a", news.mark("a"), seconds), 30.0)


def test_who_waits_goes_on_at_news_or_when_its_time_is_over() -> None:
    assert asyncio.run(waited(lambda _, news: news.tell(["a"])))
    assert asyncio.run(waited(lambda _, news: news.tell(["b"]), 0.2))


def test_who_hangs_up_is_noticed_at_once() -> None:
    assert not asyncio.run(waited(lambda caller, _: caller.gone.set()))


def test_the_servers_end_wakes_everybody() -> None:
    async def play() -> tuple[bool, bool]:
        news, leaving = News(), asyncio.Event()
        waiting = Waiting(news, leaving.is_set)
        async with waiting.watch():
            asyncio.get_running_loop().call_later(0.05, leaving.set)
            request = cast("Request", Caller())
            return await waiting.for_news(request, "a", news.mark("a"), 60.0), waiting.over

    assert asyncio.run(asyncio.wait_for(play(), 30.0)) == (True, True)
