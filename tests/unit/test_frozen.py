"""What 0.1.0 wrote is understood by today's code: its database, its messages, its agent's files."""

from __future__ import annotations

import inspect
import json
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from agents.actuator.journal import RestoreJournal
from agents.tuner_link import client as agents_client
from agents.tuner_link.credentials import Credentials
from agents.tuner_link.spool import Report
from db import open_store
from tests.builders import Time, policies
from tests.frozen import messages
from tests.frozen.content import AGENT_TOKEN, ENROL_TOKEN, STEPPED, everything, fill
from tests.frozen.make import AGENT, SQLITE, SUM, TOP, WIRE, schema_sum
from tests.frozen.messages import FOUND, MESSAGES, NEW_AGENT, ORDER, RIG, ROOTS, SPOOLED, STOPPER
from tests.stores import memory_store
from tuner.core import Store, TrialState
from tuner.service.http.api import create_app
from tuner.service.operations import Operations
from tuner.study.loop import Loop
from tuner.wire import ORDER as ORDERS
from tuner.wire import Message


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """The database that 0.1.0 wrote, as today's code opens it."""
    path = tmp_path / "tuner.db"
    with closing(sqlite3.connect(path)) as file:
        file.executescript(SQLITE.read_text())
    opened = open_store(f"sqlite:///{path}", create=False)
    yield opened
    opened.close()


def test_the_schema_of_0_1_0_stays_as_it_was_released() -> None:
    frozen, path = SUM.read_text().split()
    assert (TOP / path).exists()
    assert frozen == schema_sum(), (
        f"0.1.0 is frozen: leave {path} as it is and add a migration "
        "(until 0.1.0 is tagged: `python -m tests.frozen.make`)"
    )


@pytest.mark.promise("the tuner is upgraded while agents work")
def test_all_that_0_1_0_stored_reads_back_as_it_was_put_in(store: Store) -> None:
    written = memory_store()
    fill(written)
    expected, found = everything(written), everything(store)
    assert set(found) == set(expected)
    for what in expected:
        assert found[what] == expected[what], what


def test_the_frozen_trials_came_to_every_state_there_is(store: Store) -> None:
    trials = [trial for study in store.studies.list() for trial in store.trials.list(study.id)]
    assert {trial.state for trial in trials} == set(TrialState)


def test_each_message_between_agent_and_tuner_is_frozen() -> None:
    spoken = {
        kind
        for kind in vars(agents_client).values()
        if inspect.isclass(kind) and issubclass(kind, Message)
    }
    assert spoken - {Message} == {type(message) for message in MESSAGES.values()}
    assert {path.stem for path in WIRE.glob("*.json")} == set(MESSAGES)


