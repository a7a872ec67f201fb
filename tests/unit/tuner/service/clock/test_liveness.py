"""Reports that a tuner is alive: to other tuners, to systemd's watchdog, and to HTTP clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from anyio import to_thread

from db import Store
from tests.builders import Time, applied, device, policies
from tests.errors import raised
from tests.stores import memory_store
from tuner.core import StoreError
from tuner.service.clock import liveness
from tuner.service.clock.liveness import FRESH_S, Readiness, Roll, Watchdog, mark_of
from tuner.study.loop import Loop
from tuner.wire import Poll


def told_by(store: Store, time: Time, token: str = "one") -> Roll:
    loop = Loop(store, policies, time.now, monotonic=time.monotonic)
    loop.register(device())
    loop.order("sim", Poll(agent="host/1", applied=applied()))
    return Roll(loop, "tuner-1", "0.1.0", token)


def test_a_tuner_reports_itself_and_its_contacts() -> None:
    store, time = memory_store(), Time()
    roll = told_by(store, time)
    roll.tell()
    time.at += timedelta(seconds=5)
    roll.tell()
    (replica,) = store.replicas.list()
    assert (replica.host, replica.version, replica.leads) == ("tuner-1", "0.1.0", True)
    assert replica.seen_at - replica.started_at == timedelta(seconds=5)
    assert replica.agents == {1: 1}
    assert replica.cpu_s > 0.0 and replica.memory_bytes > 1_000_000
    time.at += timedelta(hours=1)
    roll.tell()
    (replica,) = store.replicas.list()
    assert replica.agents == {}, "who fell silent speaks nothing"


def test_another_token_file_raises_a_warning_without_any_token(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, time = memory_store(), Time()
    told_by(store, time).tell()
    told_by(store, time).tell()
    assert "token file" not in caplog.text
    told_by(store, time, "another").tell()
    assert caplog.text.count("has a different token file") == 2
    assert all(len(one.token_mark) == 4 for one in store.replicas.list())
    assert mark_of("one") != mark_of("another")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    notices: list[str] = []
    monkeypatch.setattr(liveness, "notify", notices.append)
    return notices


async def until(there: Callable[[], bool], step: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.timeout(30.0):
        while not there():
            await step()
            await asyncio.sleep(0.01)


async def assert_unfed_until_opened(
    watched: Watchdog, gate: threading.Event, notices: list[str]
) -> None:
    """Call often while the gate is shut, when only the first call counts, and then open it."""
    for _ in range(5):
        await watched.tell()
        await asyncio.sleep(0.01)
    assert len(notices) == 1
    gate.set()
    await until(lambda: len(notices) == 2, watched.tell)


def waits(gate: threading.Event) -> None:
    gate.wait(30.0)


def refuses() -> None:
    raise StoreError("it is down")


@pytest.mark.parametrize("ping", [lambda: None, refuses])
def test_a_returned_ping_feeds_the_watchdog_with_any_answer(
    ping: Callable[[], None], told: list[str]
) -> None:
    asyncio.run(until(lambda: len(told) == 3, Watchdog(ping).tell))
    assert set(told) == {"READY=1\nWATCHDOG=1"}


def test_a_ping_that_hangs_sends_no_keep_alive_until_it_answers(told: list[str]) -> None:
    gate = threading.Event()

    asyncio.run(assert_unfed_until_opened(Watchdog(lambda: waits(gate)), gate, told))


def test_worker_threads_that_are_all_stuck_feed_nothing(told: list[str]) -> None:
    """They may also hang outside the database, at a study's lock."""
    gate = threading.Event()

    async def play() -> None:
        threads = to_thread.current_default_thread_limiter()
        threads.total_tokens = 2
        stuck = [asyncio.create_task(to_thread.run_sync(gate.wait, 30.0)) for _ in range(2)]
        await until(lambda: threads.available_tokens == 0, lambda: asyncio.sleep(0))
        await assert_unfed_until_opened(Watchdog(lambda: None), gate, told)
        await asyncio.gather(*stuck)

    asyncio.run(play())


def test_many_requests_cause_one_check_of_the_store() -> None:
    now, times = [0.0], []
    readiness = Readiness(lambda: times.append(now[0]), clock=lambda: now[0])

    async def play() -> None:
        await asyncio.gather(*(readiness.prove() for _ in range(50)))
        now[0] += FRESH_S / 2
        await readiness.prove()
        assert times == [0.0]
        now[0] += FRESH_S
        await readiness.prove()

    asyncio.run(play())
    assert times == [0.0, 1.5 * FRESH_S]


def test_a_store_that_takes_writes_again_is_ready_again() -> None:
    now, full = [0.0], [True]

    def check() -> None:
        if full[0]:
            raise StoreError("the disk is full", hint="free space")

    async def play() -> None:
        readiness = Readiness(check, clock=lambda: now[0])
        for _ in range(2):
            with raised(StoreError, "disk"):
                await readiness.prove()
        full[0], now[0] = False, FRESH_S
        await readiness.prove()

    asyncio.run(play())


def test_a_store_that_does_not_come_back_is_not_ready() -> None:
    gate = threading.Event()

    async def play() -> None:
        readiness = Readiness(lambda: waits(gate), patience_s=0.05)
        for _ in range(2):
            with raised(StoreError, "write"):
                await readiness.prove()
        gate.set()

    asyncio.run(play())
