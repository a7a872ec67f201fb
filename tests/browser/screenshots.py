"""Pictures of the pages for the docs: python -m tests.browser.screenshots FOLDER.

Twelve made-up devices in seven states, with studies of 10 to 300 trials (`tests.browser.fleet`).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

from tests.browser.conftest import CHROMIUM, enter
from tests.browser.fleet import TOML, fill, study_of
from tests.integration.stage import Stage, stage

if TYPE_CHECKING:
    from playwright.sync_api import Browser

VIEWS = (("light", 1280, 900), ("dark", 1280, 900), ("light", 390, 844), ("dark", 390, 844))
STUDY = study_of("gpu0@rack1")
SHOWN = (
    ("fleet", "/"),
    ("device", "/devices/gpu0@rack1?range=7d"),
    ("study", f"/studies/{STUDY}"),
    ("explain", f"/studies/{STUDY}/explain"),
    ("history", "/history"),
    ("constraints", f"/studies/{STUDY}/constraints"),
)


def shoot(browser: Browser, played: Stage, folder: Path) -> None:
    for scheme, width, height in VIEWS:
        context = browser.new_context(
            color_scheme=scheme,  # type: ignore[arg-type]
            viewport={"width": width, "height": height},
        )
        page = context.new_page()
        base = enter(page, played)
        page.locator("#numbers [data-soon]").wait_for(state="detached", timeout=120_000)
        for name, path in SHOWN:
            page.goto(f"{base}{path}", timeout=120_000)
            page.wait_for_timeout(2_500)
            if name == "constraints":
                page.get_by_label("Constraints").fill("latency_p99_ms <= 1.05x baseline")
                page.get_by_role("button", name="Preview the change").click()
                page.get_by_label("Preview").wait_for()
            page.screenshot(path=folder / f"{name}-{width}-{scheme}.png")
        context.close()


def main() -> None:
    if CHROMIUM is None:
        sys.exit("no chromium here: apt install chromium")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as text, stage(Path(text), TOML) as played:
        fill(played.db)
        played.start_tuner()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            shoot(browser, played, folder)
            browser.close()


if __name__ == "__main__":
    main()
