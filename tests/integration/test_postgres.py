from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import text

from db import open_store
from db.schema import Base
from tests import postgres
from tests.contracts import store as contracts
from tests.contracts.migrations import MigrationsContract
from tuner.core import Store

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    # Not pytest's own temporary folder: that is closed to the user the server runs as.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with postgres.server(Path(folder) / "server") as url:
            yield url


@pytest.fixture(scope="session")
def url(server: str) -> str:
    """The URL of a database that has our schema."""
    url = postgres.new_database(server, "contracts")
    open_store(url).close()
    return url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()
    with postgres.connection(url) as connection:
        connection.execute(text(f"TRUNCATE {', '.join(Base.metadata.tables)}"))


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


class TestMigrations(MigrationsContract):
    @pytest.fixture
    def empty(self, server: str) -> Callable[[], str]:
        return lambda: postgres.new_database(server, f"empty_{uuid4().hex}")
