"""The contract of every store of the emergency stop."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from db import Store
from tests.builders import START
from tests.contracts.threads import together
from tuner.core import FleetStop

STOP = FleetStop(at=START, who="ann", why="smoke in rack 4")


class StopsContract:
    def test_an_order_stands_until_it_is_lifted(self, store: Store) -> None:
        assert store.stops.current() is None
        assert store.stops.order(STOP) == STOP
        assert store.stops.current() == STOP
        assert store.stops.lift()
        assert store.stops.current() is None
        assert not store.stops.lift()

    def test_the_first_order_stands_when_it_is_given_again(self, store: Store) -> None:
        store.stops.order(STOP)
        later = FleetStop(at=START + timedelta(hours=1), who="bob")
        assert store.stops.order(later) == STOP

    def test_who_is_back_is_remembered_until_it_says_otherwise(self, store: Store) -> None:
        store.stops.order(STOP)
        for device in ("a", "b", "a"):
            store.stops.report(device, back=True)
        store.stops.report("b", back=False)
        assert store.stops.current() == replace(STOP, back=frozenset({"a"}))

    def test_who_was_back_under_one_order_is_not_under_the_next(self, store: Store) -> None:
        store.stops.order(STOP)
        store.stops.report("a", back=True)
        store.stops.lift()
        store.stops.report("b", back=True)
        assert store.stops.order(STOP).back == frozenset()

    def test_many_may_report_at_once(self, store: Store) -> None:
        store.stops.order(STOP)
        together(lambda index: store.stops.report(f"d{index % 2}", back=True))
        assert store.stops.current() == replace(STOP, back=frozenset({"d0", "d1"}))
