"""kill -9 of the actuator between every two steps, and of its replay between every two of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.devices.fake import knobs as fake
from tests.chaos.points import Points
from tests.chaos.scripts import CAPS, SCRIPTS
from tests.chaos.theatre import (
    Theatre,
)

pytestmark = pytest.mark.timeout(1200)  # hundreds of processes each: minutes on a loaded machine
NUMBER = re.compile(rb"number[^,]*,")
"""What tells two copies of a journal from each other, but not what is in them."""
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
    steps, wrong = theatre.killed_everywhere(script, lambda: clear_faults(theatre))
    count(f"actuator: {name}", len(steps), len(wrong))
    assert steps and not wrong


@pytest.mark.parametrize("name", CAPS)
def test_killed_anywhere_under_a_cap_the_ceiling_is_as_it_was_asked_for(
    name: str, tmp_path: Path, count: Count
) -> None:
    """Put back while it is still hot, then cool; what another program lowered stays as it set it."""
    theatre = Theatre(tmp_path / "t", knobs=fake.ALL)
    dry = Points()
    theatre.play(CAPS[name], dry)
    theatre.restore()
    wrong: list[str] = []
    for at, label in enumerate(dry.labels, 1):
        theatre.renew_hardware()
        theatre.play(CAPS[name], Points(at))
        left = {} if theatre.lowered else theatre.restore()
        theatre.happens()
        left = left or theatre.restore()
        problem = theatre.check_original() or ("" if theatre.lowered else str(left or ""))
        if problem:
            wrong.append(f"killed before {at} ({label}): {problem}")
    count(f"actuator: {name}", len(dry.labels), len(wrong))
    assert dry.labels and not wrong


def test_the_replay_killed_anywhere_is_finished_by_the_next(tmp_path: Path, count: Count) -> None:
    theatre = Theatre(tmp_path / "t")
    script, _ = SCRIPTS["two trials over a hold"]
    dry = Points()
    theatre.play(script, dry)
    states = {}
    for at in range(1, len(dry.labels) + 1):
        theatre.renew_hardware()
        theatre.play(script, Points(at))
        if theatre.journalled:
            hardware, files = state = theatre.snapshot()
            alike = hardware, tuple((name, NUMBER.sub(b"", text)) for name, text in files)
            states[alike] = state, at
    points, wrong = 0, []
    for state, died in states.values():
        theatre.put_on(state)
        steps = Points()
        theatre.replay(steps)
        for at, label in enumerate(steps.labels, 1):
            points += 1
            theatre.put_on(state)
            theatre.replay(Points(at))
            left = theatre.restore()
            problem = theatre.check_original() or str(left or "")
            if problem:
                wrong.append(f"killed at {died}, replay before {at} ({label}): {problem}")
    count("replay", points, len(wrong))
    assert points and not wrong


def clear_faults(theatre: Theatre) -> None:
    state = fake.load(theatre.hardware)
    for device in state["devices"].values():
        device["faults"] = {}
    fake.save(theatre.hardware, state)
