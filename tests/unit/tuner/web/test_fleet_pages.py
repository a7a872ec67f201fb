"""The fleet's page: problems first, filters, groups, windows; a device's page: settings over time."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from tests.builders import START, applied, device, setting, window
from tests.unit.tuner.cli.worlds import created, operations, slope, tune
from tests.unit.tuner.web.site import Site, text_of
from tuner.core import Applied, Level, Observation, Space
from tuner.presentation.standing import WORST_FIRST, worst_first
from tuner.wire import Change, FleetRow, Health, HoldReport, Poll


def row(name: str, health: Health, **fields: object) -> FleetRow:
    base = FleetRow(
        device=name, board="A100", workload="w", health=health, default={}, last_seen=START
    )
    return base.model_copy(update=fields)


def test_every_state_has_its_place_and_problems_come_first() -> None:
    assert set(WORST_FIRST) == set(Health)
    rows = [row(f"d{n}", health) for n, health in enumerate(reversed(WORST_FIRST))]
    assert [r.health for r in worst_first(rows)] == list(WORST_FIRST)
    rows.append(row("unable", Health.SAFE, unable="the driver does not respond"))
    assert worst_first(rows)[0].device == "unable"


def test_groups_are_sorted_by_name_with_problems_first() -> None:
    rows = [
        row("a", Health.SAFE, host="h2"),
        row("b", Health.OFFLINE, host="h2"),
        row("c", Health.SAFE, host="h1"),
    ]
    assert [r.device for r in worst_first(rows, lambda r: r.host)] == ["c", "b", "a"]


def test_devices_are_filtered_and_grouped_by_their_labels() -> None:
    site = Site(operations(about=device("sim", labels={"rack": "a1"})))
    site.verbs.loop.register(device("other", labels={"rack": "b2"}))
    viewer = site.signed_in("viewer")
    page = viewer.get("/?group=rack").text
    assert re.findall(r'scope="colgroup">(\w+)<', page) == ["a1", "b2"]
    page = viewer.get("/?label=rack%3Da1").text
    assert ">sim</a>" in page and ">other</a>" not in page
    assert "remove this filter" in page and "find=&label=rack%3Da1" in page.replace("&amp;", "&")
    assert ">other</a>" not in viewer.get("/?find=rack%3Da1").text
    assert "No device matches the filter" in viewer.get("/?label=rack%3Dc3").text


def test_studies_and_history_are_filtered_by_group() -> None:
    site = Site(operations())
    study = created(site.verbs)
    tune(site.verbs, slope)
    store, viewer = site.verbs.loop.store, site.signed_in("viewer")
    assert "No study matches the filter" in viewer.get("/studies?group=lab").text
    assert "No trial matches the filter" in viewer.get("/history?group=lab").text
    store.studies.revise(replace(store.studies.get(study), group="lab"), "ann", "", START)
    page = viewer.get("/studies?group=lab").text
    assert f'href="/studies/{study}"' in page and 'href="/history?group=lab"' in page
    assert f'href="/studies/{study}"' in viewer.get("/history?group=lab").text
    assert f'href="/studies/{study}"' not in viewer.get("/history?group=hall").text


@pytest.fixture
def held() -> Site:
    site = Site(operations())
    study = created(site.verbs)
    tune(site.verbs, slope)
    note = replace(applied("sim", Level.HOLD, setting(600)), study=study)
    site.verbs.loop.order("sim", Poll(agent="host/1", applied=note))
    at = site.verbs.loop.now() - timedelta(minutes=1)
    shown = replace(window(6.0, 110.0), started_at=at)
    site.verbs.loop.store.observations.add_all(
        [Observation(study=study, device="sim", setting=setting(600), measurement=shown, at=at)]
    )
    site.fleet.view()
    site.fleet.summaries.renew()
    return site


def test_a_row_shows_the_setting_unlike_the_default_and_its_latest_windows(held: Site) -> None:
    page = held.signed_in("viewer").get("/")
    text = text_of(page)
    assert "gpu.clock_mhz=600" in text and "110.0 ms, limit 120.0 ms" in text and "40.0" in text
    assert page.text.count("<polyline") == 2
    assert "Group by" in text and "Stop all devices" not in text


def test_the_fleet_takes_a_statement_of_each_kind_however_many_devices_it_has() -> None:
    verbs = operations(about=device("d0"))
    for number in range(1, 5):
        verbs.loop.register(device(f"d{number}"))
    browser = Site(verbs).signed_in("viewer")
    statements: list[str] = []

    def counted(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith("BEGIN"):
            statements.append(statement)

    event.listen(Engine, "before_cursor_execute", counted)
    try:
        assert browser.get("/?group=host").status_code == 200
    finally:
        event.remove(Engine, "before_cursor_execute", counted)
    # Queries: phases of studies, applied settings, the stop, running trials, devices, all sparklines.
    assert len([text for text in statements if "FROM tokens" not in text]) <= 6, statements


def figure_of(text: str) -> dict[str, object]:
    (figure,) = re.findall(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    return dict(json.loads(figure))


def test_the_page_shows_the_applied_setting_its_author_and_a_chart(held: Site) -> None:
    page = held.signed_in("viewer").get("/devices/sim")
    text = text_of(page)
    assert "Applied: gpu.clock_mhz=600 (hold), set" in text and "study" in text
    assert "unknown saved, this hold no window of it was measured yet" in text
    names = {trace["name"] for trace in figure_of(page.text)["data"]}  # type: ignore[attr-defined]
    assert {"latency_p99_ms", "power_w", "hold"} <= names
    assert len(figure_of(page.text)["layout"]["shapes"]) == 1  # type: ignore[index]


@pytest.mark.parametrize("within", ["24h", "7d", "30d", "a year"])
def test_every_range_is_shown_and_an_unknown_one_is_a_day(held: Site, within: str) -> None:
    page = held.signed_in("viewer").get(f"/devices/sim?range={within}")
    first, last = figure_of(page.text)["layout"]["xaxis"]["range"]  # type: ignore[index]
    days = {"7d": 7, "30d": 30}.get(within, 1)
    assert first == (held.verbs.loop.now() - timedelta(days=days)).isoformat().replace(
        "+00:00", "Z"
    )
    assert last > first


def test_a_setting_lasts_until_the_next_one(held: Site) -> None:
    at = held.verbs.loop.now()
    back = Applied(device="sim", setting=setting(), level=Level.ORIGINAL, at=at)
    held.verbs.loop.store.devices.apply(back)
    text = text_of(held.signed_in("viewer").get("/devices/sim"))
    assert "Applied: default (original)" in text and "no study" in text


def test_a_device_without_windows_shows_when_they_will_come() -> None:
    site = Site(operations())
    site.verbs.loop.store.devices.apply(applied())
    assert "Windows are measured while a study" in text_of(
        site.signed_in("viewer").get("/devices/sim")
    )
    assert site.signed_in("viewer", "vera").get("/devices/other").status_code == 404
    assert site.verbs.loop.now() + timedelta(days=1) > START


def test_windows_of_a_device_that_is_no_longer_observed_stay_readable() -> None:
    site = Site(operations())
    site.verbs.loop.register(device("sim", space=Space(()), observed=True))
    own = window(6.0, 110.0)
    sent = HoldReport(device="sim", study="", revision=0, setting={}, measurement=own)
    site.verbs.loop.hold_reports.observe_all([sent])
    site.verbs.loop.register(device("sim"))
    for since in (None, own.started_at + timedelta(seconds=1)):
        assert site.verbs.observed("sim", since).last == own.started_at
    browser = site.signed_in("viewer")
    assert "observed 1 window" in text_of(browser.get("/devices/sim"))


def test_a_release_of_a_device_that_is_only_observed_can_end() -> None:
    site = Site(operations())
    site.verbs.loop.register(device("sim", space=Space(()), observed=True))
    browser = site.signed_in("operator")
    assert "Release this device" not in browser.get("/devices/sim").text
    site.verbs.stop_all(Change(who="ann"), "sim")
    assert "End the release" in browser.get("/devices/sim").text
