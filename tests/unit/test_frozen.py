"""Today's code reads each release's data: its database, its messages, its agent's files.

The same is tested for the data of the next release, so that it can be frozen at any time.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from agents.actuator.journal import RestoreJournal
from agents.devices.fake import knobs as fake
from agents.tuner_link import client as agents_client
from agents.tuner_link.credentials import Credentials
from agents.tuner_link.spool import Report
from db import Store, open_store
from tests.builders import Time, policies
from tests.frozen import messages
from tests.frozen.content import AGENT_TOKEN, ENROL_TOKEN, STEPPED, everything
from tests.frozen.make import NEXT, RELEASES, Release, command_lines, schema_sums, write
from tests.frozen.messages import FOUND, MESSAGES, NEW_AGENT, ORDER, RIG, ROOTS, SPOOLED, STOPPER
from tests.stores import memory_store
from tests.unit.agents.actuator.site import FACTORY, GPU, LIMIT, Site
from tuner.cli.app import REMOVED
from tuner.core import TrialState
from tuner.service.http.api import create_app
from tuner.service.operations import Operations
from tuner.study.loop import Loop
from tuner.wire import ORDER as ORDERS
from tuner.wire import Message


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The data of the next release, as they would be frozen now."""
    release = replace(NEXT, top=tmp_path_factory.mktemp("frozen"))
    write(release)
    return release


@pytest.fixture(params=RELEASES, ids=lambda release: release.version)
def release(request: pytest.FixtureRequest) -> Release:
    """The data of a release, frozen or as they would be frozen now."""
    wanted: Release = request.param
    if wanted.folder.exists():
        return wanted
    made: Release = request.getfixturevalue("made")
    return made


def restored(release: Release, path: Path) -> Path:
    """Return an SQLite file with the database of a release."""
    with closing(sqlite3.connect(path)) as file:
        file.executescript(release.sqlite.read_text())
    return path


@pytest.fixture
def store(release: Release, tmp_path: Path) -> Iterator[Store]:
    """The database of a release, opened by today's code."""
    path = restored(release, tmp_path / "tuner.db")
    opened = open_store(f"sqlite:///{path}", create=False)
    yield opened
    opened.close()


def test_the_migrations_of_a_release_stay_as_they_were(release: Release) -> None:
    today = schema_sums().splitlines()
    for line in release.sums.read_text().splitlines():
        assert line in today, (
            f"{release.version} is frozen: leave {line.split()[1]} as it is and add a migration"
        )


def test_every_command_and_option_of_a_release_is_there_or_refused_by_name(
    release: Release,
) -> None:
    def words(text: str) -> set[str]:
        found: set[str] = set()
        for line in text.splitlines():
            command, *options = line.split(" --")
            found |= {command, *(f"{command} --{option}" for option in options)}
        return found

    gone = words(release.commands.read_text()) - words(command_lines()) - REMOVED.keys()
    assert {one for one in gone if one.partition(" --")[0] not in REMOVED} == set()


@pytest.mark.promise("the tuner is upgraded while agents work")
def test_all_that_a_release_stored_reads_back_as_it_was_put_in(
    release: Release, store: Store
) -> None:
    written = memory_store()
    release.fill(written)
    expected, found = everything(written), everything(store)
    assert set(found) == set(expected)
    for what in expected:
        assert found[what] == expected[what], what


def test_the_upgraded_database_has_the_columns_of_a_new_one(
    release: Release, store: Store, tmp_path: Path
) -> None:
    open_store(f"sqlite:///{tmp_path / 'new.db'}").close()
    assert columns(tmp_path / "tuner.db") == columns(tmp_path / "new.db"), release.version


