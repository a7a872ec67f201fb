"""The contract of every store of replicas: the tuners that use it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from db import Store
from tests.builders import START
from tuner.core import TunerReplica

ONE = TunerReplica(
    id="b1",
    host="tuner-1",
    version="0.1.0",
    started_at=START,
    seen_at=START,
    leads=True,
    bus_lag_s=0.25,
    agents={1: 120, 2: 3},
    token_mark="a0b1",
    cpu_s=12.5,
    memory_bytes=200_000_000,
)


class ReplicasContract:
    def test_a_tuner_is_shown_by_its_last_report(self, store: Store) -> None:
        other = replace(ONE, id="a1", leads=False, bus_lag_s=None, agents={})
        later = replace(ONE, seen_at=START + timedelta(seconds=10), leads=False)
        for replica in (ONE, other, later):
            store.replicas.tell(replica)
        assert list(store.replicas.list()) == [other, later]

    def test_tuners_without_a_report_for_long_are_forgotten(self, store: Store) -> None:
        store.replicas.tell(ONE)
        store.replicas.tell(replace(ONE, id="a1", seen_at=START + timedelta(hours=1)))
        assert store.replicas.prune(START + timedelta(hours=1)) == 1
        assert [r.id for r in store.replicas.list()] == ["a1"]
