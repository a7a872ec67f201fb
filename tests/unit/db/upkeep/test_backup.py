"""A backup is a snapshot of a database in use, and is restored whole or not at all."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest

from db import Store, open_store
from db.upkeep.backup import backup, restore
from tests.builders import START, completed, setting, study
from tests.errors import raised
from tests.frozen.content import fill
from tuner.core import Conflict, InvalidInput, NotFound, Phase, StoreError


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def numbers(path: Path, name: str = "s1") -> list[int]:
    store = open_store(url(path), create=False)
    trials = [trial.number for trial in store.trials.list(name)]
    store.close()
    return trials


def one_trial(store: Store) -> None:
    trial = store.trials.begin("s1", setting(), Phase.TUNING, "", START)
    store.trials.end("s1", trial.number, completed(trial.number), START)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with a study of three trials."""
    made = tmp_path / "tuner.sqlite"
    store = open_store(url(made))
    store.studies.add(study(), "ann", "")
    for _ in range(3):
        one_trial(store)
    store.close()
    return made


def test_stored_data_are_restored_and_the_former_database_is_kept(
    path: Path, tmp_path: Path
) -> None:
    file = tmp_path / "backup"
    backup(url(path), file)
    store = open_store(url(path))
    one_trial(store)
    store.close()
    former = restore(url(path), file)
    assert numbers(path) == [1, 2, 3]
    assert former is not None and numbers(former) == [1, 2, 3, 4]
    assert not [p.name for p in tmp_path.iterdir() if "restoring" in p.name or "part" in p.name]


@pytest.mark.parametrize("way", ["itself", "a link", "another name", "its log"])
def test_a_backup_onto_the_database_that_is_copied_is_refused(
    path: Path, tmp_path: Path, way: str
) -> None:
    file = path if way == "itself" else tmp_path / "backup"
    if way == "a link":
        file.symlink_to(path)
    elif way == "another name":
        file.hardlink_to(path)
    elif way == "its log":
        file = path.with_name(f"{path.name}-wal")
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match="is the database itself") as refused:
        backup(url(path), file)
    assert refused.value.hint
    assert path.read_bytes() == before
    assert numbers(path) == [1, 2, 3]


def test_a_backup_onto_another_tuners_database_is_refused(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    store = open_store(url(other))
    store.bus.listen()
    with pytest.raises(InvalidInput):
        backup(url(path), other)
    store.close()


def test_only_their_owner_reads_databases_and_backups_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = tmp_path / "tuner.sqlite"
        store = open_store(url(made))
        store.studies.add(study(), "ann", "")
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
        backup(url(made), tmp_path / "backup")
        store.close()
        restore(url(tmp_path / "restored.sqlite"), tmp_path / "backup")
    finally:
        os.umask(before)
    modes |= {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    assert {"tuner.sqlite-wal", "backup", "restored.sqlite"} <= modes.keys()
    assert set(modes.values()) == {0o600}, modes


def test_a_backup_is_restored_to_a_new_file(path: Path, tmp_path: Path) -> None:
    backup(url(path), tmp_path / "backup")
    assert restore(url(tmp_path / "other.sqlite"), tmp_path / "backup") is None
    assert numbers(tmp_path / "other.sqlite") == [1, 2, 3]


def test_a_backup_beside_a_writer_is_one_moment(path: Path, tmp_path: Path) -> None:
    store, ended = open_store(url(path)), threading.Event()

    def write() -> None:
        while not ended.is_set():
            one_trial(store)

    writing = threading.Thread(target=write)
    writing.start()
    counts = []
    for n in range(5):
        backup(url(path), tmp_path / f"backup{n}")
        restore(url(tmp_path / f"{n}.sqlite"), tmp_path / f"backup{n}")
        copied = numbers(tmp_path / f"{n}.sqlite")
        assert copied == list(range(1, len(copied) + 1))
        counts.append(len(copied))
    ended.set()
    writing.join()
    store.close()
    assert counts == sorted(counts) and counts[-1] > 3


def test_a_database_that_a_tuner_has_is_not_replaced(path: Path, tmp_path: Path) -> None:
    backup(url(path), tmp_path / "backup")
    store = open_store(url(path))
    store.bus.listen()
    with raised(Conflict, "tuner"):
        restore(url(path), tmp_path / "backup")
    assert numbers(path) == [1, 2, 3]
    store.close()
    assert restore(url(path), tmp_path / "backup") is not None


def test_an_invalid_backup_is_refused_and_changes_nothing(path: Path, tmp_path: Path) -> None:
    damaged, text, foreign = tmp_path / "damaged", tmp_path / "text", tmp_path / "foreign"
    backup(url(path), damaged)
    content = bytearray(damaged.read_bytes())
    content[4096:12_288] = b"\x55" * 8192
    damaged.write_bytes(content)
    text.write_text("SQLite, or so it says")
    with closing(sqlite3.connect(foreign)) as opened:
        opened.execute("CREATE TABLE x (y)")
        opened.commit()
    before = path.read_bytes()
    for file in (damaged, text, foreign):
        with pytest.raises(InvalidInput):
            restore(url(path), file)
    with raised(NotFound, "No such file"):
        restore(url(path), tmp_path / "none")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("schema", "hint"), [("9999", "upgrade jouletune"), ("0005", "a new database")]
)
def test_a_backup_of_a_newer_program_or_before_0_2_0_is_refused_by_its_name(
    path: Path, tmp_path: Path, schema: str, hint: str
) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"UPDATE alembic_version SET version_num = '{schema}'")
        file.commit()
    shutil.copy(path, tmp_path / "backup")
    with raised(StoreError, schema) as refused:
        restore(url(tmp_path / "other.sqlite"), tmp_path / "backup")
    assert hint in refused.value.hint
    assert not (tmp_path / "other.sqlite").exists()


def test_a_backup_that_cannot_be_written_leaves_the_last_one(path: Path, tmp_path: Path) -> None:
    with raised(StoreError, "database"):
        backup(url(tmp_path / "none"), tmp_path / "backup")
    with pytest.raises(StoreError):
        backup(url(path), tmp_path / "no" / "folder" / "backup")
    assert not (tmp_path / "backup").exists()


def test_a_restored_backup_has_every_row(tmp_path: Path) -> None:
    store = open_store(url(tmp_path / "a.sqlite"))
    fill(store)
    store.close()
    backup(url(tmp_path / "a.sqlite"), tmp_path / "backup")
    restore(url(tmp_path / "b.sqlite"), tmp_path / "backup")
    dumps = []
    for name in ("a", "b"):
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as opened:
            dumps.append(list(opened.iterdump()))
    assert dumps[0] == dumps[1] and len(dumps[0]) > 50