def columns(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return the columns of every table, sorted by name, without their positions."""
    with closing(sqlite3.connect(path)) as file:
        names = [n for (n,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            n: sorted(row[1:] for row in file.execute(f'PRAGMA table_info("{n}")')) for n in names
        }


def test_the_frozen_trials_came_to_every_state_there_is(store: Store) -> None:
    trials = [trial for study in store.studies.list() for trial in store.trials.list(study.id)]
    assert {trial.state for trial in trials} == set(TrialState)


def test_each_message_between_agent_and_tuner_is_frozen(release: Release) -> None:
    spoken = {
        kind
        for kind in vars(agents_client).values()
        if inspect.isclass(kind) and issubclass(kind, Message)
    }
    assert spoken - {Message} == {type(message) for message in NEXT.messages.values()}
    assert {path.stem for path in release.wire.glob("*.json")} == set(release.messages)


def said_by(release: Release, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((release.wire / f"{name}.json").read_text())
    return found


def test_a_message_of_a_release_is_accepted_with_later_fields(release: Release) -> None:
    for name, today in release.messages.items():
        later = json.dumps({**said_by(release, name), "invented": {"later": 1}})
        assert type(today).model_validate_json(later) == today, name


def test_todays_messages_have_all_fields_that_a_release_reads(release: Release) -> None:
    for name, today in release.messages.items():
        assert missing(said_by(release, name), json.loads(today.model_dump_json())) == [], name


def missing(promised: object, said: object, where: str = "$") -> list[str]:
    """Return the paths of values that a message lacks or changes; additional values do not matter."""
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
    "the database is migrated when it is opened; messages and files of earlier releases are accepted",
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
def test_a_tuner_upgraded_in_mid_trial_goes_on_with_the_agent_of_a_release(
    release: Release,
    tuner: TestClient,
    method: str,
    path: str,
    said: str,
    answered: Mapping[str, object],
) -> None:
    token = ENROL_TOKEN if said == "enrolment" else AGENT_TOKEN
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    content = (release.wire / f"{said}.json").read_bytes()
    response = tuner.request(method, path, content=content, headers=headers)
    assert response.status_code == 200, response.text
    assert response.json().items() >= answered.items()


def test_a_trial_left_running_by_an_earlier_release_ends_by_its_agents_report(
    release: Release, tuner: TestClient, store: Store
) -> None:
    headers = {"Authorization": f"Bearer {AGENT_TOKEN}", "Content-Type": "application/json"}
    content = (release.wire / "trial-report.json").read_bytes()
    assert tuner.post("/v1/trials/report", content=content, headers=headers).status_code == 200
    (_, ended) = store.trials.list(STEPPED)
    assert (ended.state, ended.censored) == (TrialState.COMPLETED, True)


@pytest.fixture
def folder(release: Release, tmp_path: Path) -> Path:
    """The files of an agent of a release and of its root process."""
    return Path(shutil.copytree(release.agent, tmp_path / "agent"))


@pytest.mark.promise("the tuner is upgraded while agents work")
def test_an_actuator_killed_after_the_upgrade_restores_the_old_releases_journal(
    release: Release, tmp_path: Path
) -> None:
    """This host's names replace the frozen ones in the record; the rest is unchanged."""
    site = Site(tmp_path)
    site.configure('"gpu.clock_mhz" = { min = 600, max = 1410 }')
    state = fake.load(site.hardware)
    names = {
        "gpu.clock_mhz": LIMIT,
        "1410": "400",
        "900": "250",
        "0000:01:00.0": GPU,
        "boot-1": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "load-1": state["epoch"],
        '"driver": ""': f'"driver": "fake:{site.hardware}"',
    }
    (tmp_path / "state").mkdir()
    for copy in ("json", "copy"):
        frozen = release.agent / f"actuator/0000-01-00.0.{copy}"
        record = json.loads(frozen.read_text())["record"]
        for was, here in names.items():
            assert was in record
            record = record.replace(was, here)
        digest = hashlib.sha256(record.encode()).hexdigest()
        sealed = json.dumps({"sha256": digest, "record": record})
        (tmp_path / f"state/{GPU}.{copy}").write_text(sealed)
    state["devices"][GPU]["values"][LIMIT] = 250
    fake.save(site.hardware, state)
    site.fault({LIMIT: "refuse"})
    process = site.serve()
    process.kill()
    process.wait()
    assert site.values[LIMIT] == 250
    site.fault({})
    assert site.start("restore").wait(20.0) == 0
    assert site.values == FACTORY
    assert not [*(tmp_path / "state").glob(f"{GPU}*")]


@pytest.mark.promise("the tuner is upgraded while agents work")
def test_an_agent_takes_up_the_hold_that_a_release_left(folder: Path) -> None:
    rig = messages.rig(folder)
    rig.target.apply(rig.target.space.default)
    holder = messages.holder(rig)
    assert holder.current is not None
    assert holder.current.order == ORDER
    assert holder.lapsed() == ""
    holder.enforce()
    assert rig.setting == ORDER.plan.rows[-1].setting


def test_an_agent_restores_the_journal_of_an_earlier_release(folder: Path) -> None:
    rig = messages.rig(folder)
    rig.target.apply(ORDER.plan.rows[0].setting)
    (entry,) = rig.journal.devices()
    assert (entry.device, entry.damaged) == (RIG, "")
    assert entry.attached == {"spec": "fake", "workload": "served", "seed": "0"}
    assert rig.journal.restore(RIG, rig.target)
    assert rig.setting == FOUND


def test_an_agent_delivers_the_reports_that_a_release_left_waiting(folder: Path) -> None:
    sent: list[Report] = []
    assert messages.rig(folder).spool.deliver(sent.append) == len(SPOOLED)
    assert tuple(sent) == SPOOLED


def test_an_agent_shows_the_token_that_a_release_was_given(folder: Path) -> None:
    assert Credentials(folder, folder / "token", NEW_AGENT).own == "its own token"


def test_the_root_process_reads_the_journal_that_a_release_left(folder: Path) -> None:
    journal = RestoreJournal(folder / "actuator")
    read = journal.get(ROOTS.device)
    assert read is not None
    # A list is read back as a list.
    assert json.dumps(asdict(read)) == json.dumps(asdict(ROOTS))
    assert journal.stays() == STOPPER


def test_an_order_of_a_release_is_read_as_the_kind_it_is(release: Release) -> None:
    for name in ("assignment", "hold-order", "idle", "release"):
        found = ORDERS.validate_json((release.wire / f"{name}.json").read_bytes())
        assert found == MESSAGES[name]
