from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import make_url, text

from db import open_store
from db.schema import Base
from tests import postgres
from tests.builders import device
from tests.contracts import store as contracts
from tests.contracts.migrations import MigrationsContract
from tuner.core import InvalidInput, Store, StoreError

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


@pytest.fixture(scope="session")
def opened(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()


@pytest.fixture
def store(opened: Store, url: str) -> Iterator[Store]:
    yield opened
    with postgres.connection(url) as connection:  # faster than TRUNCATE, which makes new files
        for table in reversed(Base.metadata.sorted_tables):
            connection.execute(table.delete())


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


class TestKeepable(contracts.KeepableContract):
    pass


class TestKilledWriter(contracts.KilledWriterContract):
    pass


class TestMigrations(MigrationsContract):
    @pytest.fixture
    def empty(self, server: str) -> Callable[[], str]:
        return lambda: postgres.new_database(server, f"empty_{uuid4().hex}")


def test_text_that_postgresql_cannot_keep_is_bad_input(store: Store) -> None:
    with pytest.raises(InvalidInput, match="NUL"):
        store.devices.put(device(board="A\x00100"))
    assert store.devices.list() == ()


def test_a_dropped_connection_is_made_anew(store: Store, server: str) -> None:
    store.ping()
    assert drop_connections(server, "contracts") >= 1
    store.ping()
    assert store.studies.list() == ()


def test_a_server_that_refuses_is_named_and_forgiven(store: Store, server: str) -> None:
    with postgres.connection(server) as connection:
        connection.execute(text("ALTER DATABASE contracts ALLOW_CONNECTIONS false"))
        try:
            drop_connections(server, "contracts")
            with pytest.raises(StoreError, match=r"postgresql://tester@.*/contracts"):
                store.studies.list()
        finally:
            connection.execute(text("ALTER DATABASE contracts ALLOW_CONNECTIONS true"))
    assert store.studies.list() == ()


def test_a_database_that_is_not_there_is_a_store_error(server: str) -> None:
    with pytest.raises(StoreError, match='"nowhere" does not exist'):
        open_store(make_url(server).set(database="nowhere").render_as_string())


def drop_connections(server: str, database: str) -> int:
    """End all connections to a database and return how many there were."""
    with postgres.connection(server) as connection:
        ended = connection.execute(
            text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"),
            {"name": database},
        )
        return len(ended.all())
