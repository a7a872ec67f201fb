"""An operator's tasks, on the pages in steps and on the command line: python -m tests.browser.tasks.

A step is a click, a link that is opened, or a form that is filled in.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.result import header
from tests.browser.conftest import CHROMIUM, enter
from tests.browser.fleet import OLD, TOML, fill, study_of
from tests.integration.stage import JOULETUNE, Stage, stage
from tests.processes import until

if TYPE_CHECKING:
    from playwright.sync_api import Page

COMPUTED_MS = 120_000.0
DEADLINE_S = 120.0


@dataclass
class Operator:
    """Somebody at a browser, whose steps are counted."""

    page: Page
    base: str
    steps: int = field(default=0, init=False)

    def click(self, role: str, name: str) -> None:
        self.steps += 1
        self.page.get_by_role(role, name=name).first.click()  # type: ignore[arg-type]
        self.page.wait_for_load_state()

    def opens(self, path: str) -> None:
        """Open a link that a message contains."""
        self.steps += 1
        self.page.goto(f"{self.base}{path}")

    def fills(self, **fields: str) -> None:
        """Fill in a form by its labels."""
        self.steps += 1
        for label, text in fields.items():
            self.page.get_by_label(label.replace("_", " ")).fill(text)

    def reads(self, place: str) -> str:
        """Return the text of a part of the page."""
        return str(self.page.locator(place).first.inner_text())


def needs_me(one: Operator) -> None:
    assert "limit not met" in one.reads("#devices tbody tr")


def applied(one: Operator) -> None:
    one.click("link", "gpu0@rack1")
    text = one.reads("#status")
    assert "Applied: gpu.clock_mhz=1050 batch_size=8 (hold)" in text and "ago" in text


def why_held(one: Operator) -> None:
    one.click("link", study_of("gpu0@rack1"))
    assert "Why it is holding." in one.reads("#standing")
    saved = one.reads("#saved")
    assert "last 7 d" in saved and "of holding" in saved


def loosened(one: Operator) -> None:
    one.click("link", study_of("gpu2@rack2"))
    one.click("link", "Change constraints")
    change = one.reads("tbody tr")
    assert "bob" in change and "latency_p99_ms <= 60" in change and "the SLO is 60 ms now" in change
    assert "held since" in change and "limit <= 60.00 ms" in change


def approve(one: Operator) -> None:
    one.opens(f"/studies/{study_of('gpu0@rack2')}")
    button = one.page.get_by_role("button", name="Approve: hold it")
    if button.is_visible():  # once only: a fleet may serve several tests
        one.click("button", "Approve: hold it")
    assert "Nothing to do." in one.reads("#standing")


def stop_all(one: Operator) -> None:
    one.steps += 1
    one.page.get_by_text("Stop all devices").click()
    one.fills(Type_stop_to_confirm="stop", Reason="smoke")
    one.click("button", "Stop every device now")
    one.page.locator("#stopped").wait_for()
    rows = one.page.locator("#devices tbody tr").all_inner_texts()
    assert all("stopped" in text or "offline" in text for text in rows)


def of_a_month_ago(one: Operator) -> None:
    one.click("link", "Studies")
    one.fills(Find="night")
    one.click("button", "Show")
    one.page.wait_for_url("**find=night**")
    row = one.reads("#studies tbody tr")
    assert OLD in row and "night batch" in row and "days ago" in row


def compared(one: Operator) -> None:
    one.click("link", "Studies")
    one.steps += 1
    for name in ("gpu0@rack1", "gpu1@rack1"):
        one.page.get_by_label(f"compare study {study_of(name)}").check()
    one.click("button", "Compare two to four selected studies")
    text = one.reads("main")
    assert "baseline energy_j" in text and study_of("gpu1@rack1") in text


def rolled_back(one: Operator) -> None:
    one.click("link", "orin1@lab")
    one.steps += 1
    if one.page.get_by_text("Release this device").is_visible():  # once only, as above
        one.page.get_by_text("Release this device").click()
        one.click("button", "Release it now")
    assert "Released by" in one.reads("#released")


def why_not(one: Operator) -> None:
    one.click("link", study_of("gpu4@rack1"))
    one.fills(Why_not_the_setting="gpu.clock_mhz=600")
    one.click("button", "Show why")
    assert "gpu.clock_mhz=600" in one.reads("main p")


def in_money(one: Operator) -> None:
    text = one.reads("#numbers")
    assert "last 7 d" in text and "EUR" in text and "of the baseline" in text


@dataclass(frozen=True, slots=True)
class Task:
    """A task, what is done for it on the pages, and the command whose output has all these texts."""

    name: str
    on_pages: Callable[[Operator], None]
    command: str
    shows: tuple[str, ...]


TASKS = (
    Task("Which devices need me?", needs_me, "status",
         ("limit not met", "offline", "paused", "awaiting approval")),
    Task("What is applied on a device, and since when?", applied, "device show gpu0@rack1",
         ("gpu.clock_mhz=1050 batch_size=8", "since", "hold, study")),
    Task("Why is this held, and what did it save last week?", why_held,
         f"study show {study_of('gpu0@rack1')}",
         ("why it is holding", "last 7 d", "of holding")),
    Task("Who loosened the limit, and what did that do?", loosened,
         f"constraint list {study_of('gpu2@rack2')}",
         ("bob", "latency_p99_ms <= 60", "held since", "After: the baseline: energy_j")),
    Task("Approve a proposal from its message", approve, f"study approve {study_of('gpu0@rack2')}",
         ("holding",)),
    Task("Find a study of a month ago", of_a_month_ago, "study list --find night",
         (OLD, "night batch")),
    Task("Compare two studies", compared,
         f"study compare {study_of('gpu0@rack1')} {study_of('gpu1@rack1')}",
         ("baseline energy_j", "saving")),
    Task("Roll one device back", rolled_back, "device release orin1@lab", ("in force",)),
    Task("Why was this setting not chosen?", why_not,
         f"study explain {study_of('gpu4@rack1')} gpu.clock_mhz=600", ("gpu.clock_mhz=600", "best:")),
    Task("What did the fleet save last week, in money?", in_money, "report --since 7d",
         ("saved by holding", "EUR")),
    Task("Stop everything", stop_all, "stop-all --yes --why smoke", ("stop",)),
)  # fmt: skip
MOST_STEPS = 3


def typed(played: Stage, command: str) -> str:
    """Return what a command prints, with the tuner and its token from the environment."""
    environment = {
        **os.environ,
        "JOULETUNE_TUNER": f"http://127.0.0.1:{played.tuner_port}",
        "JOULETUNE_TOKEN_FILE": str(played.token_file),
    }
    with subprocess.Popen(
        [*JOULETUNE, *command.split()], env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        if command.startswith(("stop-all", "device release")):  # it waits for agents: here are none
            of = f"?device={command.split()[-1]}" if command.startswith("device") else ""
            until(lambda: bool(played.call("GET", f"/stop{of}")["in_force"]), "nothing is stopped")
            process.terminate()
            return "stop in force"
        return process.communicate(timeout=DEADLINE_S)[0]


@contextmanager
def fleet() -> Iterator[Stage]:
    """Serve the twelve devices in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder), TOML) as played:
        fill(played.db)
        played.start_tuner()
        yield played


