"""The contracts that every store keeps; a test module imports all and has a fixture `store`."""

from __future__ import annotations

from tests.contracts import store as contracts


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
