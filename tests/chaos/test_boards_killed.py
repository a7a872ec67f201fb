"""kill -9 of the actuator between every two steps over CPUs and Jetson boards, each file a step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.boards.fixtures import Mount, boards, mount
from tests.chaos.boards import DRIVERS, BoardTheatre, choices, script
from tests.chaos.points import Points

__all__ = ["boards", "mount"]
pytestmark = pytest.mark.timeout(1200)  # hundreds of processes each: minutes on a loaded machine
Count = Callable[[str, int, int], None]


@pytest.mark.promise("the actuator dies, also by SIGKILL")
@pytest.mark.parametrize("name", DRIVERS)
def test_an_actuator_killed_anywhere_puts_every_file_back_at_its_next_start(
    name: str, mount: Mount, tmp_path: Path, count: Count
) -> None:
    theatre = BoardTheatre(tmp_path / "t", board=mount(name))
    played = script(theatre.driver.uuid, choices(theatre.driver))
    dry = Points()
    theatre.play(played, dry)
    assert theatre.restore() == {} and theatre.check_original() == ""
    wrong: list[str] = []
    for at, label in enumerate(dry.labels, 1):
        theatre.renew_hardware()
        theatre.play(played, Points(at))
        left = theatre.restore()
        problem = theatre.check_original() or str(left or "")
        if problem:
            wrong.append(f"killed before {at} ({label}): {problem}")
    count(f"actuator: {name}", len(dry.labels), len(wrong))
    assert sum("file write" in label for label in dry.labels) >= 2 * len(theatre.driver.ranges())
    assert not wrong
