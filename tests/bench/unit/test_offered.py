"""The entry points of the distribution match its contents."""

from __future__ import annotations

from agents.devices.catalogue import DIAGNOSES_GROUP, GROUP, IN_A_CHECKOUT, TRUTHS_GROUP
from agents.devices.simulated import SERVERS_GROUP
from jouletune_bench.llm import SERVERS
from tuner import installed


def test_every_server_and_every_kind_of_a_checkout_is_offered() -> None:
    assert installed.names(SERVERS_GROUP, {}) == sorted(SERVERS)
    for group in (GROUP, TRUTHS_GROUP, DIAGNOSES_GROUP):
        assert {*IN_A_CHECKOUT} <= {*installed.names(group, {})}
        for kind in IN_A_CHECKOUT:
            assert callable(installed.load(group, {}, kind))
