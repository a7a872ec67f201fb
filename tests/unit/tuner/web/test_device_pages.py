"""A device's page: applied settings with time and author, beside latency and power over time."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest

from tests.builders import START, applied, device, setting, window
from tests.unit.tuner.cli.worlds import operations
from tests.unit.tuner.web.site import Site, text_of
from tests.unit.tuner.web.test_fleet_pages import held
from tuner.core import Applied, Level, Space
from tuner.wire import Change, HoldReport

__all__ = ["held"]


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
    site.verbs.loop.observed_reports.observe_all([sent])
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
