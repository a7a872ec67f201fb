from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import make_url, text

from db import Store, open_store
from db.schema import Base
from db.sql import patience
from db.sql.address import read_url
from db.sql.database import Database
from db.sql.engine import FRESH_S
from tests import postgres
from tests.builders import device
from tests.contracts import store as contracts
from tests.contracts.every_store import *  # noqa: F403
from tests.contracts.migrations import MigrationsContract
from tests.errors import raised
from tests.frozen.content import everything
from tests.frozen.make import RELEASES, Release, postgres_server
from tests.integration.stage import JOULETUNE, Wire
from tests.processes import run_to_end, until
from tuner.core import InvalidInput, Notice, StoreError, Topic

HURRIED = {"options": "-c statement_timeout=100"}

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture(scope="session")
def url(server: str) -> str:
    """The URL of a database with our schema."""
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
    with postgres.connection(url) as connection:  # faster than TRUNCATE, which creates new files
        for table in reversed(Base.metadata.sorted_tables):
            connection.execute(table.delete())


class TestUnreadableStudies(contracts.UnreadableStudiesContract):
    pass


class TestSharedBus(contracts.SharedBusContract):
    pass


def test_a_tuner_without_its_connection_stops_leading_and_listens_again(
    url: str, server: str
) -> None:
    one = open_store(url)
    one.bus.listen(lead=True)
    until(lambda: one.bus.leads() and one.bus.lag_s() is not None, "it does not listen")
    heard: list[Notice] = []
    one.bus.subscribe(heard.append)
    with postgres.connection(url) as other:
        for words in ("not ours", '["not", {}, "ours", 7]', "[" * 7000):
            other.execute(text(f"NOTIFY jouletune, '{words}'"))
        other.execute(text("""NOTIFY jouletune, '["x", "events", "last", []]'"""))
    until(lambda: Notice(Topic.EVENTS, "last") in heard, "it is deaf")
    assert heard == [Notice(Topic.EVENTS, "last")] and one.bus.leads()
    drop_connections(server, "contracts")
    until(lambda: Notice(Topic.ORDERS) in heard, "it does not say that all may be new")
    assert Notice(Topic.DEVICES) in heard
    until(one.bus.leads, "it does not lead again")
    one.close()


class TestKeepable(contracts.KeepableContract):
    pass


class TestKilledWriter(contracts.KilledWriterContract):
    pass


class TestMigrations(MigrationsContract):
    @pytest.fixture
    def empty(self, server: str) -> Callable[[], str]:
        return lambda: postgres.new_database(server, f"empty_{uuid4().hex}")


def test_the_error_of_a_full_disk_names_the_next_step(server: str) -> None:
    database = database_of(server)
    fails = "DO $$ BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$"
    full = pytest.raises(StoreError, match="cannot grow: could not extend")
    with full as refused, database.write() as connection:
        connection.execute(text(fails))
    assert "free space" in refused.value.hint
    database.engine.dispose()


def test_text_that_postgresql_cannot_keep_is_bad_input(store: Store) -> None:
    with pytest.raises(InvalidInput, match="NUL"):
        store.devices.put(device(board="A\x00100"))
    assert store.devices.list() == ()


def test_a_dropped_connection_is_made_anew(store: Store, server: str) -> None:
    store.ping()
    assert drop_connections(server, "contracts") >= 1
    store.ping()
    assert store.studies.list() == ()


@pytest.mark.promise("the database fails, stops answering or fills up")
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


def test_a_read_only_database_is_reported(store: Store, server: str) -> None:
    with postgres.connection(server) as connection:
        connection.execute(text("ALTER DATABASE contracts SET default_transaction_read_only = on"))
        try:
            drop_connections(server, "contracts")
            store.ping()
            with pytest.raises(StoreError, match="read-only"):
                store.check_writable()
        finally:
            connection.execute(text("ALTER DATABASE contracts RESET default_transaction_read_only"))
            drop_connections(server, "contracts")
    store.check_writable()


