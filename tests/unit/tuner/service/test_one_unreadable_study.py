"""One unreadable study in the database: every list, page, report, export and scrape answers.

Its document is of a newer release, or is not JSON, as after a damaged page.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from db import Store, open_store
from db.history import HistoryQuestion, history, recent
from tests.builders import START, applied, completed, device, setting
from tests.errors import raised
from tests.unit.tuner.cli import worlds
from tests.unit.tuner.web.site import Site, send
from tuner.cli.app import main
from tuner.core import Phase, Unreadable, UnreadableStudy
from tuner.service.metrics.counts import Counts
from tuner.service.metrics.fleet_metrics import FleetCollector
from tuner.service.operations import Operations
from tuner.study.silence import Silence
from tuner.wire import HoldReport, Poll, Receipt, Release, StudyDraft

HURT = "badc0ffe"


@pytest.fixture(params=['{"release": 99}', '{"id": "bad'])
def document(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def good(tmp_path: Path, document: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a holding study, beside an unreadable study on another device."""
    made, path = worlds.database(tmp_path), tmp_path / worlds.FILE
    monkeypatch.setenv("JOULETUNE_DB", f"sqlite:///{path}")
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.devices.put(device("bad-device"))
        like = store.studies.get(made)
        hurt = replace(
            like, id=HURT, devices=("bad-device",), phase=Phase.TUNING, plan=None, created_at=START
        )
        store.studies.add(hurt, "test", "created")
        trial = store.trials.begin(HURT, setting(600), Phase.TUNING, "", START)
        store.trials.end(HURT, trial.number, completed(), START)
    with closing(sqlite3.connect(path)) as raw, raw:
        change = "UPDATE study_revisions SET document = ? WHERE study_id = ?"
        raw.execute(change, (document, HURT))
    return made


@pytest.fixture
def store(good: str, tmp_path: Path) -> Iterator[Store]:
    with closing(open_store(f"sqlite:///{tmp_path / worlds.FILE}")) as opened:
        yield opened


@pytest.fixture
def verbs(store: Store) -> Operations:
    return worlds.operations(store)


def test_lists_show_an_unreadable_studys_error_in_its_row(verbs: Operations, good: str) -> None:
    rows = {view.id: view for view in verbs.studies()}
    assert set(rows) == {good, HURT} and not rows[good].error
    assert "cannot be read" in rows[HURT].error and rows[HURT].devices == ("bad-device",)
    assert {d.device.id: d.study for d in verbs.devices()}["bad-device"] == HURT
    stored = verbs.loop.store
    for trials in (history(stored, HistoryQuestion()), recent(stored, HistoryQuestion(), 50)):
        (own,) = [row for row in trials if row.study == HURT]
        assert own.verdict is None and "cannot be read" in own.reason
        assert good in {row.study for row in trials}
    for name in (HURT, HURT[:4]):
        with raised(Unreadable, HURT):
            verbs.report(name)


def test_pages_show_the_error_in_its_row(verbs: Operations, good: str) -> None:
    site = Site(verbs)
    with site.signed_in() as browser:
        site.fleet.summaries.renew()
        for page in ("/", "/studies", "/history", f"/studies/{good}", "/events"):
            assert browser.get(page).status_code == 200, page
        for page in ("/", "/studies", f"/compare?study={good}&study={HURT}"):
            shown = browser.get(page).text
            assert good in shown and HURT in shown and "cannot be read" in shown, page
            assert "sqlite:" not in shown, f"{page} has the database's address"
        for page in ("/", "/devices/bad-device"):
            assert "unreadable" in (shown := browser.get(page).text) and "cannot be read" in shown
        refused = browser.get(f"/studies/{HURT}")
        assert refused.status_code == 409 and f"/studies/{HURT}/stop" in refused.text
        assert "sqlite:" not in refused.text
        assert site.fleet.view().health["unreadable"] == 1
        send(browser, f"/studies/{HURT}/stop", f"/studies/{HURT}", why="it cannot be read")
    assert verbs.loop.store.studies.phases()[HURT][0] is Phase.STOPPED


