"""Every disk and driver call of the actuator fails, once or permanently; nothing stays altered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agents.actuator.device import Peer
from agents.actuator.driver import Value
from agents.actuator.journal import RestoreJournal
from agents.devices.fake import knobs as fake
from tests.actuation import Direct, DirectHand, actuator_of
from tests.chaos.faults import Faults, full
from tests.chaos.theatre import (
    BOOT,
    CAP,
    CEILING_HELD,
    CEILING_TRIED,
    GPU,
    HELD,
    TRIED,
    TRIED_NEXT,
    Theatre,
)
from tuner.errors import ActuationError, DeviceLost, TuningError

Count = Callable[[str, int, int], None]
PEER = Peer(1, 1, 7)
LATER_S = 120.0
"""Longer than any wait before the actuator tries again."""


class FaultyDisk(RestoreJournal):
    """A journal's disk that is full from the chosen point on: it can be read, but not written."""

    def __init__(self, faults: Faults, folder: Path) -> None:
        super().__init__(folder)
        self._faults = faults

    def _strike(self, call: str, path: Path) -> None:
        if self._faults.strikes("disk", f"{call} {path.name}"):
            raise full(path)

    def write(self, path: Path, content: bytes) -> None:
        self._strike("write", path)
        super().write(path, content)

    def sync(self, path: Path) -> None:
        self._strike("sync", path)
        super().sync(path)

    def rename(self, old: Path, new: Path) -> None:
        self._strike("rename", new)
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self._strike("remove", path)
        super().remove(path)


Do = Callable[..., Awaitable[Any]]
Wrong = Callable[[str, Do], Awaitable[Any]]
"""The behaviour of a faulty driver, called with the request as text and a function that carries it out."""


async def refused(verb: str, do: Do) -> Any:  # noqa: ANN401 - JSON
    raise ActuationError(f"the driver refuses to {verb}")


async def lost(verb: str, do: Do) -> Any:  # noqa: ANN401
    raise DeviceLost(f"it fell off the bus ({verb})")


async def done_but_unheard(verb: str, do: Do) -> Any:  # noqa: ANN401
    await do()
    raise DeviceLost(f"the driver did not answer within 1 s ({verb})")


async def seemingly_done(verb: str, do: Do) -> Any:  # noqa: ANN401
    """Skip the write of a power limit, which can be read back; carry out all other requests."""
    return None if "gpu.power_limit_w" in verb else await do()


async def landing_elsewhere(verb: str, do: Do) -> Any:  # noqa: ANN401
    """A power limit that the driver clamps, when it is set or restored."""
    limit = "gpu.power_limit_w"
    return await do(limit, 170) if verb.startswith(f"write {limit}") else await do()


async def knob_missing(verb: str, do: Do) -> Any:  # noqa: ANN401
    answer = await do()
    if verb == "read":
        answer[0] = {k: v for k, v in answer[0].items() if k != "gpu.power_limit_w"}
    return answer


async def another_value(verb: str, do: Do) -> Any:  # noqa: ANN401
    answer = await do()
    if verb == "read":
        answer[0] = {**answer[0], "gpu.power_limit_w": 123}
    return answer


async def nonsense(verb: str, do: Do) -> Any:  # noqa: ANN401
    await do()
    return "what?" if verb == "read" else None


async def error_of_ours(verb: str, do: Do) -> Any:  # noqa: ANN401
    raise KeyError(verb)


LASTING = (
    refused,
    lost,
    done_but_unheard,
    seemingly_done,
    landing_elsewhere,
    knob_missing,
    nonsense,
    error_of_ours,
)
FAULTS: tuple[tuple[Wrong | None, bool], ...] = (
    *((wrong, lasting) for wrong in (None, *LASTING) for lasting in (False, True)),
    # A driver that keeps reporting another value looks like another program.
    (another_value, False),
)


class FaultyHand(DirectHand):
    """A driver with the fault `wrong` at the chosen point, and none elsewhere."""

    def __init__(self, hardware: Path, faults: Faults, wrong: Wrong | None) -> None:
        super().__init__(hardware)
        self._faults = faults
        self._wrong = wrong

    async def ask(self, verb: str, uuid: str = "", *details: Value | None) -> Any:  # noqa: ANN401
        async def do(*instead: Value) -> Any:  # noqa: ANN401
            return await DirectHand.ask(self, verb, uuid, *(instead or details))

        what = " ".join(map(str, (verb, *details)))
        if self._wrong is None or verb == "describe" or not self._faults.strikes("driver", what):
            return await do()
        return await self._wrong(what, do)


