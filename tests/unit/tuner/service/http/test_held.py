"""Agents' reports on holds: stored in batches, each with its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from db.sql.log import Observations
from tests.builders import window
from tests.unit.tuner.study.worlds import World, truth
from tuner.core import (
    AccessRole,
    Busy,
    Caller,
    Forbidden,
    InvalidInput,
    NotFound,
    Observation,
    StoreError,
)
from tuner.service.access import ADMIN, Access
from tuner.service.http.waiting import MOST_REPORTS, CallerReport, HeldWindows
from tuner.wire import HoldOrder, HoldReport, Receipt

STRANGER = Caller("somebody", AccessRole.AGENT)


@pytest.fixture
def world() -> World:
    made = World()
    made.start()
    return made


def report(order: HoldOrder, world: World, minute: int, **changes: object) -> HoldReport:
    began = world.time.now() + timedelta(minutes=minute)
    message = HoldReport.of(
        order,
        device="sim",
        setting=order.plan.rows[-1].setting,
        measurement=replace(window(), started_at=began),
    )
    return message.model_copy(update=changes)


def tell(world: World, messages: Sequence[CallerReport]) -> list[Receipt | BaseException]:
    """Send several reports together, and return the answer to each."""
    access = Access(world.store, world.time.now)

    async def tell_all() -> list[Receipt | BaseException]:
        held = HeldWindows(world.loop, access, lambda: Busy("later", again_s=7.0))
        return await asyncio.gather(
            *(held.report(*one) for one in messages), return_exceptions=True
        )

    return asyncio.run(tell_all())


def test_simultaneous_reports_are_stored_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, stored, own = world.run(truth), list[int](), Observations.add_all

    def add_all(self: Observations, windows: Sequence[Observation]) -> Sequence[bool]:
        stored.append(len(windows))
        return own(self, windows)

    monkeypatch.setattr(Observations, "add_all", add_all)
    answers = tell(world, [(ADMIN, report(order, world, minute)) for minute in range(5)])
    assert answers == [Receipt(result="kept")] * 5
    assert stored == [5]
    assert len(world.store.observations.list(order.study)) == 5


def test_each_report_is_refused_separately(world: World) -> None:
    order = world.run(truth)
    answers = tell(
        world,
        [
            (ADMIN, report(order, world, 1)),
            (STRANGER, report(order, world, 2)),
            (ADMIN, report(order, world, 3, study="gone")),
            (ADMIN, report(order, world, 4, device="other")),
            (ADMIN, report(order, world, 5)),
        ],
    )
    kept = Receipt(result="kept")
    kinds = [a if isinstance(a, Receipt) else type(a) for a in answers]
    assert kinds == [kept, Forbidden, NotFound, InvalidInput, kept]
    assert len(world.store.observations.list(order.study)) == 2


def test_the_end_of_a_hold_among_windows_ends_it(world: World) -> None:
    order = world.run(truth)
    ended = report(order, world, 2, ended="latency_p99_ms is above its limit")
    answers = tell(world, [(ADMIN, report(order, world, 1)), (ADMIN, ended)])
    assert answers == [Receipt(result="kept"), Receipt(result="closed")]
    assert len(world.store.observations.list(order.study)) == 2


def test_without_a_database_everybody_hears_why(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = world.run(truth)

    def silent(*_: object, **__: object) -> None:
        raise StoreError("the database does not answer")

    monkeypatch.setattr(Observations, "add_all", silent)
    answers = tell(world, [(ADMIN, report(order, world, minute)) for minute in (1, 2)])
    assert [str(answer) for answer in answers] == ["the database does not answer"] * 2


def test_a_request_with_too_long_a_wait_gets_a_retry_time(world: World) -> None:
    order = world.run(truth)
    again = [(ADMIN, report(order, world, 1))] * (MOST_REPORTS + 3)
    answers = tell(world, again)
    assert [type(a) for a in answers[MOST_REPORTS:]] == [Busy] * 3
    assert {type(a) for a in answers[:MOST_REPORTS]} == {Receipt}
    assert len(world.store.observations.list(order.study)) == 1


def test_an_error_of_one_message_affects_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    order, own = world.run(truth), Observations.add_all
    bad = report(order, world, 2)

    def add_all(self: Observations, windows: Sequence[Observation]) -> Sequence[bool]:
        if any(w.measurement == bad.measurement for w in windows):
            raise RuntimeError("a fault of ours")
        return own(self, windows)

    monkeypatch.setattr(Observations, "add_all", add_all)
    messages = [(ADMIN, report(order, world, 1)), (ADMIN, bad), (ADMIN, report(order, world, 3))]
    kept, broken, also = tell(world, messages)
    assert kept == also == Receipt(result="kept")
    assert isinstance(broken, RuntimeError)
    assert "the hold reported by sim was rejected" in caplog.text
