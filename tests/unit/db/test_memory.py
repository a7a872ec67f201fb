from __future__ import annotations

import pytest

from db import Store, open_store
from tests.builders import device
from tests.contracts import store as contracts
from tests.stores import memory_store


@pytest.fixture
def store() -> Store:
    return memory_store()


class TestAnswering(contracts.AnsweringContract):
    pass


class TestStudies(contracts.StudiesContract):
    pass


class TestDeviceOwnership(contracts.DeviceOwnershipContract):
    pass


class TestStudyDeletion(contracts.StudyDeletionContract):
    pass


class TestTrials(contracts.TrialsContract):
    pass


class TestReports(contracts.ReportsContract):
    pass


class TestLeases(contracts.LeasesContract):
    pass


class TestTokens(contracts.TokensContract):
    pass


class TestDevices(contracts.DevicesContract):
    pass


class TestBudgets(contracts.BudgetsContract):
    pass


class TestStops(contracts.StopsContract):
    pass


class TestObservations(contracts.ObservationsContract):
    pass


class TestEvents(contracts.EventsContract):
    pass


class TestAudit(contracts.AuditContract):
    pass


class TestDeliveries(contracts.DeliveriesContract):
    pass


class TestReplicas(contracts.ReplicasContract):
    pass


class TestBus(contracts.BusContract):
    pass


class TestHistory(contracts.HistoryContract):
    pass


def test_two_memories_know_nothing_of_each_other(store: Store) -> None:
    store.devices.put(device())
    assert open_store("memory://").devices.list() == ()
