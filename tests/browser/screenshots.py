"""Pictures of the pages for the docs: python -m tests.browser.screenshots FOLDER.

Three simulated boards, one with a study that holds, one in the middle of its search.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

from tests.browser.conftest import CHROMIUM
from tests.integration.stage import JOULETUNE, Stage, stage, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LIMIT = "latency_p99_ms <= 1.2x baseline"
TOML = 'lease_s = 30.0\nprice_per_kwh = 0.25\ncurrency = "EUR"\nco2e_g_per_kwh = 350.0\n'
VIEWS = (("light", 1440, 1000), ("dark", 1440, 1000), ("light", 390, 844), ("dark", 390, 844))
BOARDS = ("simulated:a100", "simulated:orin", "simulated:tx2")
HELD_S = 20.0


def play(played: Stage) -> str:
    """Start everything; return the study that holds."""
    played.start_tuner()
    config = played.folder / "agent.toml"
    about = {"tuner": f"http://127.0.0.1:{played.tuner_port}", "token_file": played.token_file}
    about["state_dir"] = played.folder / "agent"
    lines = [f'{name} = "{value}"' for name, value in about.items()]
    lines += [f'[[device]]\nspec = "{board}"' for board in BOARDS]
    config.write_text("\n".join(lines))
    played.spawn("agent", [*JOULETUNE, "agent", "serve", "--config", str(config)])
    until(lambda: len(played.call("GET", "/devices")) == len(BOARDS), "not every board is there")
    by_board = {d["device"]["id"]: d for d in played.call("GET", "/devices")}
    held, other, _ = sorted(by_board)
    terms = {"trials": 16, "window_s": 10.0}
    body = {"constraints": [LIMIT], "policy": "polythrottle", "terms": terms}
    study = str(played.call("POST", "/studies", {**body, "devices": [held]})["id"])
    played.await_phase(study, "holding", 300.0)
    asking = {**terms, "safety": "advise"}
    advised = played.call("POST", "/studies", {**body, "devices": [other], "terms": asking})["id"]
    played.await_phase(advised, "proposed", 300.0)
    time.sleep(HELD_S)  # so that holding has saved something
    return study


def shoot(browser: Browser, played: Stage, study: str, folder: Path) -> None:
    base = f"http://127.0.0.1:{played.tuner_port}"
    token = played.token_file.read_text().strip()
    for scheme, width, height in VIEWS:
        context = browser.new_context(
            color_scheme=scheme,  # type: ignore[arg-type]
            viewport={"width": width, "height": height},
        )
        page = context.new_page()
        page.goto(f"{base}/login")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{base}/")
        for name, path in (("fleet", "/"), ("study", f"/studies/{study}")):
            page.goto(f"{base}{path}")
            page.wait_for_function("!document.querySelector('[data-soon]')")
            page.wait_for_timeout(2_500)
            page.screenshot(path=folder / f"{name}-{width}-{scheme}.png")
        page.goto(f"{base}/studies/{study}/constraints")
        page.get_by_label("Constraints").fill("latency_p99_ms <= 1.05x baseline")
        page.get_by_role("button", name="Show what would change").click()
        page.get_by_label("What would change").wait_for()
        page.screenshot(path=folder / f"constraints-{width}-{scheme}.png")
        context.close()


def main() -> None:
    if CHROMIUM is None:
        sys.exit("no chromium here: apt install chromium")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as text, stage(Path(text), TOML) as played:
        study = play(played)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            shoot(browser, played, study, folder)
            browser.close()


if __name__ == "__main__":
    main()
