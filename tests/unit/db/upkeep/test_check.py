"""What is wrong with a database is said, with the next step."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from db import open_store
from db.upkeep.check import check
from tests.builders import START
from tests.errors import raised
from tests.frozen.content import fill
from tuner.core import Event, StoreError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "tuner.sqlite"
    store = open_store(f"sqlite:///{made}")
    fill(store)
    store.events.add(Event(at=START, kind="backed up", text=""))
    store.close()
    return made


def wrong(path: Path, days: float = 1.0) -> list[str]:
    found = check(f"sqlite:///{path}", lambda: START + timedelta(days=days))
    assert all(c.hint for c in found if not c.well), "who reads it is told what to do"
    return [c.about for c in found if not c.well]


def test_a_filled_database_is_well(path: Path) -> None:
    assert wrong(path) == []
    assert wrong(path, days=8.0) == ["last backup"]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE studies SET last_trial = last_trial + 1", "trials are counted up"),
        ("UPDATE studies SET revision = 99", "every study has its present revision"),
        ("UPDATE trials SET ended_at = NULL", "every ended trial has its end"),
        ("DELETE FROM studies", "rows belong to others that are there"),
        ("UPDATE alembic_version SET version_num = '9999'", "schema"),
    ],
)
def test_what_is_wrong_is_named(path: Path, damage: str, said: str) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA foreign_keys = OFF")
        file.execute(damage)
        file.commit()
    assert said in wrong(path)


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with raised(StoreError, "database"):
        check(f"sqlite:///{tmp_path / 'none.sqlite'}", lambda: START)
    assert not (tmp_path / "none.sqlite").exists()
