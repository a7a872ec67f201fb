"""Each fault of a database is reported with the next step."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
import typer

from db import open_store
from db.upkeep.check import check
from tests.builders import START
from tests.errors import raised
from tests.frozen.content import fill
from tuner.cli.fleet.db import backup_, restore_
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
    checks = check(f"sqlite:///{path}", lambda: START + timedelta(days=days))
    assert all(c.hint for c in checks if not c.well), "who reads it is told what to do"
    return [c.about for c in checks if not c.well]


def test_a_filled_database_is_well(path: Path) -> None:
    assert wrong(path) == []
    assert wrong(path, days=8.0) == ["last backup"]


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        ("UPDATE studies SET last_trial = last_trial + 1", "trial numbers are consecutive"),
        ("UPDATE studies SET revision = 99", "every study has its current revision"),
        ("UPDATE trials SET ended_at = NULL", "every ended trial has an end time"),
        ("DELETE FROM studies", "foreign keys are valid"),
        ("UPDATE alembic_version SET version_num = '9999'", "schema"),
    ],
)
def test_faults_are_named(path: Path, damage: str, name: str) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA foreign_keys = OFF")
        file.execute(damage)
        file.commit()
    assert name in wrong(path)


def test_studies_that_cannot_be_read_are_named_and_the_others_looked_at(path: Path) -> None:
    url = f"sqlite:///{path}"
    store = open_store(url)
    first, *others = store.studies.ids()
    store.close()
    assert others
    with closing(sqlite3.connect(path)) as file:
        hurt = "UPDATE study_revisions SET document = '{\"release\": 99}' WHERE study_id = ?"
        file.execute(hurt, [first])
        file.commit()
    (readable,) = [c for c in check(url, lambda: START) if c.about == "every study is readable"]
    assert not readable.well and readable.seen == f"not {first}"
    assert f"jouletune db restore FILE --db {url}`" in readable.hint


def test_every_command_in_a_hint_can_be_typed(path: Path) -> None:
    url = f"sqlite:///{path}"
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA foreign_keys = OFF")
        file.execute("UPDATE studies SET last_trial = last_trial + 1")
        file.execute("DELETE FROM events WHERE kind = 'backed up'")
        file.commit()
    hints = [finding.hint for finding in check(url, lambda: START) if finding.hint]
    typed = [words for hint in hints for words in re.findall(r"`jouletune ([^`]*)`", hint)]
    assert {words.split()[1] for words in typed} == {"restore", "backup"}
    verbs = typer.Typer()
    for name, verb in (("backup", backup_), ("restore", restore_)):
        verbs.command(name)(verb)
    group = typer.main.get_group(verbs)
    for words in typed:
        name, *options = words.split()[1:]
        assert group.commands[name].make_context(name, options).params["db"] == url


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with raised(StoreError, "database"):
        check(f"sqlite:///{tmp_path / 'none.sqlite'}", lambda: START)
    assert not (tmp_path / "none.sqlite").exists()
