"""Fifty devices and sixty studies with long names, one unreadable: each page fits at three widths."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import update

from db import open_store
from db.schema import RevisionRow
from db.sql.address import read_url
from db.sql.database import Database
from tests.browser.conftest import enter
from tests.browser.fleet import SPACE, TOML, Placed, _trials
from tests.browser.test_accessibility import axe, faults
from tests.builders import device, study
from tests.integration.stage import Stage, stage
from tests.scale.bulk import store_trials
from tuner.core import Phase, Plan

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["axe"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
DEVICES = [
    f"gpu{n:02}@ip-10-20-30-{n:03}.eu-central-1.compute.internal.cluster-of-the-lab"
    for n in range(50)
]
STUDIES = [f"{n:08x}" for n in range(60)]
UNREADABLE, SHOWN = STUDIES[7], STUDIES[9]
PAGES = (
    "/", "/studies", "/studies/new", f"/studies/{SHOWN}", f"/studies/{SHOWN}/constraints",
    f"/studies/{SHOWN}/explain", f"/devices/{DEVICES[9]}", "/history", "/events",
    f"/compare?study={SHOWN}&study={STUDIES[10]}&study={STUDIES[11]}&study={STUDIES[12]}",
    f"/compare?trial={SHOWN}:1&trial={SHOWN}:3",
)  # fmt: skip
FIRST_VISIT, LATER_VISIT = 1_600_000, 100_000
OFF_SCREEN = """() => [...document.body.querySelectorAll("*")].filter(one => {
    const box = one.getBoundingClientRect();
    return one.checkVisibility() && box.width && box.right > innerWidth + 1
        && getComputedStyle(one).position !== "absolute" && !one.closest(".scroll, .plot, pre, .unseen");
}).map(one => one.outerHTML.slice(0, 120)).slice(0, 5)"""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("many"), TOML) as played:
        store, database, now = (
            open_store(played.db),
            Database(read_url(played.db)),
            datetime.now(UTC),
        )
        for name in DEVICES:
            about = device(
                name, board="NVIDIA H100 80GB HBM3", space=SPACE, agent=name.partition("@")[2]
            )
            store.devices.put(replace(about, workload="text-generation-inference", seen_at=now))
        for n, (name, one) in enumerate(zip(STUDIES, itertools.cycle(DEVICES), strict=False)):
            began = now - timedelta(days=60 - n)
            made = study(Phase.BASELINE, id=name, devices=(one,), space=SPACE, created_at=began,
                         name=f"night batch of the team for recommendations, attempt {n}",
                         workload="text-generation-inference")  # fmt: skip
            store.studies.add(made, "ann", "created by ann")
            store_trials(database, name, _trials(Placed(one, "", 12), began, random.Random(n)))
            moved = store.studies.get(name)
            for phase in (Phase.TUNING, Phase.CONFIRMING, Phase.HOLDING):
                plan = None if phase is Phase.TUNING else Plan.single(SPACE.default)
                moved = store.studies.revise(moved.moved(phase, plan), "tuner", "next", began)
            if n < 10:
                store.studies.revise(moved.moved(Phase.STOPPED), "ann", "enough", now)
        with database.act() as connection:
            which = update(RevisionRow).where(RevisionRow.study == UNREADABLE)
            connection.execute(which.values(document={"of": "a newer release"}))
        database.engine.dispose()
        store.close()
        played.start_tuner()
        yield played


def transferred(page: Page, url: str) -> int:
    """Return the bytes that the browser receives for a page and all that it loads."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.goto(url)
    page.locator("#course .plot svg").first.wait_for()
    page.wait_for_timeout(1_000)  # what the page loads last
    session.detach()
    return int(sum(sizes))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390, 320])
def test_nothing_is_off_screen_and_axe_finds_nothing(
    many: Stage, chromium: Browser, axe: str, width: int, scheme: str
) -> None:
    context = chromium.new_context(
        color_scheme=scheme,  # type: ignore[arg-type]
        viewport={"width": width, "height": 900},
        bypass_csp=True,  # axe is put into the page, which the pages' policy forbids
    )
    page = context.new_page()
    base = enter(page, many)
    wrong: dict[str, list[str]] = {}
    for path in PAGES:
        page.goto(f"{base}{path}")
        page.wait_for_timeout(500)  # the charts
        wrong[path] = [*page.evaluate(OFF_SCREEN), *faults(page, axe)]
        if page.evaluate("document.documentElement.scrollWidth") > width:
            wrong[path].append("it scrolls sideways")
        page.emulate_media(media="print")
        if page.evaluate("getComputedStyle(document.querySelector('nav')).display") != "none":
            wrong[path].append("the navigation is printed")
        page.emulate_media(media="screen")
    context.close()
    assert {where: what for where, what in wrong.items() if what} == {}


def test_the_unreadable_study_is_one_row_among_sixty(many: Stage, chromium: Browser) -> None:
    page = chromium.new_page()
    page.goto(f"{enter(page, many)}/studies")
    rows = page.locator("#studies tbody tr")
    assert rows.count() == len(STUDIES)
    assert rows.filter(has_text="unreadable").count() == 1


def test_a_study_page_loads_little_at_first_and_less_later(many: Stage, chromium: Browser) -> None:
    context = chromium.new_context()
    page = context.new_page()
    refused: list[str] = []
    page.on("console", lambda said: refused.append(said.text) if "style" in said.text else None)
    url = f"{enter(page, many)}/studies/{SHOWN}"
    first, later = transferred(page, url), transferred(page, url)
    context.close()
    assert first <= FIRST_VISIT and later <= LATER_VISIT, (first, later)
    assert refused == [], "an inline style is refused"
