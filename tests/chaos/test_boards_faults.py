"""Every file that root reads or writes on a board fails, once or permanently; nothing stays altered."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from agents.actuator.device import Peer
from agents.actuator.driver import DriverProcess, Value, _answered
from agents.actuator.journal import RestoreJournal
from tests.actuation import Direct, actuator_of
from tests.boards.inline import InlineBoard
from tests.chaos.boards import DRIVERS, BoardTheatre, choices
from tests.chaos.faults import Faults
from tests.chaos.theatre import BOOT
from tuner.errors import TuningError

pytestmark = pytest.mark.timeout(1200)  # hundreds of scenes each
Count = Callable[[str, int, int], None]
PEER = Peer(1, 1, 7)
MOST = 20
"""The most points of a scene that are tested, evenly spread."""
LATER_S = 120.0
"""Longer than any wait before the actuator tries again."""


class BoardHand(DriverProcess):
    """Calls a board's driver in this process; its files fail at the chosen point."""

    def __init__(self, theatre: BoardTheatre, faults: Faults, kind: str) -> None:
        super().__init__(lambda: (), 1.0)
        self._theatre, self._faults, self._kind = theatre, faults, kind
        self._drivers = {d.uuid: d for d in theatre.drivers(None)}

    async def renew(self) -> None:
        """Find the board's files again, as a new child does."""
        self._drivers = {d.uuid: d for d in self._theatre.drivers(None)}

    async def ask(self, verb: str, uuid: str = "", *details: Value | None) -> Any:  # noqa: ANN401
        with failing(self._faults, self._kind):
            return _answered(self._drivers, verb, uuid, *details)


@contextmanager
def failing(faults: Faults, kind: str) -> Iterator[None]:
    """Make each read or write of a file a point, at which it is refused or has no effect."""
    read, write = Path.read_text, Path.write_text

    def reading(path: Path) -> str:
        if kind == "unreadable" and faults.strikes("read", path.name):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return read(path)

    def writing(path: Path, text: str) -> int:
        if kind != "unreadable" and faults.strikes("write", f"{path.name}={text}"):
            if kind == "without effect":
                return len(text)
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return write(path, text)

    with (
        mock.patch.object(Path, "read_text", reading),
        mock.patch.object(Path, "write_text", writing),
    ):
        yield


class Scene:
    """An actuator over a board, and a settable clock."""

    def __init__(self, theatre: BoardTheatre, faults: Faults, kind: str) -> None:
        self.theatre, self.faults, self.kind, self.now = theatre, faults, kind, 0.0
        self.uuid = theatre.driver.uuid
        self.tried, self.tried_next, self.held = choices(theatre.driver)
        self.actuator = self.started()

    def started(self) -> Direct:
        """Return a started actuator: its journal is replayed, its grants are made."""
        hand = BoardHand(self.theatre, self.faults, self.kind)
        journal = RestoreJournal(self.theatre.journal)
        (about,) = _answered({self.uuid: self.theatre.driver}, "describe", "")
        made = actuator_of(
            self.theatre.config, lambda: hand, journal, BOOT, lambda: self.now, [about]
        )
        actuator = Direct(made)
        actuator.replay()
        return actuator

    def play(self) -> None:
        """Request two trials around a hold, then the release; refusals are ignored."""
        for verb, details in (
            ("acquire", (5.0,)),
            ("apply", (self.tried,)),
            ("hold", (self.held, 1000.0)),
            ("acquire", (5.0,)),
            ("apply", (self.tried_next,)),
            ("release", ()),
        ):
            with suppress(Exception):  # as whoever answers a peer contains it
                getattr(self.actuator, verb)(PEER, self.uuid, *details)
        self.actuator.gone(PEER)

    def settle(self) -> None:
        """Let time pass, and run the actuator's periodic tasks."""
        for _ in range(3):
            self.now += LATER_S
            self.actuator.tick()

    def usable(self) -> str:
        """Return why the board cannot be set as before; empty if it can."""
        try:
            self.actuator.acquire(PEER, self.uuid, 5.0)
            self.actuator.apply(PEER, self.uuid, self.tried)
            self.actuator.release(PEER, self.uuid)
        except TuningError as error:
            return f"not usable: {error}"
        return ""


def scene(stage: Scene, *, restarted: bool) -> str:
    """Play a scene with its fault, end the fault, and return what is wrong then; empty if nothing is."""
    stage.play()
    stage.settle()
    stage.faults.mended = True
    if restarted:
        stage.actuator = stage.started()
    stage.settle()
    return stage.theatre.check_original() or stage.usable() or stage.theatre.check_original()


@pytest.mark.promise(
    "a full disk, or a driver that refuses, hangs or answers nonsense, transient or permanent"
)
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("kind", ["read-only", "without effect", "unreadable"])
@pytest.mark.parametrize("name", [name for name in DRIVERS if name != "tx2"])
def test_after_a_file_has_failed_nothing_is_left_altered(
    name: str, kind: str, lasting: bool, tmp_path: Path, count: Count
) -> None:
    board = InlineBoard(name, tmp_path / "root", tmp_path / "t/board")
    with board.at():
        struck, problems = gone_through(BoardTheatre(tmp_path / "t", board=board), kind, lasting)
    count(f"fault: {name}, {kind}, {'for good' if lasting else 'once'}", struck, len(problems))
    assert struck >= 10
    assert not problems


def gone_through(theatre: BoardTheatre, kind: str, lasting: bool) -> tuple[int, list[str]]:
    """Play a scene with a fault at each point; return how many there were, and what was wrong."""
    dry = Scene(theatre, Faults(), kind)
    assert scene(dry, restarted=False) == ""
    problems: list[str] = []
    points = range(1, len(dry.faults.labels) + 1, max(1, len(dry.faults.labels) // MOST))
    struck = 0
    for at in points:
        theatre.renew_hardware()
        stage = Scene(theatre, Faults(at, lasting=lasting), kind)
        problem = scene(stage, restarted=at % 2 == 0)
        struck += stage.faults.struck
        if problem:
            problems.append(f"{at} ({dry.faults.labels[at - 1]}): {problem}")
    return struck, problems
