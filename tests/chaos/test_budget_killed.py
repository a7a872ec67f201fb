"""A member of a power budget whose actuator is killed, or whose host loses power, at any point."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from agents.actuator.journal import RestoreJournal
from agents.devices.fake import knobs as fake
from tests.actuation import Direct, DirectHand, actuator_of
from tests.chaos.budgets import AT_FLOOR, FLOOR, LIMIT, MEMBER, Witness, cap, wrong
from tests.chaos.disks import VolatileDisk
from tests.chaos.fault_scenes import PEER, Count, told
from tests.chaos.faults import Faults
from tests.chaos.points import Points, reap_all
from tests.chaos.test_actuator_faults import (
    FaultyDisk,
    FaultyHand,
    Wrong,
    done_but_unheard,
    lost,
    nonsense,
    refused,
)
from tests.chaos.test_power_cut import Cut, CutHand, PowerCut
from tests.chaos.theatre import BOOT, FACTORY, GPU, HELD, Theatre

pytestmark = pytest.mark.timeout(1200)  # hundreds of processes: minutes on a loaded machine
JOINED, LEFT = 1, len(MEMBER)
"""The number of answers after which it surely is a member, and surely is none."""


def play(theatre: Theatre, points: Points) -> Witness:
    """Let an actuator serve a member until it is killed, at the latest at the end."""
    actuator = theatre.start(points)
    witness = Witness(theatre.config.socket, points)
    witness.witness(MEMBER)
    os.kill(actuator, signal.SIGKILL)
    witness.close()
    reap_all()
    assert points.reached
    return witness


def after(theatre: Theatre, witness: Witness) -> str:
    """Return what is wrong after an actuator was killed: at its next start, and once released."""
    problem = wrong(theatre.values, witness.most(MEMBER))
    left = theatre.restore()
    member = witness.answered >= JOINED and witness.asked < LEFT
    wanted = [AT_FLOOR] if member else [FACTORY, AT_FLOOR][: 1 + (witness.answered < LEFT)]
    if theatre.values not in wanted:
        problem = problem or f"restored to {theatre.values}"
    left = left or theatre.leave()
    return problem or theatre.check_original() or str(left or "")


@pytest.mark.promise(
    "the actuator of a member of a power budget dies",
    "the device is never above the greater of its floor and its current cap; every start puts it at its "
    "floor, and its release at its original",
)
def test_the_actuator_of_a_member_killed_anywhere_leaves_no_more_than_its_cap(
    tmp_path: Path, count: Count
) -> None:
    theatre = Theatre(tmp_path / "t", floor=FLOOR)
    dry = Points()
    assert play(theatre, dry).answered == LEFT
    assert theatre.check_original() == ""
    problems: list[str] = []
    for at, label in enumerate(dry.labels, 1):
        theatre.renew_hardware()
        witness = play(theatre, Points(at))
        with theatre.quickly(at):
            problem = after(theatre, witness)
        if problem:
            problems.append(f"killed before {at} ({label}): {problem}")
    count("budget: actuator", len(dry.labels), len(problems))
    assert dry.labels and not problems


def test_a_members_replay_killed_anywhere_is_finished_by_the_next(
    tmp_path: Path, count: Count
) -> None:
    """After a boot that has lost the limit: the floor is written before anything else."""
    theatre = Theatre(tmp_path / "t", floor=FLOOR)
    held = direct(
        theatre, DirectHand(theatre.hardware), "the boot before", RestoreJournal(theatre.journal)
    )
    join(held)
    lose_limit(theatre)
    start = theatre.snapshot()
    dry = Points()
    theatre.replay(dry)
    problems: list[str] = []
    for at, label in enumerate(dry.labels, 1):
        theatre.put_on(start)
        theatre.replay(Points(at))
        with theatre.quickly(at):
            left = theatre.restore()
            problem = "" if theatre.values == AT_FLOOR else f"at {theatre.values}"
            left = left or theatre.leave()
        problem = problem or theatre.check_original() or str(left or "")
        if problem:
            problems.append(f"replay killed before {at} ({label}): {problem}")
    count("budget: replay after a boot", len(dry.labels), len(problems))
    assert dry.labels and not problems


@pytest.mark.parametrize("torn", [False, True])
def test_a_power_cut_ends_no_membership(torn: bool, tmp_path: Path, count: Count) -> None:
    theatre = Theatre(tmp_path / "t", floor=FLOOR)
    dry = Cut(0)
    scene(theatre, VolatileDisk(dry, theatre.journal, torn=torn), dry, [])
    problems: list[str] = []
    for at in range(1, dry.count + 1):
        theatre.renew_hardware()
        cut, done = Cut(at), list[str]()
        disk = VolatileDisk(cut, theatre.journal, torn=torn)
        with pytest.raises(PowerCut):
            scene(theatre, disk, cut, done)
        disk.lose_power(theatre.journal)
        lose_limit(theatre)
        started = direct(
            theatre, DirectHand(theatre.hardware), "next", RestoreJournal(theatre.journal)
        )
        left = started.replay()
        member = "join" in done and "leaving" not in done
        problem = f"at {theatre.values}" if member and theatre.values != AT_FLOOR else ""
        started.leave_budget(PEER, GPU)
        problem = problem or theatre.check_original() or str(left or "")
        if problem:
            problems.append(f"power cut before {at}, after {done}: {problem}")
    count(f"power cut of a member{', torn' if torn else ''}", dry.count, len(problems))
    assert dry.count > 20 and not problems


@pytest.mark.parametrize("lasting", [False, True], ids=told)
@pytest.mark.parametrize("fault", [None, refused, lost, done_but_unheard, nonsense], ids=told)
def test_after_a_fault_anywhere_a_member_is_at_its_floor(
    fault: Wrong | None, lasting: bool, tmp_path: Path, count: Count
) -> None:
    theatre = Theatre(tmp_path / "t", floor=FLOOR)
    dry = Faults()
    assert faulty(theatre, dry, fault) == ""
    problems: list[str] = []
    struck = 0
    for at, label in enumerate(dry.labels, 1):
        theatre.renew_hardware()
        faults = Faults(at, lasting=lasting)
        problem = faulty(theatre, faults, fault)
        struck += faults.struck
        if problem:
            problems.append(f"{at} ({label}): {problem}")
    count(f"fault: member, {told(fault)}, {told(lasting)}", struck, len(problems))
    assert struck > 15 and not problems


def faulty(theatre: Theatre, faults: Faults, fault: Wrong | None) -> str:
    """Lower and raise a member during a fault, end the fault, and return what is wrong."""
    now = 0.0
    disk = RestoreJournal(theatre.journal) if fault else FaultyDisk(faults, theatre.journal)
    hand = FaultyHand(theatre.hardware, faults, fault)
    made = actuator_of(theatre.config, lambda: hand, disk, BOOT, lambda: now)
    actuator = Direct(made)
    actuator.replay()
    joined, acknowledged, problem = False, 400, ""
    for revision, watts in enumerate((300, 200, 160), 1):
        with suppress(Exception):
            ask(actuator, revision, watts)
            joined, acknowledged = True, watts
        with suppress(Exception):
            actuator.hold(PEER, GPU, {**HELD, LIMIT: min(300, watts)}, 1000.0)
        if joined:
            problem = problem or wrong(theatre.values, max(150, acknowledged))
    with suppress(Exception):
        actuator.release(PEER, GPU)
    faults.mended = True
    for _ in range(3):
        now += 120.0
        actuator.tick()
    if joined and theatre.values != AT_FLOOR:
        problem = problem or f"a member at {theatre.values}"
    actuator.leave_budget(PEER, GPU)
    now += 120.0
    actuator.tick()
    return problem or theatre.check_original()


def ask(actuator: Direct, revision: int, *watts: float) -> None:
    request = cap(revision, *((3.0 * n, w) for n, w in enumerate(watts)))
    actuator.cap(PEER, GPU, request["group"], revision, request["steps"])


def join(actuator: Direct) -> None:
    actuator.replay()
    ask(actuator, 1, 300)
    actuator.hold(PEER, GPU, HELD, 1000.0)


def scene(theatre: Theatre, disk: VolatileDisk, cut: Cut, done: list[str]) -> None:
    """Join, hold, get a lower cap, release and leave; `done` are the answers."""
    actuator = direct(theatre, CutHand(theatre, cut), BOOT, disk)
    actuator.replay()
    ask(actuator, 1, 300)
    done.append("join")
    actuator.hold(PEER, GPU, HELD, 1000.0)
    ask(actuator, 2, 200)
    actuator.release(PEER, GPU)
    done.append("leaving")
    actuator.leave_budget(PEER, GPU)


def direct(theatre: Theatre, hand: DirectHand, boot: str, originals: RestoreJournal) -> Direct:
    made = actuator_of(theatre.config, lambda: hand, originals, boot, lambda: 0.0)
    return Direct(made)


def lose_limit(theatre: Theatre) -> None:
    """Reboot the machine: all values are the driver's defaults."""
    state = fake.load(theatre.hardware)
    state["devices"][GPU]["values"].update(FACTORY)
    state["epoch"] = "next"
    fake.save(theatre.hardware, state)
