"""One unreadable row, in any column of any table that a list reads: the other rows are listed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Float, Integer, String
from sqlalchemy.types import TypeDecorator

from db import Store, open_store
from db.history import HistoryQuestion, history, recent
from db.schema import Base
from tests.builders import START, applied, completed, device, setting, study
from tests.contracts.budgets import GROUP, MEMBER
from tests.contracts.replicas import ONE
from tests.contracts.tokens import ENROL, agent
from tests.errors import raised
from tuner.core import AuditEntry, Delivery, Event, Phase, Unreadable
from tuner.rows import StoredRows

LISTS: dict[str, Callable[[Store], StoredRows[object]]] = {
    "devices": lambda store: store.devices.list(),
    "applied_settings": lambda store: store.devices.standing(),
    "budget_groups": lambda store: store.budgets.groups(),
    "budget_members": lambda store: store.budgets.members(),
    "tokens": lambda store: store.tokens.list(),
    "replicas": lambda store: store.replicas.list(),
    "deliveries": lambda store: store.deliveries.list(),
    "events": lambda store: StoredRows(store.events.list()),
    "audit": lambda store: StoredRows(store.audit.list()),
    **dict.fromkeys(("trials", "measurements", "estimates"), lambda store: store.trials.latest(9)),
}
PLAIN = String, Integer, Float
DAMAGED = [
    (table, column.name)
    for table in LISTS
    for column in Base.metadata.tables[table].c
    if isinstance(column.type, TypeDecorator) or not isinstance(column.type, PLAIN)
    if column.name != "leads"
]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with two rows in each of these tables."""
    path = tmp_path_factory.mktemp("rows") / "tuner.db"
    with closing(open_store(f"sqlite:///{path}")) as store:
        for name in ("a", "b"):
            store.devices.put(device(name))
            store.devices.apply(applied(name))
            store.budgets.put_group(replace(GROUP, name=name))
            store.budgets.put_member(replace(MEMBER, device=name))
            store.replicas.tell(replace(ONE, id=name))
            store.deliveries.put(Delivery(name, 3))
            store.events.add(Event(at=START, kind="note", text=name))
            store.audit.add(
                AuditEntry(
                    id=0,
                    at=START,
                    who=name,
                    role="admin",
                    address="",
                    method="GET",
                    path="/",
                    status=200,
                )
            )
        store.studies.add(study(id="s"), "ann", "")
        for mhz in (600, 800):
            trial = store.trials.begin("s", setting(mhz), Phase.TUNING, "", START)
            store.trials.end("s", trial.number, completed(), START)
        store.tokens.add(ENROL)
        store.tokens.add(agent())
    return path


@pytest.fixture
def file(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(template, tmp_path))


@pytest.fixture
def store(file: Path) -> Iterator[Store]:
    with closing(open_store(f"sqlite:///{file}")) as opened:
        yield opened


@pytest.mark.parametrize(("table", "column"), DAMAGED)
@pytest.mark.parametrize("value", ['{"a newer": "field"', b"\xff\xfe", "", 7])
def test_a_row_that_cannot_be_read_hides_no_other(
    store: Store, file: Path, table: str, column: str, value: object
) -> None:
    whole = list(LISTS[table](store))
    assert len(whole) == 2
    with closing(sqlite3.connect(file)) as raw, raw:
        raw.execute(
            f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = (SELECT max(rowid) FROM "{table}")',
            (value,),
        )
    left = LISTS[table](store)
    assert [row for row in whole if row in left], "the sound row is gone"
    if table not in ("events", "audit"):
        assert len(left) + len(left.unread) == 2
        assert all("cannot be read" in why for why in left.unread.values())


@pytest.mark.parametrize("table", ["trials", "measurements", "estimates"])
def test_a_history_shows_the_trials_beside_an_unreadable_one(
    store: Store, file: Path, table: str
) -> None:
    column = {"trials": "broke", "measurements": "seconds", "estimates": "mean"}[table]
    with closing(sqlite3.connect(file)) as raw, raw:
        raw.execute(
            f"UPDATE {table} SET {column} = 'damaged' WHERE rowid = (SELECT max(rowid) FROM {table})"
        )
    for rows in (history(store, HistoryQuestion()), recent(store, HistoryQuestion(), 9)):
        assert [row.number for row in rows] == [1]
        assert list(rows.unread) == ["trial 2 of s"]
    with raised(Unreadable, "a trial of study 's'"):
        store.trials.list("s")


def test_a_looked_up_device_is_refused_by_name(store: Store, file: Path) -> None:
    with closing(sqlite3.connect(file)) as raw, raw:
        for table in ("budget_groups", "budget_members"):
            raw.execute(f"UPDATE {table} SET document = '{{}}'")
        raw.execute("UPDATE devices SET description = '{}'")
        raw.execute("UPDATE tokens SET role = 'of a newer release'")
    look_ups: dict[str, Callable[[str], object]] = {
        "device": store.devices.get,
        "budget": store.budgets.group,
        "membership": store.budgets.member,
    }
    for what, look_up in look_ups.items():
        with raised(Unreadable, what, "'a'"):
            look_up("a")
    with raised(Unreadable, "token"):
        store.tokens.named("agent@host")
