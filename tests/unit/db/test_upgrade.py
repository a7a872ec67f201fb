"""A file is copied before its migration: an older release cannot read it afterwards."""

from __future__ import annotations

import logging
import resource
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from db import SCHEMA, open_store
from db.sql import upgrade
from db.sql.upgrade import keep_copy
from db.upkeep.backup import restore
from tests.contracts.migrations import engine, migrate
from tests.contracts.threads import together
from tests.frozen.make import RELEASES
from tuner.core import StoreError

FORMER = f"{int(SCHEMA) - 1:04}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A filled database with the second newest schema."""
    made = tmp_path / "tuner.sqlite"
    with closing(sqlite3.connect(made)) as file:
        frozen = [one.sqlite for one in RELEASES if one.sqlite.exists()]
        file.executescript(frozen[-1].read_text())
    start(made)
    with engine(f"sqlite:///{made}") as opened, opened.begin() as connection:
        migrate(connection, FORMER)
    for copy in tmp_path.glob("*.schema-*"):
        copy.unlink()
    return made


def schema(path: Path) -> str:
    with closing(sqlite3.connect(path)) as file:
        return str(file.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as file:
        return [*file.iterdump()]


def start(path: Path) -> None:
    open_store(f"sqlite:///{path}").close()


def copies(path: Path) -> list[str]:
    return sorted(p.name for p in path.parent.iterdir() if "schema" in p.name)


@pytest.mark.promise(
    "the tuner is upgraded while agents work",
    "an SQLite file is copied beside itself before it is migrated",
)
def test_a_file_of_an_older_schema_is_copied_and_the_way_back_is_logged(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = dump(path)
    with caplog.at_level(logging.WARNING):
        start(path)
    copy = path.with_name(f"tuner.sqlite.schema-{FORMER}")
    assert (schema(path), schema(copy)) == (SCHEMA, FORMER)
    assert dump(copy) == before
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    (line,) = caplog.messages
    assert (
        f"from={FORMER} to={SCHEMA}: to roll back, stop the tuner, put {copy} in its place" in line
    )


def test_nothing_is_copied_without_a_migration(path: Path, tmp_path: Path) -> None:
    start(tmp_path / "new.sqlite")
    assert copies(path) == []
    start(path)
    path.with_name(f"tuner.sqlite.schema-{FORMER}").unlink()
    start(path)
    assert copies(path) == []


def test_a_database_that_is_rolled_back_and_upgraded_again_is_copied_again(path: Path) -> None:
    start(path)
    copy = path.with_name(f"tuner.sqlite.schema-{FORMER}")
    path.write_bytes(copy.read_bytes())
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("DELETE FROM observations")
    before = dump(path)
    start(path)
    assert (copies(path), dump(copy)) == ([copy.name], before)


def test_without_its_copy_nothing_is_migrated(path: Path) -> None:
    taken = path.with_name(f"tuner.sqlite.schema-{FORMER}")
    (taken / "a file").mkdir(parents=True)
    with pytest.raises(StoreError, match="the database is not migrated") as refused:
        start(path)
    assert refused.value.hint
    assert schema(path) == FORMER
    assert copies(path) == [taken.name]


@contextmanager
def filling() -> Iterator[Callable[[int], None]]:
    """Return a context in which no file may grow beyond a number of bytes, as on a full disk."""
    least, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))


@pytest.mark.promise("the disk fills during a migration", "nothing is migrated or half-written")
def test_a_copy_that_fills_the_disk_is_removed_and_nothing_is_migrated(path: Path) -> None:
    before = dump(path)
    with filling() as fill, pytest.raises(StoreError, match="database is not migrated") as refused:
        fill(path.stat().st_size // 2)
        start(path)
    assert "free space" in refused.value.hint
    assert dump(path) == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.promise("the disk fills during a migration")
def test_a_migration_that_fills_the_disk_is_not_logged_as_done(
    path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = dump(path)
    with filling() as fill, caplog.at_level(logging.WARNING), pytest.raises(StoreError):

        def then_full(database: Path, schema: str) -> Path:
            made = keep_copy(database, schema)
            fill(4096)
            return made

        monkeypatch.setattr(upgrade, "keep_copy", then_full)
        start(path)
    assert dump(path) == before == dump(path.with_name(f"tuner.sqlite.schema-{FORMER}"))
    assert not caplog.messages


def test_if_programs_open_a_database_at_once_one_makes_the_copy(path: Path) -> None:
    together(lambda _: start(path), 4)
    assert schema(path) == SCHEMA
    assert schema(path.with_name(f"tuner.sqlite.schema-{FORMER}")) == FORMER


def test_a_backup_of_an_older_schema_that_is_restored_leaves_no_copy(
    path: Path, tmp_path: Path
) -> None:
    restore(f"sqlite:///{tmp_path / 'restored.sqlite'}", path)
    assert schema(tmp_path / "restored.sqlite") == SCHEMA
    assert copies(path) == []
