from __future__ import annotations

from sqlalchemy import update

from db.schema import DeviceRow
from tests.builders import START, device, window
from tests.unit.tuner.study.worlds import World
from tuner.core import NotFound, Space, Unreadable
from tuner.wire import HoldReport, Receipt


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
    answers = world.loop.observed_reports.observe_all(sent)
    assert [type(answer) for answer in answers] == [NotFound, Unreadable, Receipt]
    assert len(world.store.observations.observed("good", START, 9)) == 1
