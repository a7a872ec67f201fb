"""axe-core looks at every page, in both themes and on a telephone."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import enter, sign_in
from tests.integration.stage import Stage

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.timeout(600)
AXE = "axe-core@4"
OF_STUDY = ("/studies/{}", "/studies/{}/constraints", "/studies/{}/trials/1", "/studies/{}/explain")
ACROSS = ("/history", "/compare?trial={}:1&trial={}:3", "/events")
PAGES = ("/", "/studies", "/studies/new", *OF_STUDY, *ACROSS, "/access", "/about", "/nowhere")


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    npm, folder = shutil.which("npm"), tmp_path_factory.mktemp("axe")
    if npm is None:
        pytest.skip("no npm here: apt install npm")
    command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), AXE]
    if subprocess.run(command, timeout=120, check=False).returncode:
        pytest.skip(f"npm does not give {AXE}")
    return (folder / "node_modules/axe-core/axe.min.js").read_text()


def faults(page: Page, axe: str) -> list[str]:
    """Return what axe-core finds that is serious or critical."""
    page.evaluate(axe)
    violations = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{fault['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
        for fault in violations
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]


@pytest.fixture
def tuned(played: Stage) -> str:
    played.start_agent("simulated:orin")
    study = played.create(constraints=["latency_p99_ms <= 1.2x baseline"])
    played.await_phase(study, "holding")
    return study


@pytest.mark.slow
def test_axe_allows_every_page(chromium: Browser, played: Stage, tuned: str, axe: str) -> None:
    wrong = {}
    for scheme, width in (("light", 1440), ("dark", 390)):
        context = chromium.new_context(
            color_scheme=scheme,  # type: ignore[arg-type]
            viewport={"width": width, "height": 900},
            bypass_csp=True,  # axe is put into the page, which the pages' policy forbids
        )
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{played.tuner_port}/login")
        wrong["/login", scheme] = faults(page, axe)
        base = sign_in(page, played, "admin") if scheme == "light" else enter(page, played)
        for path in PAGES:
            page.goto(f"{base}{path.replace('{}', tuned)}")
            wrong[path, scheme] = faults(page, axe)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        context.close()
    assert {where: what for where, what in wrong.items() if what} == {}
