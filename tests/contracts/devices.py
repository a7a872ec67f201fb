"""The contract of every store of devices."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from db import Store
from tests.builders import START, applied, device, setting, study
from tests.contracts.stored import applied_to
from tests.contracts.threads import together
from tests.errors import raised
from tuner.core import (
    DeviceBusy,
    Knob,
    Level,
    Metric,
    NotFound,
    Origin,
    Phase,
    Scope,
    Signal,
    Space,
)


class DevicesContract:
    def test_a_device_comes_back_as_it_registered(self, store: Store) -> None:
        rich = device(
            space=Space(
                (Knob("on", (True, False), True), Knob("v", (0.5, 1.0), 1.0)),
                ({"on": True, "v": 1.0}, {"on": False, "v": 0.5}),
            ),
            metrics=(Metric("energy_j", Origin.ESTIMATED, Scope.RAIL), Metric("power_w")),
            signals=(Signal("price", "EUR/kWh"), Signal("requests_in_system", askable=True)),
            cannot={"gpu.clock_mhz": "no permission to set it"},
            versions={"cuda": "12.4"},
        )
        store.devices.put(rich)
        assert store.devices.get("sim") == rich

    def test_a_device_replaces_its_former_description(self, store: Store) -> None:
        store.devices.put(device(cannot={"x": "y"}))
        newer = device(driver="2", workload_version="2", seen_at=START + timedelta(days=1))
        store.devices.put(newer)
        assert store.devices.list() == (newer,)

    def test_devices_are_listed_by_id(self, store: Store) -> None:
        for name in ("b", "a", "C"):
            store.devices.put(device(name))
        assert [d.id for d in store.devices.list()] == ["C", "a", "b"]

    def test_an_unknown_device_is_not_found(self, store: Store) -> None:
        with raised(NotFound, "nobody"):
            store.devices.get("nobody")
        assert applied_to(store, "nobody") == ()

    def test_a_device_belongs_to_the_last_agent_that_registered_it(self, store: Store) -> None:
        for agent in ("first", "second"):
            store.devices.put(device(agent=agent))
        assert store.devices.agent("sim") == "second"
        with pytest.raises(NotFound):
            store.devices.agent("nobody")

    def test_many_agents_may_register_at_once(self, store: Store) -> None:
        together(lambda index: store.devices.put(device(f"d{index % 2}", driver=str(index))))
        assert [d.id for d in store.devices.list()] == ["d0", "d1"]

    def test_changing_a_value_handed_in_or_out_changes_nothing_stored(self, store: Store) -> None:
        mine = {"cuda": "12.4"}
        store.devices.put(device(versions=mine))
        mine["cuda"] = "?"
        cast("dict[str, Any]", store.devices.get("sim").versions).clear()
        assert store.devices.get("sim").versions == {"cuda": "12.4"}

    def test_why_devices_take_no_orders_outlives_their_registration(self, store: Store) -> None:
        for name in ("a", "b", "c"):
            store.devices.put(device(name))
        store.devices.refuse("a", "its driver is gone")
        store.devices.refuse("b", "put back to stay")
        store.devices.refuse("nobody", "unknown")
        store.devices.put(device("a", driver="2"))
        assert store.devices.refusals() == {"a": "its driver is gone", "b": "put back to stay"}
        assert store.devices.refusals(["b", "c"]) == {"b": "put back to stay"}
        store.devices.refuse("b", "")
        assert store.devices.refusals(["b", "c"]) == {}

    def test_when_devices_were_heard_of_is_known_by_their_ids(self, store: Store) -> None:
        later = START + timedelta(minutes=1)
        for name in ("a", "b"):
            store.devices.put(device(name))
        store.devices.seen({"b": later, "nobody": later})
        assert store.devices.heard_at() == {"a": START, "b": later}

    def test_applied_settings_are_listed_latest_first(self, store: Store) -> None:
        notes = [
            applied(),
            replace(applied(level=Level.TRIAL, at=setting(600)), at=START + timedelta(seconds=1)),
            replace(applied(level=Level.HOLD, at=setting(600)), study="s1", revision=3),
            replace(applied(level=Level.HOLD, at=setting(600)), study="s1", revision=4),
        ]
        for note in notes:
            store.devices.apply(note)
        store.devices.apply(applied("other"))
        assert list(applied_to(store, "sim")) == notes[::-1]
        standing = {one.device: one for one in store.devices.standing()}
        assert standing == {"sim": notes[-1], "other": applied("other")}

    def test_applied_settings_since_a_time_follow_the_one_before(self, store: Store) -> None:
        store.devices.put(device())
        clocks = (1000, 800, 600, 400)
        notes = [
            replace(applied("sim", Level.HOLD, setting(c)), at=START + timedelta(hours=n))
            for n, c in enumerate(clocks)
        ]
        for note in notes:
            store.devices.apply(note)
        since = START + timedelta(minutes=90)
        assert store.devices.applied("sim", since, 9) == tuple(notes[1:])
        assert store.devices.applied("sim", since, 2) == tuple(notes[2:])
        assert store.devices.applied("other", since, 9) == ()

    def test_the_same_note_is_kept_once_until_something_else_was_noted(self, store: Store) -> None:
        again = replace(applied(), at=START + timedelta(hours=1))
        store.devices.apply(applied())
        store.devices.apply(again)
        assert applied_to(store, "sim") == (applied(),)
        store.devices.apply(applied(level=Level.TRIAL))
        store.devices.apply(again)
        assert applied_to(store, "sim") == (again, applied(level=Level.TRIAL), applied())

    def test_the_same_note_made_at_once_is_kept_once(self, store: Store) -> None:
        store.devices.put(device())
        together(lambda _: store.devices.apply(applied()))
        assert applied_to(store, "sim") == (applied(),)

    def test_when_a_device_was_seen_is_noted_for_those_that_are_known(self, store: Store) -> None:
        later = START + timedelta(minutes=1)
        for name in ("a", "b"):
            store.devices.put(device(name))
        store.devices.seen({"b": later, "nobody": later})
        assert [(d.id, d.seen_at) for d in store.devices.list()] == [("a", START), ("b", later)]

    def test_a_forgotten_device_loses_its_applied_settings(self, store: Store) -> None:
        for name in ("sim", "other"):
            store.devices.put(device(name))
            store.devices.apply(applied(name))
        store.devices.forget("sim")
        assert [d.id for d in store.devices.list()] == ["other"]
        assert applied_to(store, "sim") == ()
        assert applied_to(store, "other") == (applied("other"),)
        with raised(NotFound, "sim"):
            store.devices.forget("sim")

    def test_a_device_of_an_active_study_is_not_forgotten(self, store: Store) -> None:
        store.devices.put(device())
        store.studies.add(study(), "ann", "created")
        with raised(DeviceBusy, "s1"):
            store.devices.forget("sim")
        store.studies.revise(study().moved(Phase.STOPPED), "ann", "enough", START)
        store.devices.forget("sim")
        assert store.studies.get("s1").devices == ("sim",)
