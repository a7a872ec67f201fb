"""Agents' requests have their turns; excess requests are told to retry later."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope, Send

from tuner.core import AccessRole, Caller
from tuner.service.http.turns import AT_ONCE, MOST_WAITING, Queue, SendAway, Turns
from tuner.study.presence import MOST_AGAIN_S

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
        for _ in range(FULL + 50_000):
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
