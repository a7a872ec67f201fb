"""A board in this process: a folder of its files, which behave like the board's within `at`."""

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
"""Called with `read` or `write` and a file's name; returns an error number to raise, or 0."""


class InlineBoard:
    """A board and its files, faster than a mounted one, and visible only to this process.

    `link` is a symbolic link to its root, by which it is opened.
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
        """The CPUs that are online."""
        return next(one for one in self.board.state if isinstance(one, Cpus))

    @property
    def altered(self) -> dict[str, str]:
        """The files that differ from their original content."""
        return self.board.altered

    def reset(self) -> None:
        """Reset every file."""
        self.board.reset()

    def note(self, file: Path) -> None:
        """Write the board's state to a file."""
        self.board.note(file)

    def put(self, file: Path) -> None:
        """Read the board's state from a file."""
        self.board.put(file)

    def renew(self) -> None:
        """Reset the board; its policies are new ones."""
        self.board.reset()
        self.reload()
        self.board.reset()

    def turn(self, cpus: Iterable[int], *, online: bool) -> None:
        """Take CPUs offline, or bring them back."""
        for cpu in cpus:
            self.board.nodes[f"{CPU}/cpu{cpu}/online"].write(str(int(online)))
        self._fill()

    def reload(self) -> None:
        """Reload the clocks' driver."""
        self.board.reload()
        moving = self.board.moving
        old, folder = self.root / "old", self.root / moving[1:]
        folder.rename(old)
        self._there -= {name for name in self._there if name.startswith(f"{moving}/")}
        self._fill()  # before the old one is removed, so that its inode number is not reused
        shutil.rmtree(old)

    @contextmanager
    def at(self, hook: Hook = lambda kind, name: 0) -> Iterator[None]:
        """Answer this process's reads, writes and searches below the root like the board."""
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
        """Return the name of an existing file of the board; None for any other file."""
        if not place.startswith(self._prefix):
            return ""
        if place not in self._names:
            name = place[len(self._prefix) :]
            if name not in self._there:  # through a link
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
        """Look up all files again; a lookup at every call took a third of the time of tests/chaos."""
        self._names.clear()
        self._matches.clear()
        self._missing.clear()
