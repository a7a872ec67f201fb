"""A simulated disk that loses all that was not synced."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from agents.actuator.journal import RestoreJournal


class Ticked(Protocol):
    """A function that is called before each disk call, and may raise."""

    def tick(self) -> object: ...


class VolatileDisk(RestoreJournal):
    """A disk that loses what was not synced: contents by the file's sync, names by the folder's.

    `torn`: a name may reach the disk before its content; the file is then empty.
    """

    def __init__(self, cut: Ticked, folder: Path, *, torn: bool) -> None:
        super().__init__(folder)
        self._cut = cut
        self._torn = torn
        # The files of an earlier actuator were synced.
        self._contents = {path: path.read_bytes() for path in folder.glob("*")}
        self._names = {**self._contents}

    def write(self, path: Path, content: bytes) -> None:
        self._cut.tick()
        super().write(path, content)
        self._contents[path] = b""

    def sync(self, path: Path) -> None:
        self._cut.tick()
        super().sync(path)
        if path.is_dir():
            self._names = {p: c for p, c in self._contents.items() if p.exists()}
        else:
            self._contents[path] = path.read_bytes()

    def rename(self, old: Path, new: Path) -> None:
        self._cut.tick()
        super().rename(old, new)
        self._contents[new] = self._contents.pop(old)

    def remove(self, path: Path) -> None:
        self._cut.tick()
        super().remove(path)

    def lose_power(self, folder: Path) -> None:
        left = {p: c for p, c in self._contents.items() if p.exists()} if self._torn else {}
        for path in folder.iterdir():
            path.unlink()
        for path, content in (self._names | left).items():
            path.write_bytes(content)
