"""What everything behind `open_store` keeps to: the contracts of its ports, and answering."""

from __future__ import annotations

from tests.contracts.devices import DevicesContract
from tests.contracts.history import HistoryContract
from tests.contracts.leases import LeasesContract
from tests.contracts.log import EventsContract, ObservationsContract
from tests.contracts.studies import (
    DeviceOwnershipContract,
    StudiesContract,
    StudyDeletionContract,
)
from tests.contracts.trials import ReportsContract, TrialsContract
from tuner.core import Store

__all__ = [
    "AnsweringContract",
    "DeviceOwnershipContract",
    "DevicesContract",
    "EventsContract",
    "HistoryContract",
    "LeasesContract",
    "ObservationsContract",
    "ReportsContract",
    "StudiesContract",
    "StudyDeletionContract",
    "TrialsContract",
]


class AnsweringContract:
    def test_it_answers(self, store: Store) -> None:
        store.ping()
        assert not [*store.studies.list(), *store.devices.list(), *store.events.list()]
