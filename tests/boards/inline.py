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
        self.name, self.root, self._prefix = name, root, str(link or root)
        self.board: Board = board(name)
        self._there: set[str] = set()
        self._names: dict[str, str] = {}
        self._matches: dict[str, list[Path]] = {}
        self._missing: set[str] = set()
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
        self.board.reset()

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
        self._fill()  # before the old one goes: its number is not to be had again
        shutil.rmtree(old)

    @contextmanager
    def at(self, hook: Hook = lambda kind, name: 0) -> Iterator[None]:
        """Answer this process's reads, writes and searches below the root as the board does."""
        read, write, raw, search = Path.read_text, Path.write_text, Path.read_bytes, Path.glob
        self._missing.clear()

        def reading_bytes(path: Path) -> bytes:
            name = self._name(str(path))
            return self.board.nodes[name].read() if name else raw(path)

        def reading(path: Path, *how: Any, **more: Any) -> str:  # noqa: ANN401
            place = str(path)
            if place in self._missing:
                raise FileNotFoundError(ENOENT, os.strerror(ENOENT), place)
            if not (name := self._name(place)):
                try:
                    return read(path, *how, **more)
                except FileNotFoundError:
                    self._missing |= {place} if place.startswith(self._prefix) else set()
                    raise
            if problem := hook("read", name):
                raise OSError(problem, os.strerror(problem), place)
            return self.board.nodes[name].read().decode()

        def writing(path: Path, text: str, *how: Any, **more: Any) -> int:  # noqa: ANN401
            place = str(path)
            if not (name := self._name(place)):
                self._look_anew()
                return write(path, text, *how, **more)
            if problem := hook("write", f"{name}={text}"):
                raise OSError(problem, os.strerror(problem), place)
            self.board.nodes[name].write(text)
            return len(text)

        def searching(path: Path, pattern: str) -> Iterator[Path]:
            if not str(path).startswith(self._prefix):
                return search(path, pattern)
            key = f"{path} {pattern}"
            if key not in self._matches:
                self._matches[key] = [*search(path, pattern)]
            return iter(self._matches[key])

        with (
            mock.patch.object(Path, "read_text", reading),
            mock.patch.object(Path, "read_bytes", reading_bytes),
            mock.patch.object(Path, "write_text", writing),
            mock.patch.object(Path, "glob", searching),
        ):
            yield

    def _name(self, place: str) -> str:
        """Return the name of a file of the board; nothing of any other, or of one that is not there."""
        if not place.startswith(self._prefix):
            return ""
        if place not in self._names:
            name = place[len(self._prefix) :]
            if name not in self._there:  # by a link
                folder, _, file = place.rpartition("/")
                name = f"{os.path.realpath(folder)[len(os.path.realpath(self._prefix)) :]}/{file}"
            self._names[place] = name if name in self._there else ""
        return self._names[place]

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
        self._look_anew()

    def _look_anew(self) -> None:
        """Look everything up again; to do so each time was a third of the time in tests/chaos."""
        self._names.clear()
        self._matches.clear()
        self._missing.clear()
