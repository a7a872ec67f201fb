"""The fleet's page never differs from the hardware: tuner, agent and actuator as processes, in 8 states."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.actuation import answers
from tests.browser.conftest import sign_in
from tests.integration.stage import Stage
from tests.nvml.fake import A100, FakeNvml
from tests.nvml.fixtures import library
from tests.processes import until

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["library"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
FASTEST_MHZ = 1410
POLL_S = 10.0
"""Within one poll, and the 2 s at the earliest after which a page is loaded again."""
ACTUATOR = f"""lease_s = 4.0
deadline_s = 1.0
[[device]]
match = "{A100}"
[device.grant]
"gpu.clock_mhz" = {{ min = 900, max = 1410 }}
"""
TERMS = {"trials": 4, "window_s": 3.0}


@dataclass(frozen=True)
class Board:
    """A fake GPU under the real actuator, and the page that shows it."""

    nvml: FakeNvml
    played: Stage
    page: Page

    def row(self) -> str:
        return str(self.page.locator("#devices tbody tr").first.inner_text())

    def shown_mhz(self) -> int:
        match = re.search(r"gpu\.clock_mhz=(\d+)", self.row())
        return int(match[1]) if match else FASTEST_MHZ

    def actual_mhz(self) -> int:
        return int(self.nvml.get("lock_max")) or FASTEST_MHZ

    def comes_to(self, state: str, also: Callable[[], bool] = lambda: True) -> None:
        """Wait until the page, which nobody loads again, shows a state and what the actuator has."""
        self.waits(lambda: state in self.row() and also(), f"the page does not show {state}", 90.0)
        self.waits(
            lambda: self.shown_mhz() == self.actual_mhz(), f"{state}: the page is wrong", POLL_S
        )

    def waits(self, what: Callable[[], bool], why: str, seconds: float) -> None:
        # The page's own events arrive while playwright waits, not while this thread sleeps.
        for _ in range(int(seconds / 0.2)):
            if what():
                return
            self.page.wait_for_timeout(200)
        shown, actual = self.shown_mhz(), self.actual_mhz()
        raise AssertionError(f"{why}: {self.row()!r}, shown {shown} MHz, actual {actual} MHz")


@pytest.fixture
def board(
    played: Stage, page: Page, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Board]:
    nvml = FakeNvml(library, tmp_path / "nvml.state", manual=False, root_only=0.0)
    socket, config = tmp_path / "actuator.sock", tmp_path / "actuator.toml"
    config.write_text(f'socket = "{socket}"\nstate_dir = "{tmp_path / "journal"}"\n{ACTUATOR}')
    for name, value in nvml.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("JOULETUNE_ACTUATOR", str(socket))
    command = [sys.executable, "-m", "agents.actuator.main", "serve", str(config)]
    with subprocess.Popen(command, env=dict(os.environ), cwd=Path(__file__).parents[2]) as served:
        until(lambda: answers(socket), "the actuator does not listen")
        played.start_agent("nvidia:0", "simulated")
        played.device()
        sign_in(page, played)
        yield Board(nvml, played, page)
        played.kill("agent")
        served.terminate()


@pytest.mark.promise(
    "a page shows a device",
    "its state and setting are the actuator's within one poll; with a tuner or agent that is down the page "
    "says that its data is old",
)
def test_the_page_shows_the_actuator_in_each_of_eight_states(board: Board) -> None:
    played, page = board.played, board.page
    board.comes_to("safe")

    study = played.create(
        constraints=["latency_p99_ms <= 2x baseline"], terms=TERMS, policy="sobol"
    )
    board.comes_to("trying")
    board.waits(lambda: board.shown_mhz() == board.actual_mhz() < FASTEST_MHZ,
                "a trial's setting is not shown", 90.0)  # fmt: skip
    board.comes_to("holding")
    played.call("POST", f"/studies/{study}/pause", {"why": "maintenance"})
    board.comes_to("paused", lambda: board.actual_mhz() == FASTEST_MHZ)
    played.call("POST", f"/studies/{study}/resume", {})
    board.comes_to("holding")

    played.call("POST", "/stop", {"why": "smoke"})
    board.comes_to("stopped", lambda: board.actual_mhz() == FASTEST_MHZ)
    played.call("DELETE", "/stop", {})
    board.comes_to("holding")

    # A tuner that is killed: the page says that its data is old; afterwards it is right again.
    played.kill("tuner")
    page.locator("#lost").wait_for(state="visible")
    played.start_tuner()
    page.locator("#lost").wait_for(state="hidden")
    board.comes_to("holding")
    played.call("POST", f"/studies/{study}/stop", {"why": "next"})
    board.comes_to("safe", lambda: board.actual_mhz() == FASTEST_MHZ)

    advised = played.create(
        constraints=["latency_p99_ms <= 2x baseline"], terms={**TERMS, "safety": "advise"}
    )
    board.comes_to("proposed", lambda: board.actual_mhz() == FASTEST_MHZ)
    played.call("POST", f"/studies/{advised}/stop", {"why": "next"})

    played.create(constraints=["latency_p99_ms <= 0.001"], terms=TERMS)
    board.comes_to("limit not met")

    # An agent that is killed: its lease ends, the actuator reverts, the page claims nothing of now.
    played.kill("agent")
    board.waits(lambda: "offline" in board.row(), "the page does not show offline", 120.0)
    assert "last known" in board.row()
    board.waits(lambda: board.actual_mhz() == FASTEST_MHZ, "the actuator does not revert", 30.0)
    played.start_agent("nvidia:0", "simulated")
    board.comes_to("limit not met")