def frozen(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((WIRE / f"{name}.json").read_text())
    return found


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_of_0_1_0_is_understood_whatever_a_later_one_adds(name: str) -> None:
    today = MESSAGES[name]
    later = json.dumps({**frozen(name), "invented": {"later": 1}})
    assert type(today).model_validate_json(later) == today


@pytest.mark.parametrize("name", MESSAGES)
def test_what_is_said_today_has_all_that_0_1_0_reads(name: str) -> None:
    assert missing(frozen(name), json.loads(MESSAGES[name].model_dump_json())) == []


def missing(promised: object, said: object, where: str = "$") -> list[str]:
    """Return where a message lacks what another says; what it has beside that is no matter."""
    if isinstance(promised, Mapping) and isinstance(said, Mapping):
        return [
            gap
            for key, value in promised.items()
            for gap in (
                missing(value, said[key], f"{where}.{key}") if key in said else [f"{where}.{key}"]
            )
        ]
    if isinstance(promised, list) and isinstance(said, list) and len(promised) == len(said):
        pairs = enumerate(zip(promised, said, strict=True))
        return [gap for i, (a, b) in pairs for gap in missing(a, b, f"{where}[{i}]")]
    return [] if promised == said else [f"{where}: {promised!r} became {said!r}"]


@pytest.fixture
def tuner(store: Store) -> Iterator[TestClient]:
    """Today's tuner over the frozen database, once the stop of all devices is lifted."""
    assert store.stops.lift()
    operations = Operations(Loop(store, policies, Time().now))
    app = create_app(operations, "admin", frozenset({"testserver"}), "0")
    with TestClient(app) as client:
        yield client


@pytest.mark.promise(
    "the tuner is upgraded while agents work",
    "the database is migrated when it is opened; messages and files of 0.1.0 are accepted",
)
@pytest.mark.parametrize(
    ("method", "path", "said", "answered"),
    [
        ("POST", "/v1/enrol", "enrolment", {"agent": NEW_AGENT}),
        ("PUT", "/v1/devices/sim@edge", "registration", {"lease_s": 30.0}),
        ("POST", "/v1/devices/sim@edge/next", "poll", {"kind": "idle", "why": "the disk is full"}),
        ("POST", "/v1/trials/renew", "renewal", {"lease_s": 30.0}),
        ("POST", "/v1/trials/report", "trial-report", {"result": "closed"}),
        ("POST", "/v1/holds/report", "hold-report", {"result": "kept"}),
        ("POST", "/v1/holds/report", "hold-ended", {"result": "closed"}),
        ("POST", "/v1/reverts", "reverted", {"result": "closed"}),
    ],
)
def test_a_tuner_upgraded_in_mid_trial_goes_on_with_the_agent_of_0_1_0(
    tuner: TestClient, method: str, path: str, said: str, answered: Mapping[str, object]
) -> None:
    token = ENROL_TOKEN if said == "enrolment" else AGENT_TOKEN
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    content = (WIRE / f"{said}.json").read_bytes()
    response = tuner.request(method, path, content=content, headers=headers)
    assert response.status_code == 200, response.text
    assert response.json().items() >= answered.items()


def test_the_trial_that_0_1_0_left_running_ends_as_its_agent_says(
    tuner: TestClient, store: Store
) -> None:
    headers = {"Authorization": f"Bearer {AGENT_TOKEN}", "Content-Type": "application/json"}
    content = (WIRE / "trial-report.json").read_bytes()
    assert tuner.post("/v1/trials/report", content=content, headers=headers).status_code == 200
    (_, ended) = store.trials.list(STEPPED)
    assert (ended.state, ended.censored) == (TrialState.COMPLETED, True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What an agent of 0.1.0 and its root process left on the disk."""
    return Path(shutil.copytree(AGENT, tmp_path / "agent"))


@pytest.mark.promise("the tuner is upgraded while agents work")
def test_an_agent_takes_up_the_hold_that_0_1_0_left(folder: Path) -> None:
    rig = messages.rig(folder)
    rig.target.apply(rig.target.space.default)
    holder = messages.holder(rig)
    assert holder.current is not None
    assert holder.current.order == ORDER
    assert holder.lapsed() == ""
    holder.enforce()
    assert rig.setting == ORDER.plan.rows[-1].setting


def test_an_agent_puts_back_what_0_1_0_noted(folder: Path) -> None:
    rig = messages.rig(folder)
    rig.target.apply(ORDER.plan.rows[0].setting)
    (entry,) = rig.journal.devices()
    assert (entry.device, entry.damaged) == (RIG, "")
    assert entry.attached == {"spec": "fake", "workload": "served", "seed": "0"}
    assert rig.journal.restore(RIG, rig.target)
    assert rig.setting == FOUND


def test_an_agent_delivers_the_reports_that_0_1_0_left_waiting(folder: Path) -> None:
    sent: list[Report] = []
    assert messages.rig(folder).spool.deliver(sent.append) == len(SPOOLED)
    assert tuple(sent) == SPOOLED


def test_an_agent_shows_the_token_that_0_1_0_was_given(folder: Path) -> None:
    assert Credentials(folder, folder / "token", NEW_AGENT).own == "its own token"


def test_the_root_process_reads_the_journal_that_0_1_0_left(folder: Path) -> None:
    journal = RestoreJournal(folder / "actuator")
    assert journal.get(ROOTS.device) == ROOTS
    assert journal.stays() == STOPPER


def test_an_order_of_0_1_0_is_read_as_the_kind_it_is() -> None:
    for name in ("assignment", "hold-order", "idle", "release"):
        found = ORDERS.validate_json((WIRE / f"{name}.json").read_bytes())
        assert found == MESSAGES[name]
