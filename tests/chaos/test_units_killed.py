"""kill -9 of the actuator between every two steps over a service's flags: files, and calls of systemd."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agents.actuator.driver import KnobDriver
from agents.actuator.grants import Granted
from tests.chaos.boards import script
from tests.chaos.points import CountedDriver, Points, count_calls
from tests.chaos.theatre import Theatre
from tests.fake_systemd import COMMAND, NAME, DirectFlags, FakeSystemd

pytestmark = pytest.mark.timeout(1200)  # a process per point: minutes on a loaded machine
TERMS = Granted(match="*", grant={"--threads": ("1", "2", "4"), "--batch": ("32", "64")})
TRIED = ({"--threads": 4, "--batch": 32}, {"--threads": 1}, {"--batch": 32})


class CountedFlags(CountedDriver):
    """The driver, with the attributes that other drivers lack."""

    def __init__(self, inner: DirectFlags, points: Points) -> None:
        super().__init__(inner, points)
        self.commit, self.keeps, self.restarts = inner.commit, inner.keeps, True
        self.defaults, self.without = inner.defaults, inner.without


@dataclass
class UnitTheatre(Theatre):
    """A service as the device."""

    systemd: FakeSystemd = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        config = self.config
        self.config = replace(config, devices=(TERMS,), min_restart_s=0.0)

    def renew_hardware(self) -> None:
        for left in self.systemd.folders[1].glob("*"):
            left.unlink()
        self.systemd.boot()
        for left in self.journal.iterdir():
            left.unlink()

    def note(self, number: int) -> None:
        super().note(number)
        shutil.copytree(self.systemd.root, self.notes / str(number) / "root")

    def return_to(self, number: int) -> None:
        super().return_to(number)
        shutil.rmtree(self.systemd.root)
        shutil.copytree(self.notes / str(number) / "root", self.systemd.root)

    @property
    def values(self) -> dict[str, Any]:
        return {**self.systemd.state, "left": self.systemd.left}

    def drivers(self, points: Points | None) -> Sequence[KnobDriver]:
        driver = self.systemd.driver()
        driver.offer(TERMS)
        if points is None:
            return [driver]
        count_calls(points, Path, dict.fromkeys(("write_text", "replace", "unlink"), "file"))
        count_calls(points, FakeSystemd, {"call": "systemctl", "save": "systemd"})
        return [CountedFlags(driver, points)]

    def check_original(self) -> str:
        state = self.systemd.state
        # A half-written file may stay, as of the journal; systemd does not read its name.
        left = [name for name in self.systemd.left if not name.endswith(".new")]
        if state["running"] != COMMAND or state["argv"] != COMMAND or left:
            return f"left at {state}, {left}"
        return "a journal is left" if self.journalled else ""


@pytest.mark.promise("the actuator dies, also by SIGKILL")
def test_an_actuator_killed_anywhere_leaves_the_service_at_its_own_command(
    tmp_path: Path, count: Callable[[str, int, int], None]
) -> None:
    systemd = FakeSystemd(tmp_path / "root")
    theatre = UnitTheatre(tmp_path / "t", systemd=systemd)
    steps, wrong = theatre.killed_everywhere(script(f"unit:{NAME}", TRIED))
    count("actuator: unit", len(steps), len(wrong))
    assert sum("systemctl" in step for step in steps) > 20
    assert not wrong
