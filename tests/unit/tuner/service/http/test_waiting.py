"""Agents' requests get their turn; a long poll is answered at little cost, with the orders in force."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from fastapi import Request, Response
from starlette.types import Message, Receive, Scope, Send

from db.sql.trials import Trials
from tests.builders import policies, setting, window
from tests.unit.tuner.study.worlds import World
from tuner.core import AccessRole, Caller, Constraint, NotFound, Outcome, Phase, Plan, TrialState
from tuner.service.http.waiting import (
    AT_ONCE,
    MOST_WAITING,
    LongPoll,
    Queue,
    Recall,
    SendAway,
    Turns,
    Waiters,
    ask_again,
)
from tuner.service.operations import Operations
from tuner.study.answers import News
from tuner.study.loop import MOST_TRUSTED_S, Loop
from tuner.study.presence import MOST_AGAIN_S
from tuner.wire import Change, HoldOrder, Idle, Release

AGENT = Caller("host", AccessRole.AGENT)
FULL = AT_ONCE + MOST_WAITING


class Slow:
    """An application that works on a request until the test releases it."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.at_work = 0
        self.bodies: list[bytes] = []

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        self.at_work += 1
        self.bodies.append((await receive())["body"])
        await self.go_on.wait()
        self.at_work -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class Asked:
    """Turns in front of a slow application, and its answers."""

    def __init__(self) -> None:
        self.app = Slow()
        queue = Queue(lambda: 0.0)
        self.turns = Turns(self.app, queue)
        self.outside = SendAway(self.turns, queue, lambda: None)
        self.answers: list[tuple[int, int]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(
        self,
        path: str = "/v1/devices/d/next",
        caller: Caller = AGENT,
        *,
        again: bool = False,
    ) -> None:
        """Begin a request, or a repeated one, and let it advance as far as it can."""
        sent = iter([{"type": "http.request", "body": b"asked", "more_body": False}])

        async def receive() -> Message:
            return next(sent)

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = dict(message["headers"])
                self.answers.append((message["status"], int(headers.get(b"retry-after", 0))))

        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "headers": [],
            "state": {"caller": caller},
        }
        target = self.turns if again else self.outside
        self.tasks.append(asyncio.create_task(target(scope, receive, send)))
        await asyncio.sleep(0)

    async def end(self) -> list[int]:
        """Let all requests be answered, and return their statuses."""
        self.app.go_on.set()
        await asyncio.gather(*self.tasks)
        return sorted(status for status, _ in self.answers)


def test_few_requests_run_at_once_and_the_others_in_turn() -> None:
    async def played() -> list[int]:
        crowd = Asked()
        for _ in range(FULL):
            await crowd.ask()
        assert crowd.app.at_work == AT_ONCE
        assert crowd.answers == []
        statuses = await crowd.end()
        assert crowd.app.bodies == [b"asked"] * FULL
        return statuses

    assert asyncio.run(played()) == [200] * FULL


def test_excess_requests_are_refused_at_once_with_different_retry_times() -> None:
    async def played() -> list[tuple[int, int]]:
        crowd = Asked()
        for _ in range(FULL + 5_000):
            await crowd.ask()
        refused = list(crowd.answers)
        await crowd.end()
        return refused

    refused = asyncio.run(played())
    assert {status for status, _ in refused} == {503}
    times = [again_s for _, again_s in refused]
    assert 1 <= min(times) <= max(times) <= MOST_AGAIN_S
    assert max(times.count(one) for one in set(times)) < 2 * len(times) / len(set(times))


def test_requests_of_running_trials_and_recalled_polls_are_never_refused() -> None:
    async def played() -> list[int]:
        crowd = Asked()
        for _ in range(FULL):
            await crowd.ask()
        await crowd.ask("/v1/trials/renew")
        await crowd.ask(again=True)
        return await crowd.end()

    assert asyncio.run(played()) == [200] * (FULL + 2)


def test_an_operator_does_not_wait_behind_agents() -> None:
    async def played() -> int:
        crowd = Asked()
        for _ in range(FULL):
            await crowd.ask()
        await crowd.ask("/v1/studies", Caller("ann", AccessRole.OPERATOR))
        at_work = crowd.app.at_work
        await crowd.end()
        return at_work

    assert asyncio.run(played()) == AT_ONCE + 1


@pytest.fixture
def world(held: World) -> World:
    return held


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


class Poller:
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
    does: Callable[[Poller, News], object] = lambda *_: None,
    *,
    wait_s: float = 60.0,
    look_again_s: float = 60.0,
    times: int = 2,
    leaving: Callable[[], bool] = lambda: False,
    body: bytes = b"poll",
) -> tuple[Application, str]:
    """Return an application and the answers to its caller; `does` is called shortly after the start."""

    async def play() -> tuple[Application, str]:
        news, caller = News(), Poller(body, parts=3)
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
