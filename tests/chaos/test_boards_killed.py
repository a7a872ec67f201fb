"""kill -9 of the actuator between every two steps over CPUs and Jetson boards, each file a step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.boards.fixtures import Mount, boards, mount
from tests.chaos.boards import DRIVERS, BoardTheatre, choices, script

__all__ = ["boards", "mount"]
pytestmark = pytest.mark.timeout(1200)  # hundreds of processes each: minutes on a loaded machine
Count = Callable[[str, int, int], None]


@pytest.mark.promise("the actuator dies, also by SIGKILL")
@pytest.mark.parametrize("name", DRIVERS)
def test_an_actuator_killed_anywhere_puts_every_file_back_at_its_next_start(
    name: str, mount: Mount, tmp_path: Path, count: Count
) -> None:
    theatre = BoardTheatre(tmp_path / "t", board=mount(name))
    steps, wrong = theatre.killed_everywhere(script(theatre.driver.uuid, choices(theatre.driver)))
    count(f"actuator: {name}", len(steps), len(wrong))
    assert sum("file write" in step for step in steps) >= 2 * len(theatre.driver.ranges())
    assert not wrong