@pytest.fixture
def guarded(server: str) -> Iterator[str]:
    """A database whose server asks user `keeper` for a password: `secret`."""
    url = postgres.new_database(server, "guarded")
    with postgres.connection(server) as connection:
        rules = Path(str(connection.scalar(text("SHOW hba_file"))))
        before = rules.read_text()
        connection.execute(text("CREATE ROLE keeper SUPERUSER LOGIN PASSWORD 'secret'"))
        rules.write_text(f"host guarded keeper all scram-sha-256\n{before}")
        connection.execute(text("SELECT pg_reload_conf()"))
        yield make_url(url).set(username="keeper").render_as_string()
        rules.write_text(before)
        connection.execute(text("SELECT pg_reload_conf()"))
        connection.execute(text("DROP DATABASE guarded WITH (FORCE)"))
        connection.execute(text("DROP ROLE keeper"))


def test_a_passfile_opens_a_database_with_a_password(guarded: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no password supplied"):
        open_store(guarded)
    passfile = tmp_path / "pgpass"
    passfile.write_text("*:*:guarded:keeper:secret\n")
    passfile.chmod(0o600)
    store = open_store(f"{guarded}?passfile={passfile}")
    store.check_writable()
    store.close()


@pytest.mark.parametrize("command", [["tuner", "serve", "--port", "0"], ["doctor"]], ids=" ".join)
def test_a_wrong_password_is_never_shown(guarded: str, command: list[str], tmp_path: Path) -> None:
    url = guarded.replace("keeper@", "keeper:s3cr3t@")
    done = run_to_end(
        [*JOULETUNE, *command],
        cwd=tmp_path,
        env={**os.environ, "JOULETUNE_DB": url, "COLUMNS": "1000"},
    )
    output = done.stdout + done.stderr
    assert "password authentication failed" in output
    assert "s3cr3t" not in output


def test_a_database_that_is_not_there_is_a_store_error(server: str) -> None:
    with pytest.raises(StoreError, match='"nowhere" does not exist'):
        open_store(make_url(server).set(database="nowhere").render_as_string())


@pytest.fixture
def wire(server: str) -> Iterator[Wire]:
    wire = Wire(make_url(server).port or 0)
    yield wire
    wire.close()


def database_of(server: str, **changes: Any) -> Database:  # noqa: ANN401
    return Database(read_url(server).set(**changes))


def test_idle_connections_that_fell_silent_are_replaced(
    url: str, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wire acknowledges packets on open connections, so keepalives do not detect the silence."""
    monkeypatch.setattr(patience, "GRACE_S", 0.4)
    through = make_url(url).set(port=wire.port, query=HURRIED).render_as_string()
    silenced = open_store(through)
    assert silenced.studies.list() == ()
    wire.hush()
    time.sleep(FRESH_S)
    began = time.monotonic()
    assert silenced.studies.list() == ()
    assert time.monotonic() - began > 0.4, "the old connection was asked, and not heard of"
    silenced.close()


@pytest.mark.promise(
    "the database fails, stops answering or fills up",
    "agents keep holds and reports; a silent connection is dropped after 45 s; the "
    "tuner is not ready and gives the reason",
)
def test_a_connection_that_falls_silent_within_a_transaction_is_given_up(
    server: str, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "GRACE_S", 0.4)
    database = database_of(server, port=wire.port, query=HURRIED)
    with pytest.raises(StoreError, match=r"silent for 0\.5 s"), database.read() as connection:
        connection.execute(text("SELECT 1"))
        wire.hush()
        connection.execute(text("SELECT 1"))
    with database.read() as connection:
        assert connection.scalar(text("SELECT 1")) == 1
    database.engine.dispose()


def test_the_locks_of_a_silent_connection_are_released(
    server: str, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "STATEMENT_S", 1)
    monkeypatch.setattr(patience, "GRACE_S", 0.4)
    lock = text("SELECT pg_advisory_xact_lock(1)")
    silenced, other = database_of(server, port=wire.port), database_of(server)
    with pytest.raises(StoreError, match="silent"), silenced.write() as connection:
        connection.execute(lock)
        wire.hush()
        connection.execute(lock)
    with other.write() as connection:
        connection.execute(lock)
    silenced.engine.dispose()
    other.engine.dispose()


def test_a_lost_server_is_noticed_unless_the_url_sets_otherwise(server: str) -> None:
    database = database_of(server, query={"keepalives_idle": "7"})
    with database.engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, patience.PatientConnection)
        given = driver.info.get_parameters()
    assert (given["keepalives_idle"], given["tcp_user_timeout"]) == ("7", "15000")
    database.engine.dispose()


@pytest.mark.parametrize(
    ("query", "limit", "patience_s"),
    [
        ({}, "30s", 45.0),
        ({"options": "-c statement_timeout=60000"}, "1min", 75.0),
        ({"options": "-c statement_timeout=0"}, "0", math.inf),
    ],
)
def test_statements_end_in_time_unless_the_url_sets_otherwise(
    server: str, query: dict[str, str], limit: str, patience_s: float
) -> None:
    database = database_of(server, query=query)
    with database.read() as connection:
        assert connection.scalar(text("SHOW statement_timeout")) == limit
        assert connection.scalar(text("SHOW idle_in_transaction_session_timeout")) == "30s"
        driver = connection.connection.driver_connection
        assert isinstance(driver, patience.PatientConnection)
        assert driver.patience_s == patience_s
    database.engine.dispose()


def test_a_migration_is_not_bounded_by_the_statement_timeout(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "STATEMENT_S", 1)
    database = database_of(server)
    with pytest.raises(StoreError, match="statement timeout"), database.read() as connection:
        connection.execute(text("SELECT pg_sleep(1.5)"))
    with database.alone() as connection:
        connection.execute(text("SELECT pg_sleep(1.5)"))
    database.engine.dispose()


@pytest.mark.parametrize(
    "release", [r for r in RELEASES if r.postgres.exists()], ids=lambda release: release.version
)
def test_the_dump_that_a_release_left_reads_back_as_it_was_put_in(
    server: str, release: Release
) -> None:
    url = postgres.new_database(server, f"frozen{release.version.replace('.', '_')}")
    postgres.restore(url, release.postgres)
    store, written = open_store(url, create=False), open_store("memory://")
    release.fill(written)
    assert everything(store) == everything(written)
    store.close()


def test_what_is_stored_does_not_depend_on_the_servers_defaults(server: str) -> None:
    url, written = postgres.new_database(server, "defaults"), open_store("memory://")
    with postgres.connection(server) as connection:
        for setting in (
            "default_transaction_isolation = 'serializable'",
            "datestyle = 'German'",
            "client_encoding = 'LATIN1'",
            "extra_float_digits = -15",
            "timezone = 'Asia/Kathmandu'",
        ):
            connection.execute(text(f"ALTER DATABASE defaults SET {setting}"))
    store = open_store(url)
    for one in (store, written):
        RELEASES[-1].fill(one)
    assert everything(store) == everything(written)
    late = Database(read_url(url))
    with late.write() as connection:
        connection.execute(text("SELECT * FROM devices"))  # the snapshot, if there is but one
        for found in store.devices.list():
            store.devices.put(replace(found, board="→"))
        connection.execute(text("UPDATE devices SET board = 'x'"))
    late.engine.dispose()
    store.close()


def test_connections_to_a_server_that_became_read_only_are_left(server: str) -> None:
    store = open_store(postgres.new_database(server, "failover"))
    with postgres.connection(server) as connection:
        connection.execute(text("ALTER DATABASE failover SET default_transaction_read_only = on"))
        drop_connections(server, "failover")
        for _ in range(2):
            with raised(StoreError, "takes no writes", "primary"):
                store.devices.put(device())
        connection.execute(text("ALTER DATABASE failover RESET default_transaction_read_only"))
    store.devices.put(device())
    store.close()


def drop_connections(server: str, database: str) -> int:
    """End all connections to a database and return how many there were."""
    with postgres.connection(server) as connection:
        ended = connection.execute(
            text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"),
            {"name": database},
        )
        return len(ended.all())
