"""Debian's Chromium, a tuner with its pages, and an agent with a simulated board."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.stage import Stage, stage

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DEADLINE_MS = 60_000.0


# Of a module: playwright runs an event loop in this thread until it ends, where others want their own.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium here: apt install chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        # As root it refuses to start in its sandbox; it only ever sees our own pages.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as playing:
        playing.start_tuner()
        yield playing


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1440, "height": 1000})
    context.set_default_timeout(DEADLINE_MS)
    yield context.new_page()
    context.close()


def sign_in(page: Page, played: Stage, role: str = "operator") -> str:
    """Sign in with a token of a role; return where the pages are."""
    made = played.call("POST", "/tokens", {"name": f"{role}-of-the-day", "role": role})
    return enter(page, played, str(made["token"]))


def enter(page: Page, played: Stage, token: str = "") -> str:
    """Sign in with a token, else with the tuner's own; return where the pages are."""
    base = f"http://127.0.0.1:{played.tuner_port}"
    page.goto(f"{base}/login")
    page.get_by_label("Token").fill(token or played.token_file.read_text().strip())
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{base}/")
    return base
