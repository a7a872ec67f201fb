"""One unreadable group, membership, device or token: all others are shown and capped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy import update

from db.schema import BudgetGroupRow, BudgetMemberRow, DeviceRow
from db.sql.budgets import MEMBERS
from db.sql.store import Store
from tests.builders import device
from tests.errors import raised
from tests.unit.tuner.service.budgets.test_divider import FakeHost, Rack
from tests.unit.tuner.web.site import Site, send
from tuner.core import Unreadable
from tuner.presentation.standing import device_status, worst_first
from tuner.service.declared.export import exported
from tuner.service.stops import stop_view
from tuner.wire import BudgetDraft, Change


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
        states = {d.device: d.state for d in stop_view(rack.world.loop).devices}
        assert states["gpu1"] == "not yet"


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
