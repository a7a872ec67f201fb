"""The contract of every store of `open_store`: those of its ports, and that of its answers."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime

import pytest

from db import Store
from tests.builders import applied, device
from tests.contracts.budgets import BudgetsContract
from tests.contracts.devices import DevicesContract
from tests.contracts.history import HistoryContract
from tests.contracts.killed_writer import KilledWriterContract
from tests.contracts.leases import LeasesContract
from tests.contracts.log import (
    AuditContract,
    BusContract,
    DeliveriesContract,
    EventsContract,
    ObservationsContract,
    SharedBusContract,
)
from tests.contracts.replicas import ReplicasContract
from tests.contracts.stops import StopsContract
from tests.contracts.stored import applied_to
from tests.contracts.studies import (
    DeviceOwnershipContract,
    StudiesContract,
    StudyDeletionContract,
    UnreadableStudiesContract,
)
from tests.contracts.tokens import TokensContract
from tests.contracts.trials import ReportsContract, TrialsContract
from tests.errors import raised
from tuner.core import InvalidInput

__all__ = [
    "BudgetsContract",
    "AnsweringContract",
    "AuditContract",
    "BusContract",
    "DeliveriesContract",
    "DeviceOwnershipContract",
    "DevicesContract",
    "EventsContract",
    "HistoryContract",
    "KeepableContract",
    "KilledWriterContract",
    "LeasesContract",
    "ObservationsContract",
    "ReplicasContract",
    "ReportsContract",
    "SharedBusContract",
    "StopsContract",
    "StudiesContract",
    "StudyDeletionContract",
    "TokensContract",
    "TrialsContract",
    "UnreadableStudiesContract",
]


class KeepableContract:
    """A database refuses values that it cannot store; memory stores any value."""

    @pytest.mark.parametrize(
        "changes",
        [
            {"seen_at": datetime(2026, 1, 1)},
            {"board": "\ud800"},
            {"versions": {"load": math.nan}},
        ],
        ids=["a time without a zone", "half a character", "not a number in JSON"],
    )
    def test_a_value_it_cannot_keep_is_bad_input(
        self, store: Store, changes: dict[str, object]
    ) -> None:
        with raised(InvalidInput, "stored"):
            store.devices.put(device("sim", **changes))
        assert store.devices.list() == ()

    def test_a_number_too_large_for_the_database_is_bad_input(self, store: Store) -> None:
        with raised(InvalidInput, "stored"):
            store.devices.apply(replace(applied(), revision=2**63))
        assert applied_to(store, "sim") == ()


class AnsweringContract:
    def test_an_empty_store_answers(self, store: Store) -> None:
        store.ping()
        store.check_writable()
        assert not [*store.studies.list(), *store.devices.list(), *store.events.list()]
