"""kill -9 of the actuator between every two steps, and of its journal's replay likewise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agents.devices.fake import knobs as fake
from tests.chaos.points import Points
from tests.chaos.scripts import CAPS, SCRIPTS
from tests.chaos.theatre import REAL, Theatre

pytestmark = pytest.mark.timeout(1200)  # hundreds of processes each: minutes on a loaded machine
Count = Callable[[str, int, int], None]


@pytest.mark.promise(
    "the actuator dies, also by SIGKILL",
    "every start, and `ExecStopPost=`, restores every device from the journal; the "
    "agent then requests its hold again",
)
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_actuator_killed_anywhere_puts_back_at_its_next_start(
    name: str, tmp_path: Path, count: Count
) -> None:
    script, faults = SCRIPTS[name]
    theatre = Theatre(tmp_path / "t", faults)

    def after() -> str:
        clear_faults(theatre)
        return theatre.put_back()

    steps, wrong = theatre.killed_everywhere(script, after)
    count(f"actuator: {name}", len(steps), len(wrong))
    assert steps and not wrong


@pytest.mark.parametrize("name", CAPS)
def test_killed_anywhere_under_a_cap_the_ceiling_is_the_requested_one(
    name: str, tmp_path: Path, count: Count
) -> None:
    """Restore while the kernel caps, then end the cap; a value lowered by another program stays."""
    theatre = Theatre(tmp_path / "t", knobs=fake.ALL)

    def after() -> str:
        left = {} if theatre.lowered else theatre.restore()
        theatre.happens()
        left = left or theatre.restore()
        return theatre.check_original() or ("" if theatre.lowered else str(left or ""))

    steps, wrong = theatre.killed_everywhere(CAPS[name], after)
    count(f"actuator: {name}", len(steps), len(wrong))
    assert steps and not wrong


def test_the_replay_killed_anywhere_is_finished_by_the_next(tmp_path: Path, count: Count) -> None:
    theatre = Theatre(tmp_path / "t")
    script, _ = SCRIPTS["two trials over a hold"]
    dry = Points(note=theatre.note)
    theatre.play(script, dry)
    states = {}
    for at in range(1, len(dry.labels) + 1):
        theatre.return_to(at)
        if theatre.journalled:
            states[str(theatre.left())] = theatre.snapshot(), at
    points, wrong = 0, []
    for state, died in states.values():
        theatre.put_on(state)
        steps = Points(note=theatre.note)
        theatre.replay(steps)
        for at, label in enumerate(steps.labels, 1):
            points += 1
            theatre.return_to(at)
            if at % REAL == 1:
                noted = theatre.left()
                theatre.put_on(state)
                theatre.replay(Points(at))
                assert theatre.left() == noted
            with theatre.quickly(at):
                problem = theatre.put_back()
            if problem:
                wrong.append(f"killed at {died}, replay before {at} ({label}): {problem}")
    count("replay", points, len(wrong))
    assert points and not wrong


def clear_faults(theatre: Theatre) -> None:
    state = fake.load(theatre.hardware)
    for device in state["devices"].values():
        device["faults"] = {}
    fake.save(theatre.hardware, state)