def on_pages() -> list[dict[str, object]]:
    """Do every task in a browser; return its steps and how long the pages took."""
    from playwright.sync_api import sync_playwright  # the tests of this module skip without it

    made: list[dict[str, object]] = []
    with fleet() as played, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        base = enter(page, played)
        page.locator("#numbers [data-soon]").wait_for(state="detached", timeout=COMPUTED_MS)
        for task in TASKS:
            operator, begun = Operator(page, base), time.perf_counter()
            page.goto(base)
            task.on_pages(operator)
            took = time.perf_counter() - begun
            made.append({"task": task.name, "steps": operator.steps, "page_s": took})
        browser.close()
    return made


def in_commands() -> list[dict[str, object]]:
    """Run the command of every task; return how long it took. Raises AssertionError: it lacks an answer."""
    made: list[dict[str, object]] = []
    with fleet() as played:
        for task in TASKS:
            begun = time.perf_counter()
            text = typed(played, task.command)
            took = time.perf_counter() - begun
            missing = [part for part in task.shows if part not in text]
            assert not missing, (task.command, missing, text)
            made.append({"command": f"jouletune {task.command}", "command_s": took})
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    rows = [page | command for page, command in zip(on_pages(), in_commands(), strict=True)]
    about = {**header(), "load": os.getloadavg()[0], "tasks": rows}
    given.output.write_text(json.dumps(about, indent=1))


if __name__ == "__main__":
    main()
