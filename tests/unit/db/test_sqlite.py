from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event, text

from db import Store, open_store
from db.sql.address import read_url
from db.sql.database import Database
from tests.builders import study
from tests.contracts import store as contracts
from tests.contracts.every_store import *  # noqa: F403
from tests.contracts.killed_writer import killed_after
from tests.errors import raised
from tuner.core import StoreError


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database with our schema; to migrate one per test would take long."""
    path = tmp_path_factory.mktemp("template") / "tuner.db"
    open_store(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(template, tmp_path))


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()


class TestUnreadableStudies(contracts.UnreadableStudiesContract):
    @pytest.mark.parametrize("document", ['{"id": "hu', "", "12", 12, 1e308, b"{\xff}"])
    def test_text_that_is_not_json(
        self, store: Store, url: str, path: Path, document: object
    ) -> None:
        """As left by a damaged page or a manual edit; PostgreSQL's columns accept only JSON."""
        self._hurt(store, url, "{}")
        with closing(sqlite3.connect(path)) as raw, raw:
            raw.execute(
                "UPDATE study_revisions SET document = ? WHERE study_id = 'hurt'", (document,)
            )
        assert [s.id for s in store.studies.list()] == ["good"]
        assert [s.id for s in store.studies.stored()] == ["good", "hurt"]
        assert set(store.studies.windows_s(("a", "b", "c"))) == {"a"}
        assert store.studies.situation("b").unreadable
        assert store.studies.situation("a").study is not None


class TestSharedBus(contracts.SharedBusContract):
    pass


class TestKeepable(contracts.KeepableContract):
    pass


class TestKilledWriter(contracts.KilledWriterContract):
    pass


def test_a_killed_writer_leaves_a_complete_file(store: Store, url: str, path: Path) -> None:
    store.studies.add(study(), "ann", "")
    killed_after(url, 5)
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert file.execute("PRAGMA foreign_key_check").fetchall() == []
        assert file.execute("PRAGMA journal_mode").fetchall() == [("wal",)]


def test_readers_do_not_wait_for_a_writer(store: Store, path: Path) -> None:
    store.studies.add(study(), "ann", "")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM studies")
        assert store.studies.get("s1") == study()
        other.execute("ROLLBACK")


def test_a_writer_that_waits_too_long_names_the_database(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("db.sql.engine.BUSY_TIMEOUT_MS", 20)
    store = open_store(url)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with raised(StoreError, path):
            store.studies.add(study(), "ann", "")
        other.execute("ROLLBACK")
    assert store.studies.list() == ()
    store.close()


def test_the_error_of_a_full_disk_names_the_next_step(url: str) -> None:
    database = Database(read_url(url))
    event.listen(
        database.engine,
        "connect",
        lambda connection, _: connection.execute("PRAGMA max_page_count = 1"),
    )
    full = raised(StoreError, "full")
    with full as refused, database.write() as session:
        session.execute(text("CREATE TABLE large AS SELECT zeroblob(1000000)"))
    assert "free space" in refused.value.hint
    database.engine.dispose()


def test_the_error_of_a_damaged_or_read_only_file_names_the_next_step(url: str, path: Path) -> None:
    open_store(url).close()
    database = Database(read_url(f"sqlite:///file:{path}?mode=ro&uri=true"))
    with raised(StoreError, "takes no writes", "writable"), database.write() as session:
        session.execute(text("DELETE FROM events"))
    database.engine.dispose()
    path.write_bytes(path.read_bytes()[:8192] + b"\xff" * path.stat().st_size)
    for _ in range(2):
        with raised(StoreError, "is damaged", "jouletune db restore", url):
            open_store(url)
        path.write_bytes(b"\xff" * 8192)
    path.unlink()
    with raised(StoreError, "cannot be opened", "writable"):
        Database(read_url(url)).share_file(write=True)


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_database_file_removed_under_a_tuner_is_reported_and_nothing_is_acknowledged(
    store: Store, path: Path, template: Path, how: str
) -> None:
    store.studies.add(study(), "ann", "")
    store.check_writable()
    kept = path.with_name("kept")
    path.rename(kept)
    if how == "replaced":
        shutil.copy(template, path)
    calls: list[Callable[[], object]] = [
        store.check_writable,
        store.ping,
        store.studies.list,
        lambda: store.studies.add(replace(study(), id="s2"), "ann", ""),
    ]
    for ask in calls:
        with pytest.raises(StoreError, match=f"was {how} while it was in use") as refused:
            ask()
        assert "start it" in refused.value.hint
    assert path.exists() == (how == "replaced"), "no empty database is made in its place"
    path.unlink(missing_ok=True)
    kept.rename(path)
    assert [one.id for one in store.studies.list()] == ["s1"]
