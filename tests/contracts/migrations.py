"""The contract of the migrations on every database."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.engine.interfaces import ReflectedIndex

from db import SCHEMA, open_store
from db.schema import Base
from db.sql.address import read_url
from db.sql.engine import connect
from db.sql.upgrade import revision
from tests.builders import START, completed, setting, study
from tests.contracts.killed_writer import ROOT
from tests.contracts.stored import trial_states
from tests.contracts.threads import together
from tests.errors import raised
from tuner.core import Phase, StoreError


@contextmanager
def engine(url: str) -> Iterator[Engine]:
    opened = connect(read_url(url))
    yield opened
    opened.dispose()


def migrate(connection: Connection, to: str) -> None:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "db:migrations")
    present = revision(connection)
    down = to == "base" or (to != "head" and present is not None and to < present)
    (command.downgrade if down else command.upgrade)(config, to)


def predicate(index: ReflectedIndex) -> str:
    """Return the condition of a partial index; empty for an index of all rows."""
    options = index.get("dialect_options", {})
    return " ".join(str(v) for k, v in options.items() if k.endswith("_where"))


def described(connection: Connection) -> dict[str, object]:
    """Return the schema of a database as it reports it: columns, keys, constraints and indexes."""
    inspector = inspect(connection)
    return {
        table: {
            "columns": {
                c["name"]: (str(c["type"]), c["nullable"]) for c in inspector.get_columns(table)
            },
            "primary key": inspector.get_pk_constraint(table),
            "foreign keys": sorted(map(str, inspector.get_foreign_keys(table))),
            "uniques": sorted(map(str, inspector.get_unique_constraints(table))),
            "checks": sorted(map(str, inspector.get_check_constraints(table))),
            "indexes": sorted(
                (str(i["name"]), i["column_names"], i["unique"], predicate(i))
                for i in inspector.get_indexes(table)
            ),
        }
        for table in inspector.get_table_names()
        if table != "alembic_version"
    }


class MigrationsContract:
    """Needs a fixture `empty`: every call gives the URL of another empty database."""

    def test_the_migrated_schema_is_that_of_the_models(self, empty: Callable[[], str]) -> None:
        migrated, created = empty(), empty()
        open_store(migrated).close()
        with engine(migrated) as one, engine(created) as other:
            Base.metadata.create_all(other)
            with one.connect() as ours, other.connect() as theirs:
                context = MigrationContext.configure(ours, opts={"compare_type": True})
                assert compare_metadata(context, Base.metadata) == []
                schema = described(ours)
                assert set(schema) == set(Base.metadata.tables)
                assert schema == described(theirs)
                claims = inspect(ours).get_indexes("study_devices")
                assert sorted(map(predicate, claims)) == ["", "active"]

    def test_a_schema_goes_down_and_comes_up_the_same(self, empty: Callable[[], str]) -> None:
        with engine(empty()) as opened, opened.connect() as connection:
            migrate(connection, "head")
            first = described(connection)
            assert revision(connection) == SCHEMA
            migrate(connection, "base")
            assert described(connection) == {}
            migrate(connection, "head")
            assert described(connection) == first

    def test_an_older_database_is_upgraded_when_it_is_opened(
        self, empty: Callable[[], str]
    ) -> None:
        url = empty()
        with engine(url) as opened, opened.begin() as connection:
            migrate(connection, "head")
            migrate(connection, "base")
        open_store(url).close()
        with engine(url) as opened, opened.connect() as connection:
            assert revision(connection) == SCHEMA

    @pytest.mark.parametrize(("schema", "why"), [("0005", "before 0.2.0"), ("9999", "newer")])
    def test_a_database_of_a_newer_program_or_before_0_2_0_is_left_alone(
        self, empty: Callable[[], str], schema: str, why: str
    ) -> None:
        url = empty()
        with engine(url) as opened:
            with opened.begin() as connection:
                migrate(connection, min(schema, SCHEMA))
                connection.execute(text(f"UPDATE alembic_version SET version_num = '{schema}'"))
                tables = inspect(connection).get_table_names()
            with raised(StoreError, f"{why} jouletune" if why == "newer" else why):
                open_store(url)
            with opened.connect() as connection:
                assert revision(connection) == schema
                assert inspect(connection).get_table_names() == tables

    def test_without_create_an_empty_database_stays_empty(self, empty: Callable[[], str]) -> None:
        url = empty()
        with engine(url) as opened, opened.connect() as connection:
            with raised(StoreError, "tables"):
                open_store(url, create=False)
            assert inspect(connection).get_table_names() == []

    def test_programs_that_open_a_new_database_at_once_all_find_it_ready(
        self, empty: Callable[[], str]
    ) -> None:
        url = empty()
        code = f"from db import SCHEMA, open_store; open_store({url!r}).studies.list()"
        programs = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for _ in range(2)]
        stores = together(lambda _: open_store(url), threads=2)
        for store in stores:
            assert store.studies.list() == ()
            store.close()
        assert [program.wait(timeout=60) for program in programs] == [0, 0]

    def test_stored_data_survive_a_reopening(self, empty: Callable[[], str]) -> None:
        url = empty()
        store = open_store(url)
        store.studies.add(study(), "ann", "")
        trial = store.trials.begin("s1", setting(), Phase.TUNING, "", START)
        token = store.leases.grant("sim", "s1", trial, "host", START).token
        store.leases.release("sim", token)
        store.trials.end("s1", 1, completed(), START)
        kept = store.studies.list(), store.trials.list("s1"), trial_states(store, "s1", 1)
        store.close()
        again = open_store(url, create=False)
        states = trial_states(again, "s1", 1)
        assert (again.studies.list(), again.trials.list("s1"), states) == kept
        following = replace(trial, attempt=2)
        assert again.leases.grant("sim", "s1", following, "host", START).token > token
        again.close()
