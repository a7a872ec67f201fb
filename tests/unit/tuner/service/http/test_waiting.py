"""A long poll is answered at little cost, and only with the orders in force."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from fastapi import Request, Response
from starlette.types import Message, Receive, Scope, Send

from db.sql.trials import Trials
from tests.builders import policies, setting, window
from tests.unit.tuner.study.worlds import World, truth
from tuner.core import Constraint, NotFound, Outcome, Phase, Plan, TrialState
from tuner.service.http.waiting import LongPoll, Recall, Waiters, ask_again
from tuner.service.operations import Operations
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
    monkeypatch.delattr(Trials, "list")
    assert told(world) == before
    assert world.loop.trial_reports.reap() == 0


def test_a_repeated_poll_without_news_does_not_read_the_store(
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


def test_a_different_poll_reads_the_store_again(world: World) -> None:
    told(world)
    order = world.ask(holding="s1", unable="an operator is at work")
    assert isinstance(order, Idle), order
    assert isinstance(told(world), HoldOrder)


def test_a_forgotten_device_is_refused_with_the_reason(world: World) -> None:
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
        patched.delattr(Trials, "list")
        assert isinstance(world.ask(holding="s1"), Release)
    world.loop.changes.start_over(world.store.studies.get("s1"), "a new driver")
    verbs.resume("s1", Change(who="ann"))
    world.loop.hours = lambda _: False
    monkeypatch.delattr(Trials, "list")
    assert isinstance(world.ask(), Idle)


def test_a_changed_constraint_is_sent_at_once(world: World) -> None:
    before = told(world)
    study = world.store.studies.get("s1")
    wider = replace(study, constraints=(Constraint.parse("latency_p99_ms <= 1.5x baseline"),))
    world.loop.changes.revise(wider, "ann", "wider")
    after = told(world)
    assert after.revision == before.revision + 1
    assert after.limits[0][0].value == pytest.approx(before.limits[0][0].value * 1.5 / 1.2)


def test_another_plan_is_reported_at_once(world: World) -> None:
    told(world)
    study = world.store.studies.get("s1")
    other = replace(study, plan=Plan.single(setting(800)))
    another(world).changes.revise(other, "ann", "other")
    assert told(world).plan == Plan.single(setting(800))


def test_a_trial_of_another_process_counts_at_once(world: World) -> None:
    before = told(world)
    trial = world.store.trials.begin("s1", setting(), Phase.CONFIRMING, "", world.time.now())
    another(world).changes.publish(world.store.studies.get("s1"))
    assert not isinstance(world.ask(holding="s1"), HoldOrder)
    slower = Outcome(state=TrialState.COMPLETED, measurement=window(10.0, 140.0))
    world.store.trials.end("s1", trial.number, slower, world.time.now())
    another(world).changes.publish(world.store.studies.get("s1"))
    assert told(world).limits[0][0].value > before.limits[0][0].value


class Caller:
    """A caller: its messages, the time of its disconnection, and the answers that it got."""

    def __init__(self, body: bytes = b"", parts: int = 1) -> None:
        self.gone = asyncio.Event()
        self.answered: list[Message] = []
        size = max(1, -(-len(body) // parts))
        chunks = [body[n : n + size] for n in range(0, len(body), size)] or [b""]
        more = [n < len(chunks) for n in range(1, len(chunks) + 1)]
        self._sent = [
            {"type": "http.request", "body": c, "more_body": m}
            for c, m in zip(chunks, more, strict=True)
        ]

    async def receive(self) -> Message:
        if self._sent:
            return self._sent.pop(0)
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.answered.append(message)


class Application:
    """An application that answers with the number of its calls, and requests another call."""

    def __init__(self, news: News, wait_s: float, look_again_s: float, times: int) -> None:
        self.news, self.bodies, self.hung_up = news, list[bytes](), 0
        self._wait_s, self._look_again_s, self._times = wait_s, look_again_s, times

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        mark = self.news.mark("a")
        self.bodies.append(await request.body())
        if len(self.bodies) < self._times:
            recall = Recall("a", mark, self._wait_s, self._look_again_s, self._gone)
            ask_again(request, recall)
        await Response(str(len(self.bodies)))(scope, receive, send)

    def _gone(self) -> None:
        self.hung_up += 1


def asked(
    does: Callable[[Caller, News], object] = lambda *_: None,
    *,
    wait_s: float = 60.0,
    look_again_s: float = 60.0,
    times: int = 2,
    leaving: Callable[[], bool] = lambda: False,
    body: bytes = b"poll",
) -> tuple[Application, str]:
    """Return an application and the answers to its caller; `does` is called shortly after the start."""

    async def play() -> tuple[Application, str]:
        news, caller = News(), Caller(body, parts=3)
        app, waiting = Application(news, wait_s, look_again_s, times), Waiters(news, leaving)
        async with waiting.watch():
            asyncio.get_running_loop().call_later(0.05, does, caller, news)
            scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "state": {}}
            poll = LongPoll(app, waiting)(scope, caller.receive, caller.send)
            await asyncio.wait_for(poll, 30.0)
        return app, b"".join(m.get("body", b"") for m in caller.answered).decode()

    return asyncio.run(play())


def test_a_waiting_caller_is_answered_again_at_news_of_its_device() -> None:
    app, answer = asked(lambda _, news: news.tell(["b", "a"]))
    assert (answer, app.bodies) == ("2", [b"poll", b"poll"])


def test_waiting_callers_are_checked_again_periodically() -> None:
    app, answer = asked(look_again_s=0.02, times=4)
    assert (answer, len(app.bodies)) == ("4", 4)


def test_when_its_time_is_over_it_gets_the_answer_there_was() -> None:
    app, answer = asked(lambda _, news: news.tell(["b"]), wait_s=0.3)
    assert (answer, len(app.bodies)) == ("1", 1)


def test_a_disconnected_caller_is_noticed_and_not_served_again() -> None:
    app, answer = asked(lambda caller, _: caller.gone.set())
    assert (answer, len(app.bodies), app.hung_up) == ("", 1, 1)


def test_the_servers_end_answers_everybody() -> None:
    ends: list[bool] = []
    app, answer = asked(lambda *_: ends.append(True), leaving=lambda: bool(ends))
    assert (answer, len(app.bodies)) == ("1", 1)


def test_a_request_without_a_wait_is_answered_as_usual() -> None:
    app, answer = asked(times=1, body=b"")
    assert (answer, app.bodies) == ("1", [b""])
