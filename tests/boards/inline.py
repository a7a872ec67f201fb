"""A board in this very process: a folder of its files, which answer as the board's do while it is `at`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from errno import ENOENT
from pathlib import Path
from typing import Any
from unittest import mock

from tests.boards.board import Board
from tests.boards.cpufreq import CPU, Cpus
from tests.boards.trees import board

Hook = Callable[[str, str], int]
"""Called with `read` or `write` and a file's name; returns the error to answer instead, 0 for none."""


class InlineBoard:
    """A board and its files, quicker than one that is mounted; nobody else sees it.

    `link` is a symbolic link to its root by which it is asked for.
    """

    def __init__(self, name: str, root: Path, link: Path | None = None) -> None:
        self.name, self.root, self._link = name, root, link or root
        self.board: Board = board(name)
        self._folders: dict[str, str] = {}
        self._there: set[str] = set()
        self._fill()

    @property
    def cpus(self) -> Cpus:
        """Which CPUs are online."""
        return next(one for one in self.board.state if isinstance(one, Cpus))

    @property
    def altered(self) -> dict[str, str]:
        """The files that are not as they were found."""
        return self.board.altered

    def reset(self) -> None:
        """Have every file as it began."""
        self.board.reset()

    def note(self, file: Path) -> None:
        """Keep the board's state in a file."""
        self.board.note(file)

    def put(self, file: Path) -> None:
        """Have the board as it was kept in a file."""
        self.board.put(file)

    def renew(self) -> None:
        """Have the board as it began; its policies are new ones."""
        self.board.reset()
        self.reload()

    def turn(self, cpus: Iterable[int], *, online: bool) -> None:
        """Take CPUs offline, or bring them back."""
        for cpu in cpus:
            self.board.nodes[f"{CPU}/cpu{cpu}/online"].write(str(int(online)))
        self._fill()

    def reload(self) -> None:
        """Load the clocks' driver anew."""
        self.board.reload()
        moving = self.board.moving
        old, folder = self.root / "old", self.root / moving[1:]
        folder.rename(old)
        self._there -= {name for name in self._there if name.startswith(f"{moving}/")}
        self._folders.clear()
        self._fill()  # before the old one goes: its number is not to be had again
        shutil.rmtree(old)

    @contextmanager
    def at(self, hook: Hook = lambda kind, name: 0) -> Iterator[None]:
        """Answer this process's reads and writes below the root as the board does."""
        read, write, raw = Path.read_text, Path.write_text, Path.read_bytes

        def reading_bytes(path: Path) -> bytes:
            name = self._name(path)
            return self.board.nodes[name].read() if name else raw(path)

        def reading(path: Path, *how: Any, **more: Any) -> str:  # noqa: ANN401
            if not (name := self._name(path)):
                return read(path, *how, **more)
            if problem := hook("read", name):
                raise OSError(problem, os.strerror(problem), str(path))
            return self.board.nodes[name].read().decode()

        def writing(path: Path, text: str, *how: Any, **more: Any) -> int:  # noqa: ANN401
            if not (name := self._name(path)):
                return write(path, text, *how, **more)
            if problem := hook("write", f"{name}={text}"):
                raise OSError(problem, os.strerror(problem), str(path))
            self.board.nodes[name].write(text)
            return len(text)

        with (
            mock.patch.object(Path, "read_text", reading),
            mock.patch.object(Path, "read_bytes", reading_bytes),
            mock.patch.object(Path, "write_text", writing),
        ):
            yield

    def _name(self, path: Path) -> str:
        """Return the name of a file of the board; nothing of any other, or of one that is not there."""
        root, place = str(self._link), str(path)
        if not place.startswith(root):
            return ""
        if place[len(root) :] not in self._there:
            # By a link, which stays: looking it up each time is a quarter of the time in tests/chaos.
            folder, _, file = place.rpartition("/")
            if folder not in self._folders:
                inside = os.path.realpath(folder)[len(os.path.realpath(root)) :]
                self._folders[folder] = root + inside
            place = f"{self._folders[folder]}/{file}"
        name = place[len(root) :]
        return name if name in self._there else ""

    def _place(self, path: str) -> Path:
        place = self.root / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def _fill(self) -> None:
        for path, target in self.board.links.items():
            if not (place := self._place(path)).is_symlink():
                place.symlink_to(target)
        for path, node in self.board.nodes.items():
            if path not in self._there and node.refusal() != ENOENT:
                self._place(path).touch()
                self._there.add(path)
