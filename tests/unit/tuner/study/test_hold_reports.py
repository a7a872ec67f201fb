"""Held windows with impossible claims are stored, not billed, and noted once; observed ones are kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from pydantic import ValidationError
from sqlalchemy import update

from db.schema import DeviceRow
from tests.builders import START, device, saved, window
from tests.unit.tuner.study.worlds import World, truth
from tuner.core import Estimate, Load, Measurement, NotFound, Space, Unreadable
from tuner.service.operations import Operations
from tuner.wire import HoldOrder, HoldReport, Receipt


def told(world: World, order: HoldOrder, seen: Measurement, speaks_s: float | None = None) -> None:
    world.loop.hold_reports.observe(
        HoldReport.of(
            order,
            device="sim",
            setting=order.plan.rows[0].setting,
            measurement=seen,
            speaks_s=speaks_s,
        )
    )


@pytest.fixture
def world() -> World:
    made = World()
    made.start()
    return made


def doubts(world: World) -> list[str]:
    return [e.text for e in world.store.events.list("s1") if e.kind == "implausible"]


def held(minute: float, **changed: object) -> Measurement:
    at = START + timedelta(minutes=minute)
    return replace(window(6.0, 110.0), started_at=at, **changed)  # type: ignore[arg-type]


def saved_j(world: World) -> float:
    return saved(Operations(world.loop).report("s1").bill).saved_j or 0.0


def test_a_window_of_a_quadrillion_items_saves_nothing_and_is_noted_once(world: World) -> None:
    order = world.run(truth)
    no_power = {"energy_j": Estimate.of_mean(6.0, 0.06)}
    for minute in (1, 2, 3):
        world.time.sleep(60.0)
        many = held(minute, load=Load(completed=10**15), estimates=no_power)
        told(world, order, many)
    assert saved_j(world) == 0.0
    assert len(doubts(world)) == 1
    assert "items/s, its trials measured at most 50" in doubts(world)[0]
    assert len(world.store.observations.list("s1")) == 3, "it is kept as evidence"


def test_windows_that_overlap_are_billed_once_and_that_is_noted(world: World) -> None:
    order = world.run(truth)
    world.time.sleep(60.0)
    for second in range(20):
        told(world, order, held(1 + second / 60.0, seconds=60.0, load=Load(completed=3000)))
    assert 0.0 < saved_j(world) <= 4.0 * 50.0 * 80.0
    assert len(doubts(world)) == 1
    assert "overlap" in doubts(world)[0]


def test_honest_windows_are_billed_and_nothing_is_noted(world: World) -> None:
    order = world.run(truth)
    for minute, speaks_s in ((1, None), (2, None), (3, 15.0)):
        world.time.sleep(60.0)
        told(world, order, held(minute), speaks_s)
    assert saved_j(world) == pytest.approx(4.0 * 50.0 * (10 + 60 + 15))
    assert doubts(world) == []
    with pytest.raises(ValidationError, match="speaks_s"):
        told(world, order, held(4), -1.0)


def test_a_held_window_of_zero_energy_is_not_kept(world: World) -> None:
    order = world.run(truth)
    told(world, order, held(1, estimates={"energy_j": Estimate.of_mean(0.0, 0.0)}))
    assert world.store.observations.list("s1") == ()
    assert "energy_j is 0 J" in doubts(world)[0]


def test_a_device_that_cannot_be_read_costs_no_other_its_window() -> None:
    world = World()
    for name in ("good", "hurt"):
        world.store.devices.put(device(name, space=Space(()), observed=True))
    with world.store.devices._database.write() as connection:
        connection.execute(update(DeviceRow).where(DeviceRow.id == "hurt").values(description={}))
    sent = [
        HoldReport(device=name, study="", revision=0, setting={}, measurement=window(6.0, 110.0))
        for name in ("gone", "hurt", "good")
    ]
    answers = world.loop.hold_reports.observe_all(sent)
    assert [type(answer) for answer in answers] == [NotFound, Unreadable, Receipt]
    assert len(world.store.observations.observed("good", START, 9)) == 1