class Stage:
    """An actuator whose disk or driver fails at the chosen point, and a settable clock."""

    def __init__(self, theatre: Theatre, faults: Faults, wrong: Wrong | None) -> None:
        self.theatre = theatre
        self.faults = faults
        self.wrong = wrong
        self.now = 0.0
        self.actuator = self.started()

    def started(self) -> Direct:
        """Return a started actuator: its journal is replayed, its grants are made."""
        disk = RestoreJournal(self.theatre.journal)
        if self.wrong is None:
            disk = FaultyDisk(self.faults, self.theatre.journal)
        hand = FaultyHand(self.theatre.hardware, self.faults, self.wrong)
        made = actuator_of(self.theatre.config, lambda: hand, disk, BOOT, lambda: self.now)
        actuator = Direct(made)
        actuator.replay()
        return actuator

    def play(self) -> None:
        """Request two trials around a hold, then the release; refusals are ignored."""
        requests: tuple[tuple[str, Any], ...] = (
            ("acquire", (5.0,)),
            ("apply", (TRIED,)),
            ("renew", (5.0,)),
            ("hold", (HELD, 1000.0)),
            ("acquire", (5.0,)),
            ("apply", (TRIED_NEXT,)),
            ("hold", (HELD, 1000.0)),
            ("release", ()),
        )
        for verb, details in requests:
            with suppress(Exception):  # as whoever answers a peer contains it
                getattr(self.actuator, verb)(PEER, GPU, *details)
        self.actuator.gone(PEER)

    def cool(self) -> None:
        """End the hardware's own change, which is no fault."""

    def settle(self) -> None:
        """Let time pass, and run the actuator's periodic tasks."""
        for _ in range(3):
            self.now += LATER_S
            self.actuator.tick()

    def usable(self) -> str:
        """Return why the device is not usable as before; empty if it is."""
        try:
            self.actuator.acquire(PEER, GPU, 5.0)
            self.actuator.apply(PEER, GPU, TRIED)
            self.actuator.release(PEER, GPU)
        except TuningError as error:
            return f"not usable: {error}"
        return ""


def point(stage: Stage, *, restarted: bool) -> str:
    """Play a scene with its fault, end the fault, and return what is wrong then; empty if nothing is."""
    stage.play()
    stage.settle()
    stage.faults.mended = True
    if restarted:
        stage.actuator = stage.started()
    stage.settle()
    stage.cool()
    stage.settle()
    return stage.theatre.check_original() or stage.usable() or stage.theatre.check_original()


def told(fault: object) -> str:
    if isinstance(fault, bool):
        return "for good" if fault else "once"
    return getattr(fault, "__name__", "disk full").replace("_", " ")


@pytest.mark.promise(
    "a full disk, or a driver that refuses, hangs or answers nonsense, transient or permanent",
    "the device reverts to the held setting, else to its original; after the fault it"
    " is at its original, and no report is lost",
)
@pytest.mark.parametrize(("wrong", "lasting"), FAULTS, ids=told)
def test_a_fault_anywhere_in_the_actuator_leaves_nothing_altered_once_it_is_over(
    wrong: Wrong | None, lasting: bool, tmp_path: Path, count: Count
) -> None:
    theatre = Theatre(tmp_path / "t")
    dry = Stage(theatre, Faults(), wrong)
    assert point(dry, restarted=False) == ""
    problems: list[str] = []
    struck = 0
    for at, label in enumerate(dry.faults.labels, 1):
        theatre.renew_hardware()
        stage = Stage(theatre, Faults(at, lasting=lasting), wrong)
        problem = point(stage, restarted=at % 2 == 0)
        struck += stage.faults.struck
        if problem:
            problems.append(f"{at} ({label}): {problem}")
    count(f"fault: actuator, {told(wrong)}, {told(lasting)}", struck, len(problems))
    assert struck > 20
    assert not problems


class CappedStage(Stage):
    """Request a trial and a hold of a ceiling, under a kernel cap that falls, rises, and ends."""

    def play(self) -> None:
        requests: tuple[tuple[str, Any], ...] = (
            ("hold", (CEILING_HELD, 1000.0)),
            ("cap", CAP),
            ("renew", (5.0,)),
            ("acquire", (5.0,)),
            ("apply", (CEILING_TRIED,)),
            ("cap", CAP - 500),
            ("renew", (5.0,)),
            ("hold", (CEILING_HELD, 1000.0)),
            ("release", ()),
        )
        for verb, details in requests:
            with suppress(Exception):  # as whoever answers a peer contains it
                if verb == "cap":
                    self.theatre.happens(cap=details)
                else:
                    getattr(self.actuator, verb)(PEER, GPU, *details)
        self.actuator.gone(PEER)

    def cool(self) -> None:
        self.theatre.happens()


@pytest.mark.parametrize("lasting", [False, True], ids=told)
@pytest.mark.parametrize("wrong", [None, refused, lost, done_but_unheard, nonsense], ids=told)
def test_a_fault_anywhere_under_a_cap_leaves_nothing_altered_once_it_is_over(
    wrong: Wrong | None, lasting: bool, tmp_path: Path, count: Count
) -> None:
    theatre = Theatre(tmp_path / "t", knobs=fake.ALL)
    dry = CappedStage(theatre, Faults(), wrong)
    assert point(dry, restarted=False) == ""
    problems: list[str] = []
    struck = 0
    for at, label in enumerate(dry.faults.labels, 1):
        theatre.renew_hardware()
        stage = CappedStage(theatre, Faults(at, lasting=lasting), wrong)
        problem = point(stage, restarted=at % 2 == 0)
        struck += stage.faults.struck
        if problem:
            problems.append(f"{at} ({label}): {problem}")
    count(f"fault: capped actuator, {told(wrong)}, {told(lasting)}", struck, len(problems))
    assert struck > 20
    assert not problems
