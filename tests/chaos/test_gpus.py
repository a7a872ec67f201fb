"""A GPU of AMD or Intel sleeps, is reset, or loses its driver between every two steps.

Then the actuator is killed, or power fails, or a file refuses; in the end every file has its original
value.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.boards.cards import UW
from tests.boards.inline import InlineBoard
from tests.chaos.boards import choices
from tests.chaos.hotplug import Happening, Stage, play_once
from tests.chaos.test_hotplug import ENDS, scripts

pytestmark = pytest.mark.timeout(1200)
Count = Callable[[str, int, int], None]


@pytest.mark.promise(
    "a GPU of AMD or Intel is reset, sleeps, or its driver is loaded anew, while a setting is in force",
    "what that put back to its default is lost, not another program's: it is set again in a hold, and no "
    "trial goes on without it",
)
@pytest.mark.parametrize(
    ("name", "step", "begin"),
    [
        ("amdgpu", 1, {}),
        ("amdgpu", 3, {"cap": 200 * UW, "level": "high"}),
        ("amdgpu-fine", 3, {"top": 2000}),
        ("amdgpu-mi300", 3, {}),
        ("xe", 3, {}),
        ("xe", 3, {"cap": 150 * UW, "top": 1800}),
        ("i915", 3, {"cap": 150 * UW, "top": 1800}),
    ],
)
def test_a_gpu_that_loses_its_settings_at_any_point_is_left_as_it_was(
    name: str, step: int, begin: dict[str, Any], tmp_path: Path, count: Count
) -> None:
    """radeon-profile 129, LACT 41: files show the default after a resume or a reset."""
    (tmp_path / "journal").mkdir()
    board, chosen = InlineBoard(name, tmp_path / "root"), random.Random(0)
    vars(board.board.gpus[0]).update(begin)
    board.board.keep(*board.board.state)
    board.board.begin = board.board.snapshot()
    with board.at():
        stage = Stage(board, tmp_path / "journal")
        played = scripts(*choices(stage.device))
    events: list[Callable[[], None]] = [
        lambda: None,
        stage.suspend,
        stage.reload,
        stage.nap,
        stage.reset_gpu,
        partial(stage.reset_gpu, errno.EPERM),
        stage.deafen,
    ]
    points, wrong = 0, list[str]()
    for what, steps in played.items():
        dry = Happening()
        assert play_once(stage, steps, dry, "", ()) == ""
        for at in range(1, dry.count + 1, step):
            points += 1
            event, end = chosen.choice(events), chosen.choice((*ENDS, "refusal"))
            until = chosen.randint(at, dry.count)
            if problem := play_once(stage, steps, Happening(at, event, until), end, ()):
                wrong.append(
                    f"{what} {at} ({dry.labels[at - 1]}), {event}, {end} at {until}: {problem}"
                )
    count(f"{name}, lost by itself", points, len(wrong))
    assert points > 50 and wrong == []
