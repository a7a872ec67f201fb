"""One unreadable study, group, membership, device or token: all others are shown, capped and exported."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy import update

from db import Store, open_store
from db.history import HistoryQuestion, history, recent
from db.schema import BudgetGroupRow, BudgetMemberRow, DeviceRow
from db.sql.budgets import MEMBERS
from tests.builders import START, applied, completed, device, setting
from tests.errors import raised
from tests.unit.tuner.cli import worlds
from tests.unit.tuner.service.budgets.test_divider import FakeHost, Rack
from tests.unit.tuner.web.site import Site, send
from tuner.cli.app import main
from tuner.core import Conflict, Phase, Unreadable, UnreadableStudy
from tuner.presentation.standing import device_status, worst_first
from tuner.service.declared.export import exported
from tuner.service.metrics.counts import Counts
from tuner.service.metrics.fleet_metrics import FleetCollector
from tuner.service.operations import Operations
from tuner.study.trial_reports import Silence
from tuner.wire import BudgetDraft, Change, HoldReport, Poll, Receipt, Release, StudyDraft

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
    good: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (
        ["report", "--since", "2025-01-01"],
        ["study", "list"],
        ["history"],
        ["study", "compare", good, HURT],
    ):
        assert main(command) == 0, command
        output = capsys.readouterr()
        assert HURT in output.out + output.err, command
        assert good in output.out, command
    assert main(["device", "show", "bad-device"]) == 0
    assert (
        f"{HURT}: unreadable" in (printed := capsys.readouterr().out)
        and "cannot be read" in printed
    )
    assert main(["study", "show", HURT]) == 1
    assert "; " in capsys.readouterr().err


def test_an_export_has_the_others_and_its_id(
    good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mlflow.tracking")
    assert main(["export", "mlflow", "--tracking-uri", f"sqlite:///{tmp_path / 'mlflow.db'}"]) == 0
    assert HURT in (output := capsys.readouterr()).out + output.err


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


@contextmanager
def damaged(rack: Rack, column: Any, which: Any) -> Iterator[None]:  # noqa: ANN401
    """Damage the JSON of a row, and repair it afterwards."""
    store = rack.world.loop.store
    assert isinstance(store, Store)
    with store._database.read() as connection:
        whole = connection.scalar(
            column.class_.__table__.select().with_only_columns(column).where(which)
        )
    for value in ({"of": "a newer release"}, whole):
        with store._database.act() as connection:
            connection.execute(update(column.class_).where(which).values({column.key: value}))
        if value != whole:
            yield


@pytest.fixture
def rack() -> Rack:
    """Two groups, with three devices and with one."""
    made = Rack()
    made.set(600.0)
    made.world.loop.register(device("other"))
    made.hosts["other"] = FakeHost()
    made.exchange("other")
    draft = BudgetDraft.model_validate({"select": {"id": ["other"]}, "watts": 300.0})
    made.operations.set_budget("second", draft)
    made.pass_s(8)
    return made


def noted(rack: Rack) -> list[str]:
    return [e.text for e in rack.world.loop.store.events.list() if e.kind == "row failed"]


def test_a_group_that_cannot_be_read_keeps_its_caps_and_the_others_are_divided(rack: Rack) -> None:
    site = Site(rack.operations)
    before = {name: host.cap_w(rack.now_s) for name, host in rack.hosts.items()}
    with damaged(rack, BudgetGroupRow.document, BudgetGroupRow.name == "rack"):
        draft = BudgetDraft.model_validate({"select": {"id": ["other"]}, "watts": 200.0})
        rack.operations.set_budget("second", draft)
        rack.pass_s(8)
        after = {name: host.cap_w(rack.now_s) for name, host in rack.hosts.items()}
        assert after == before | {"other": 200.0}
        views = {view.name: view for view in rack.operations.budgets()}
        assert "cannot be read" in views["rack"].error and views["second"].budget_w == 200.0
        assert len([text for text in noted(rack) if "dividing the watts of rack" in text]) == 1
        with site.signed_in() as browser:
            shown = browser.get("/budgets").text
            assert "cannot be read" in shown and "second: 200 W" in shown
        with raised(Unreadable, "rack"):
            rack.set(500.0)
    rack.pass_s(2)
    assert any("rack works again" in text for text in noted(rack))


def test_a_group_that_cannot_be_read_can_be_released(rack: Rack) -> None:
    with damaged(rack, BudgetGroupRow.document, BudgetGroupRow.name == "rack"):
        rack.operations.release_budget("rack", Change(who="ann"))
    rack.pass_s(8)
    assert [view.name for view in rack.operations.budgets()] == ["second"]
    assert {host.group for name, host in rack.hosts.items() if name != "other"} == {""}


def test_beside_a_membership_that_cannot_be_read_no_cap_is_raised(rack: Rack) -> None:
    with damaged(rack, BudgetMemberRow.document, BudgetMemberRow.device == "gpu1"):
        rack.gone.add("gpu1")  # its requests are refused
        rack.set(900.0)
        rack.pass_s(8)
        assert rack.drawn_w() == 600.0 + 300.0
        assert any("the membership of gpu1 failed" in text for text in noted(rack))
    rack.gone.clear()
    rack.pass_s(8)
    assert rack.drawn_w() == 900.0 + 300.0


@pytest.mark.parametrize("restarted", [False, True])
def test_a_membership_that_cannot_be_read_counts_at_its_worst_when_a_budget_falls(
    rack: Rack, restarted: bool
) -> None:
    """gpu1 may draw 350 W; a tuner that never read that leaves the others their floors, 100 W each."""
    with damaged(rack, BudgetMemberRow.document, BudgetMemberRow.device == "gpu1"):
        rack.gone.add("gpu1")
        if restarted:
            rack.operations.divider._default_w.clear()
        rack.set(590.0)
        rack.pass_s(8)
        others = sum(rack.hosts[name].cap_w(rack.now_s) for name in ("gpu0", "gpu2"))
        assert others == pytest.approx(200.0 if restarted else 590.0 - 350.0, abs=0.01)
        assert rack.operations.budget("rack").may_draw_w <= others + 0.01


@pytest.mark.parametrize("watts", [True, "1e9", "300"])
def test_a_text_or_a_switch_is_not_a_number_of_watts(rack: Rack, watts: object) -> None:
    """Neither in a stored membership nor in a message."""
    store = rack.world.loop.store
    member = store.budgets.member("gpu1")
    assert member is not None
    stored = MEMBERS.dump_python(member, mode="json")
    stored["power"]["default_w"] = watts
    with store._database.act() as connection:
        mine = update(BudgetMemberRow).where(BudgetMemberRow.device == "gpu1")
        connection.execute(mine.values(document=stored))
    assert set(store.budgets.members().unread) == {"gpu1"}
    with pytest.raises(ValidationError, match="watts"):
        BudgetDraft.model_validate({"select": {"id": ["gpu1"]}, "watts": watts})


def test_an_export_names_the_groups_it_leaves_out_and_why(rack: Rack) -> None:
    with damaged(rack, BudgetGroupRow.document, BudgetGroupRow.name == "rack"):
        text = exported(rack.world.loop)
    assert "# rack is left out: " in text and 'name = "second"' in text
    assert "left out" not in exported(rack.world.loop)


def test_a_device_that_cannot_be_read_is_a_row_of_the_fleet_and_is_not_back(rack: Rack) -> None:
    site = Site(rack.operations)
    with damaged(rack, DeviceRow.description, DeviceRow.id == "gpu1"):
        rows = {row.device: row for row in site.fleet.view().rows}
        assert "cannot be read" in rows["gpu1"].error
        assert not rows["gpu0"].error and len(rows) == 4
        with site.signed_in() as browser:
            assert "gpu1" in browser.get("/").text
            page = browser.get("/devices/gpu1")
            assert page.status_code == 200
            assert "cannot be read" in page.text and "update the tuner" in page.text
            assert "Tune this device" not in page.text
        views = {view.device.id: view for view in rack.operations.devices()}
        assert "cannot be read" in views["gpu1"].error and set(views) == set(rows)
        assert device_status(views["gpu1"]) == "unreadable"
        assert rows["gpu1"].health == "unreadable" == worst_first(rows.values())[0].health
        rack.operations.stop_all(Change(who="ann"))
        states = {d.device: d.state for d in rack.operations.stop_state().devices}
        assert states["gpu1"] == "not yet"


def test_a_device_that_cannot_be_read_is_stopped_and_forgotten_by_its_id(rack: Rack) -> None:
    verbs, change = rack.operations, Change(who="ann")
    with damaged(rack, DeviceRow.description, DeviceRow.id == "gpu1"):
        assert [d.device for d in verbs.stop_all(change, "gpu1").devices] == ["gpu1"]
        assert not verbs.lift(change, "gpu1").in_force
        with raised(Conflict, "gpu1 is online"):
            verbs.forget("gpu1", change)
        rack.gone.add("gpu1")
        rack.pass_s(600)
        verbs.forget("gpu1", change)
        assert "gpu1" not in rack.world.store.devices.heard_at()


def test_an_operator_lets_a_newcomer_in_on_the_page(rack: Rack) -> None:
    rack.world.loop.register(device("gpu9"))
    rack.hosts["gpu9"] = FakeHost()
    rack.pass_s(8)
    assert set(rack.operations.budget("rack").outside) == {"gpu9"}
    site = Site(rack.operations)
    with site.signed_in("viewer") as browser:
        assert "Let it in" not in browser.get("/budgets").text
    with site.signed_in("operator") as browser:
        assert "let gpu9 in" in browser.get("/budgets").text
        send(browser, "/budgets/rack/admit", "/budgets", device="gpu9")
    rack.pass_s(8)
    assert "gpu9" in {m.device for m in rack.operations.budget("rack").members}
