"""The contract of every store of the emergency stop."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from db import Store
from tests.builders import START
from tests.contracts.threads import together
from tuner.core import FleetStop

STOP = FleetStop(at=START, who="ann", why="smoke in rack 4")


EACH = pytest.mark.parametrize("device", ["", "a"], ids=["all devices", "one device"])


class StopsContract:
    @EACH
    def test_a_stop_is_in_force_until_it_is_lifted(self, store: Store, device: str) -> None:
        order = replace(STOP, device=device)
        assert store.stops.current(device) is None
        assert store.stops.order(order) == order
        assert store.stops.current(device) == order
        assert (store.stops.current("b") is None) is bool(device)
        store.stops.report("a", back=True)
        assert store.stops.current(device) == replace(order, back=frozenset({"a"}))
        store.stops.report("a", back=False)
        assert store.stops.current(device) == order
        assert store.stops.lift(device)
        assert store.stops.current(device) is None
        assert not store.stops.lift(device)

    @EACH
    def test_the_first_order_stays_when_it_is_given_again(self, store: Store, device: str) -> None:
        order = replace(STOP, device=device)
        store.stops.order(order)
        later = FleetStop(at=START + timedelta(hours=1), who="bob", device=device)
        assert store.stops.order(later) == order

    def test_the_orders_for_all_devices_and_for_one_end_separately(self, store: Store) -> None:
        own = replace(STOP, device="a")
        store.stops.order(own)
        store.stops.order(STOP)
        store.stops.lift()
        assert store.stops.released() == {"a": own} and store.stops.current() is None

    def test_a_restored_device_counts_until_it_reports_otherwise(self, store: Store) -> None:
        store.stops.order(STOP)
        for device in ("a", "b", "a"):
            store.stops.report(device, back=True)
        store.stops.report("b", back=False)
        assert store.stops.current() == replace(STOP, back=frozenset({"a"}))

    def test_a_confirmation_counts_for_one_order_only(self, store: Store) -> None:
        store.stops.order(STOP)
        store.stops.report("a", back=True)
        store.stops.lift()
        store.stops.report("b", back=True)
        assert store.stops.order(STOP).back == frozenset()

    def test_many_agents_may_report_at_once(self, store: Store) -> None:
        store.stops.order(STOP)
        together(lambda index: store.stops.report(f"d{index % 2}", back=True))
        assert store.stops.current() == replace(STOP, back=frozenset({"d0", "d1"}))