def test_a_scrape_counts_the_others_and_names_it(verbs: Operations, good: str) -> None:
    fleet = Site(verbs).fleet
    collector = FleetCollector(fleet, Counts(), "test")
    list(collector.collect())
    fleet.summaries.renew()
    samples = {
        (s.name, s.labels.get("study", "")): s.value for m in collector.collect() for s in m.samples
    }
    assert samples["jouletune_study_unreadable", HURT] == 1.0
    assert samples["jouletune_studies_pending", ""] == 0.0
    assert ("jouletune_study_saving_ratio", good) in samples


def test_the_command_line_has_the_others_and_the_reason_why_not_this_one(
    good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported = f"sqlite:///{tmp_path / 'optuna.db'}"
    for command in (
        ["report", "--since", "2025-01-01"],
        ["study", "list"],
        ["history"],
        ["study", "compare", good, HURT],
        ["export", "optuna", "--storage", exported],
    ):
        assert main(command) == 0, command
        output = capsys.readouterr()
        assert HURT in output.out + output.err, command
        assert good in output.out or command[0] == "export", command
    assert main(["device", "show", "bad-device"]) == 0
    assert (
        f"{HURT}: unreadable" in (printed := capsys.readouterr().out)
        and "cannot be read" in printed
    )
    assert main(["study", "show", HURT]) == 1
    assert "; " in capsys.readouterr().err


@pytest.mark.parametrize("running", [False, True])
def test_it_is_stopped_and_deleted_by_its_id_alone(
    verbs: Operations, good: str, running: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    store = verbs.loop.store
    if running:
        store.trials.begin(HURT, setting(600), Phase.TUNING, "", START)
    assert main(["study", "pause", HURT]) == 1 and "cannot be read" in capsys.readouterr().err
    assert main(["study", "delete", HURT, "--yes"]) == 1 and "stop" in capsys.readouterr().err
    for _ in range(2):  # stopping it twice changes nothing
        assert main(["study", "stop", HURT[:4], "--yes"]) == 0
    assert "already stopped" in capsys.readouterr().out
    (ended,) = [s for s in store.studies.stored() if s.id == HURT]
    assert (ended.phase, ended.active, store.trials.running(HURT)) == (Phase.STOPPED, False, ())
    assert (
        isinstance(ended, UnreadableStudy) and store.studies.situation("bad-device").study is None
    )
    fresh = StudyDraft.model_validate({"devices": ["bad-device"], "policy": "scripted"})
    assert verbs.create(fresh).devices == ("bad-device",)
    assert main(["study", "delete", HURT, "--yes"]) == 0 and good in store.studies.ids()
    assert HURT not in store.studies.ids()


def test_its_device_is_released_and_reports_of_others_are_kept(
    verbs: Operations, good: str
) -> None:
    loop = verbs.loop
    at = applied("bad-device")
    order = loop.order("bad-device", Poll(agent="a/1", applied=at))
    assert isinstance(order, Release) and "cannot be read" in order.why
    held = loop.store.studies.get(good)
    messages = [
        HoldReport(device=device, study=study, revision=1, setting=setting(600), ended="")
        for device, study in (("bad-device", HURT), (held.devices[0], good))
    ]
    first, second = loop.hold_reports.observe_all(messages)
    assert isinstance(first, Unreadable) and isinstance(second, Receipt)


def test_the_unreadable_studys_trial_keeps_no_other_from_ending(
    verbs: Operations, good: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = verbs.loop
    for study in (HURT, good):
        loop.store.trials.begin(study, setting(600), Phase.TUNING, "", START)
    monkeypatch.setattr(Silence, "abandoned", lambda *_: True)
    assert loop.trial_reports.reap() == 1
    assert loop.store.trials.running(HURT) and not loop.store.trials.running(good)
