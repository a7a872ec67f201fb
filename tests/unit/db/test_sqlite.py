from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from db import open_store
from tests.contracts import store as contracts
from tuner.core import Store


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with our schema and nothing in it; migrating one per test would take long."""
    path = tmp_path_factory.mktemp("template") / "tuner.db"
    open_store(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{shutil.copy(template, tmp_path)}")
    yield opened
    opened.close()


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


class TestDevices(contracts.DevicesContract):
    pass


class TestObservations(contracts.ObservationsContract):
    pass


class TestEvents(contracts.EventsContract):
    pass


class TestHistory(contracts.HistoryContract):
    pass
