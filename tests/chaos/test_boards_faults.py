"""Every file that root reads or writes on a board fails, once or permanently; nothing stays altered."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from agents.actuator.driver import DriverProcess, Value, _answered
from tests.boards.inline import InlineBoard
from tests.chaos.boards import DRIVERS, BoardTheatre, choices
from tests.chaos.fault_scenes import Count, FaultScene, failed_everywhere, trials_around_a_hold
from tests.chaos.faults import Faults

pytestmark = pytest.mark.timeout(1200)  # hundreds of scenes each
MOST = 20
"""The most points of a scene that are tested, evenly spread."""


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


class BoardScene(FaultScene):
    """Two trials around a hold, then the release, on a board."""

    theatre: BoardTheatre

    def prepare(self) -> None:
        driver = self.theatre.driver
        self.uuid = driver.uuid
        self.tried, tried_next, held = choices(driver)
        self.requests = trials_around_a_hold(self.tried, tried_next, held)
        self.found = [_answered({self.uuid: driver}, "describe", "")][0]

    def hand(self) -> BoardHand:
        return BoardHand(self.theatre, self.faults, self.kind)


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
        theatre = BoardTheatre(tmp_path / "t", board=board)
        struck, problems = failed_everywhere(BoardScene, theatre, kind, lasting=lasting, most=MOST)
    count(f"fault: {name}, {kind}, {'for good' if lasting else 'once'}", struck, len(problems))
    assert struck >= 10
    assert not problems
