"""CPUs go offline or online between every two steps, and then the actuator is killed.

Or power fails, or a file refuses. Once every CPU is online again, every file has its original value.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.boards.inline import InlineBoard
from tests.chaos.boards import choices
from tests.chaos.hotplug import PEER, Happening, Stage, Step, play_once
from tuner.errors import ActuationError

pytestmark = pytest.mark.timeout(1200)
Count = Callable[[str, int, int], None]
ENDS = ("kill", "power cut", "fault")
LAST = {"amd": [1], "zen": [2, 3], "orin": [8, 9, 10, 11]}
"""Board to the CPUs of its last policy."""
GOVERNOR, PREFERENCE = "cpu.governor", "cpu.epp"
PAIRS = (
    {GOVERNOR: "performance"},
    {GOVERNOR: "powersave", PREFERENCE: "power"},
    {GOVERNOR: "performance", PREFERENCE: "performance"},
    {GOVERNOR: "performance", PREFERENCE: "power"},
)
"""The last one never takes effect: its governor allows no other preference."""


def scripts(tried: object, tried_next: object, held: object) -> dict[str, tuple[Step, ...]]:
    """Return the steps of a trial, of a hold, and of an actuator's start after another died."""
    acquire, renew, hold = ("acquire", (5.0,)), ("renew", (5.0,)), ("hold", (held, 1000.0))
    later, apply = ("pass", (1.0, 2)), ("apply", (tried_next,))
    return {
        "trial": (acquire, ("apply", (tried,)), renew, later, ("release", ())),
        "hold": (hold, later, renew, acquire, apply, hold, ("release", ())),
        "restore": (hold, ("start", ())),
    }


@pytest.fixture
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    """Return a stage over the requested board."""
    (tmp_path / "journal").mkdir()
    board = InlineBoard(request.param, tmp_path / "root")
    with board.at():
        return Stage(board, tmp_path / "journal")


def gone_through(
    stage: Stage,
    steps: Sequence[Step],
    end: str,
    offline: Sequence[int] = (),
    event: Callable[[], None] | None = None,
) -> tuple[int, list[str]]:
    """Test a death at every point, or an event and then a death; return their number and the problems."""
    dry = Happening()
    assert play_once(stage, steps, dry, "", offline) == ""
    chosen, wrong = random.Random(0), list[str]()
    for at in range(1, dry.count + 1):
        until = chosen.randint(at, dry.count) if event else at
        happening = Happening(at, event or (lambda: None), until)
        if problem := play_once(stage, steps, happening, end, offline):
            wrong.append(f"{at} ({dry.labels[at - 1]}), {end} at {until}: {problem}")
    return dry.count, wrong


@pytest.mark.promise(
    "a CPU goes offline, or comes back, while a setting is in force",
    "its files wait in the journal until it is online; they are then restored, or set as the hold is",
)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("what", ["trial", "hold", "restore"])
@pytest.mark.parametrize("goes", [True, False], ids=["off", "on"])
@pytest.mark.parametrize("stage", LAST, indirect=True)
def test_cpus_that_go_or_come_at_any_point_leave_nothing_altered(
    stage: Stage, goes: bool, what: str, end: str, count: Count
) -> None:
    name = stage.board.board.name
    with stage.board.at():
        steps = scripts(*choices(stage.device))[what]
    event = partial(stage.board.turn, LAST[name], online=not goes)
    points, wrong = gone_through(stage, steps, end, [] if goes else LAST[name], event)
    kind = "" if end == "kill" else f"{end}: "
    count(f"{kind}{name}, CPUs {'go' if goes else 'come'}, {what}", points, len(wrong))
    assert points > 20 and not wrong


@pytest.mark.promise(
    "the machine resumes, or the clocks' driver is loaded anew, while a setting is in force",
    "what that put back to its default is lost, not another program's: it is set again in a hold, and no "
    "trial goes on without it",
)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("what", ["trial", "hold", "restore"])
@pytest.mark.parametrize("happens", ["suspend", "reload"])
@pytest.mark.parametrize("stage", ["amd", "zen"], indirect=True)
def test_a_resume_or_reload_at_any_point_leaves_nothing_altered(
    stage: Stage, happens: str, what: str, end: str, count: Count
) -> None:
    name = stage.board.board.name
    with stage.board.at():
        steps = scripts(*choices(stage.device))[what]
    points, wrong = gone_through(stage, steps, end, event=getattr(stage, happens))
    kind = "" if end == "kill" else f"{end}: "
    count(f"{kind}{name}, {happens}, {what}", points, len(wrong))
    assert points > 20 and not wrong


@pytest.mark.promise(
    "setting a knob changes another one's files",
    "those are in the journal before, and go back with it, in the driver's order",
)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("what", ["trial", "hold", "restore"])
@pytest.mark.parametrize("stage", ["amd", "amd-server", "intel"], indirect=True)
def test_a_governor_and_its_preference_are_restored_together(
    stage: Stage, what: str, end: str, count: Count
) -> None:
    points, wrong = 0, list[str]()
    for n, pair in enumerate(PAIRS):
        settings = pair, PAIRS[n - 1], PAIRS[n - 2]
        more, problems = gone_through(stage, scripts(*settings)[what], end)
        points, wrong = points + more, wrong + problems
    kind = "" if end == "kill" else f"{end}: "
    name = stage.board.board.name
    count(f"{kind}{name}, governor and preference, {what}", points, len(wrong))
    assert points > 20 and not wrong


@pytest.mark.parametrize("stage", ["amd", "amd-server", "intel"], indirect=True)
def test_a_preference_that_its_governor_rejects_is_refused_without_blame(
    stage: Stage,
) -> None:
    with stage.board.at():
        stage.ask("acquire", 5.0)
        with pytest.raises(
            ActuationError, match=r"preference rejects power.*another knob excludes it"
        ):
            stage.ask("apply", PAIRS[-1])
        stage.settle()
        assert stage.ask("read")["paused"] == ""
        assert stage.wrong() == "" and stage.board.board.altered == {}


@pytest.mark.parametrize("stage", ["amd", "intel"], indirect=True)
def test_clocks_that_boost_had_hidden_are_offered_by_the_next_actuator(stage: Stage) -> None:
    """With boost off the highest clock is the nominal one; an actuator killed in a hold leaves it so."""
    with stage.board.at():
        offered = stage.actuator.capabilities(PEER)["devices"][0]["granted"]
        stage.ask("hold", {"cpu.boost": "off"}, 1000.0)
        stage.start()
        assert stage.actuator.capabilities(PEER)["devices"][0]["granted"] == offered
        assert stage.wrong() == ""
