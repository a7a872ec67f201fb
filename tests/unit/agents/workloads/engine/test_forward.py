"""The proxy changes the draft length of a request, and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from agents.workloads.engine import forward
from agents.workloads.engine.forward import Forwarder, with_length
from agents.workloads.engine.server import EngineServer


@pytest.mark.parametrize("body", [b'{"prompt": "a  b",\n "n": 1}', b"{}", b' \n{ "prompt": "{" }'])
def test_a_request_is_given_a_length_and_keeps_the_rest(body: bytes) -> None:
    changed = with_length(body, 3)
    assert json.loads(changed) == {**json.loads(body), "speculative.n_max": 3}
    assert changed.endswith(body.lstrip()[1:].lstrip())


@pytest.mark.parametrize(
    "body", [b"", b"[1]", b"not JSON", b'{"prompt": "x", "speculative.n_max": 1}']
)
def test_a_body_with_its_own_length_or_without_an_object_is_unchanged(body: bytes) -> None:
    assert with_length(body, 3) == body


def test_nothing_is_changed_where_the_length_is_the_servers() -> None:
    assert with_length(b'{"prompt": "x"}', None) == b'{"prompt": "x"}'


@pytest.mark.parametrize(
    ("faults", "status", "sent"),
    [
        ("ReadError, answers", 200, 2),
        ("ReadError, ReadError, answers", 502, 2),
        ("ReadError, ConnectError, answers", 200, 3),  # it was restarted in between
        ("ReadError, ConnectTimeout, answers", 200, 3),  # a full queue takes no connection
        ("ReadError, ConnectError, ReadError, answers", 502, 3),
    ],
)
def test_a_request_that_two_engines_died_of_is_sent_to_no_third(
    faults: str, status: int, sent: int
) -> None:
    """A request that kills an engine would kill one after the other."""
    asked = list[str]()

    async def body() -> AsyncIterator[bytes]:
        yield b"{}"

    def server(fault: str) -> EngineServer:
        def handle(request: httpx2.Request) -> httpx2.Response:
            asked.append(fault)
            if fault == "answers":
                return httpx2.Response(200, content=body())
            raise getattr(httpx2, fault)(fault)

        made = EngineServer("http://engine", {})
        made.client = httpx2.AsyncClient(transport=httpx2.MockTransport(handle))
        return made

    servers = iter([server(fault) for fault in faults.split(", ")])

    async def acquire(other_than: EngineServer | None) -> EngineServer:
        return next(servers)

    answer = list[Mapping[str, Any]]()

    async def send(message: Mapping[str, Any]) -> None:
        answer.append(message)

    async def receive() -> Mapping[str, Any]:
        if not answer and not asked:
            return {"type": "http.request", "body": b"{}"}
        return await asyncio.Event().wait()  # type: ignore[return-value]

    control = SimpleNamespace(servers=SimpleNamespace(acquire=acquire), load=None)
    path = {"type": "http", "method": "POST", "path": "/other", "raw_path": b"/other"}
    forwarder = Forwarder(control)  # type: ignore[arg-type]
    asyncio.run(forwarder({**path, "query_string": b"", "headers": []}, receive, send))  # type: ignore[arg-type]
    assert (answer[0]["status"], len(asked)) == (status, sent)


def test_a_caller_that_takes_nothing_does_not_hold_up_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forward, "STALLED_S", 0.05)
    taken = list[bytes]()

    async def send(message: Mapping[str, Any]) -> None:
        taken.append(message.get("body", b""))
        if len(taken) == 3:
            await asyncio.Event().wait()

    async def answer() -> AsyncIterator[bytes]:
        for word in (b"one", b"two", b"three"):
            yield word

    async def passed() -> None:
        response = httpx2.Response(200, content=answer())
        await asyncio.wait_for(forward._pass(response, send, None), 10.0)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(passed())
    assert taken == [b"", b"one", b"two"]
