"""An operator's whole day in a real browser, against real processes."""

from __future__ import annotations

import csv
import signal
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import sign_in
from tests.integration.stage import Stage

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.timeout(600)


def says(page: Page, what: str, where: str = "#standing") -> None:
    """Wait until a part of the page says something, by itself."""
    part = page.locator(where)
    for _ in range(600):
        if what in part.inner_text():
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"{what!r} is not said within a minute: {part.inner_text()}")


@pytest.mark.slow
def test_an_operators_day(page: Page, played: Stage) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    played.start_agent("simulated:orin")
    device = played.device()
    base = sign_in(page, played)

    # A study is made from the fleet's page, and watched: nobody loads the page again.
    page.get_by_role("link", name="Tune it").click()
    page.get_by_label("Policy", exact=True).fill("sobol")
    page.get_by_label("Trials").fill("12")
    # The agent stands still until the study has been seen: on a quiet machine all is over in a second.
    played.signal("agent", signal.SIGSTOP)
    page.get_by_role("button", name="Create").click()
    page.wait_for_url(f"{base}/studies/*")
    study = page.url.rpartition("/")[2]
    says(page, "baseline")
    played.signal("agent", signal.SIGCONT)
    page.locator("#cloud .plot svg").first.wait_for()

    # The tuner is restarted meanwhile: the page says so, and goes on by itself.
    played.kill("tuner")
    page.locator("#lost").wait_for(state="visible")
    played.start_tuner()
    page.locator("#lost").wait_for(state="hidden")
    says(page, "holding")
    assert "saves" in page.locator("#facts").inner_text()

    # The limit is tightened, after a look at what that does to the history.
    page.get_by_role("link", name="Change constraints").click()
    page.get_by_label("Constraints").fill("latency_p99_ms <= 0.6x baseline")
    page.get_by_label("Reason").fill("a new SLO")
    page.get_by_role("button", name="Preview the change").click()
    seen = page.get_by_label("Preview").inner_text()
    assert "become infeasible" in seen
    page.get_by_role("button", name="Set these constraints").click()
    page.wait_for_url(f"{base}/studies/{study}")
    says(page, "a new SLO", "#revisions")
    page.goto(f"{base}/history?study={study}&verdict=infeasible")
    assert page.locator("tbody tr").count() >= 1

    # Two trials side by side; all of them as a file.
    page.goto(f"{base}/history?study={study}")
    for box in page.get_by_role("checkbox").all()[:2]:
        box.check()
    page.get_by_role("button", name="Compare the selected trials").click()
    assert page.locator("thead th").count() == 3
    page.goto(f"{base}/history?study={study}")
    with page.expect_download() as download:
        page.get_by_role("link", name="csv").click()
    rows = list(csv.DictReader(download.value.path().read_text().splitlines()))
    assert {row["study"] for row in rows} == {study}

    # Paused, the device is back; resumed, it goes on; and the old limit again.
    page.goto(f"{base}/studies/{study}")
    page.get_by_role("button", name="Pause").click()
    says(page, "paused")
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Pause").wait_for()
    page.get_by_role("link", name="Change constraints").click()
    page.get_by_role("link", name="Restore these").first.click()
    page.get_by_role("button", name="Preview the change").click()
    page.get_by_role("button", name="Set these constraints").click()
    page.wait_for_url(f"{base}/studies/{study}")
    says(page, "back to revision", "#revisions")
    says(page, "holding")
    page.goto(f"{base}/")
    says(page, device, "#devices")
    says(page, "holding", "#devices")
    assert errors == []


@pytest.mark.promise("another site's form, or a hostile name, reaches an operator's browser")
def test_a_script_that_gets_into_a_page_does_not_run(page: Page, played: Stage) -> None:
    sign_in(page, played)
    page.evaluate(
        """() => {
            const inline = document.createElement("script");
            inline.textContent = "window.ran = true";
            const elsewhere = document.createElement("script");
            elsewhere.src = "data:text/javascript,window.ran = true";
            const image = document.createElement("img");
            image.setAttribute("onerror", "window.ran = true");
            image.src = "/nothing";
            document.body.append(inline, elsewhere, image);
        }"""
    )
    page.wait_for_timeout(500)
    assert page.evaluate("window.ran") is None
