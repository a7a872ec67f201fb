"""Follow a log file from its current end, through its rotation."""

from __future__ import annotations

import glob
import os
from contextlib import suppress
from pathlib import Path

from tuner.core import MeasurementError

CHUNK = 1 << 20
LONGEST = 1 << 16
"""The longest line in bytes; longer ones are cut off there."""
PACKED = (".gz", ".xz", ".zst", ".bz2", ".lz4", ".lzma", ".zip", ".Z")
REMEMBERED = 64
"""The number of bytes before the read position that are compared with those read earlier.

If they differ, the file was truncated and has grown again.
"""


class LogFile:
    """One open log file, and its new lines."""

    def __init__(self, path: Path, *, at_end: bool) -> None:
        self._path = path
        self._handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(self._handle)
            self.place = (status.st_dev, status.st_ino)
            self._at = status.st_size if at_end else 0
            length = min(REMEMBERED, self._at)
            self._tail = os.pread(self._handle, length, self._at - length)
        except OSError:
            self.close()
            raise
        self._rest = b""
        # The beginning of an unfinished line was not read, so the rest of that line is left out, too.
        self._whole = not at_end or self._at == 0 or self._tail.endswith(b"\n")

    def lines(self) -> list[str]:
        """Return the lines completed since the last call. Raises MeasurementError: it was truncated."""
        self._demand_grown()
        lines: list[str] = []
        while chunk := os.pread(self._handle, CHUNK, self._at):
            self._at += len(chunk)
            self._tail = (self._tail + chunk)[-REMEMBERED:]
            *whole, self._rest = (self._rest + chunk).split(b"\n")
            self._rest = self._rest[:LONGEST]
            for line in whole:
                if self._whole:
                    lines.append(line[:LONGEST].decode(errors="replace"))
                self._whole = True
        return lines

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    def _demand_grown(self) -> None:
        """Raise MeasurementError if the file was truncated since the last read."""
        before = os.pread(self._handle, len(self._tail), self._at - len(self._tail))
        if os.fstat(self._handle).st_size < self._at or before != self._tail:
            raise MeasurementError(
                f"{self._path} was truncated during the window, so lines may be lost",
                hint="measure again; use logrotate without copytruncate",
            )


class LogFollower:
    """The lines that are written to a log after the follower was created.

    After a rotation both files are followed: the renamed one, to which lines may still be written, and
    the new one.

    Raises:
        MeasurementError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: list[LogFile] = []
        self._open(at_end=True)
        self._rotations = self._present()

    def lines(self) -> list[str]:
        """Return the lines completed since the last call, in order.

        Raises:
            MeasurementError: the file cannot be read, was truncated, or was rotated more than once.
        """
        lines = [line for file in self._files for line in file.lines()]
        if self._open(at_end=False):
            lines += self._files[-1].lines()
            before, self._rotations = self._rotations, self._present()
            if self._rotations - before - {file.place for file in self._files}:
                raise MeasurementError(
                    f"{self._path} was rotated more than once since the last reading, so lines are lost",
                    hint="measure again; rotate it less often",
                )
        return lines

    def close(self) -> None:
        """Close the files."""
        while self._files:
            self._files.pop().close()

    def _present(self) -> set[tuple[int, int]]:
        """Return the places of the log and of its rotations that are not packed."""
        present: set[tuple[int, int]] = set()
        for path in self._path.parent.glob(f"{glob.escape(self._path.name)}*"):
            with suppress(OSError):
                status = path.stat()
                present |= {(status.st_dev, status.st_ino)} if path.suffix not in PACKED else set()
        return present

    def _open(self, *, at_end: bool) -> bool:
        """Open the file at the path, unless it is open already; return whether it was opened."""
        try:
            status = self._path.stat()
            if any(file.place == (status.st_dev, status.st_ino) for file in self._files):
                return False
            if not self._path.is_file():
                raise MeasurementError(f"{self._path} is not a file", hint="name a log file")
            self._files.append(LogFile(self._path, at_end=at_end))
        except FileNotFoundError:  # the log was renamed, and its successor does not exist yet
            return False
        except OSError as error:
            raise MeasurementError(
                f"cannot read {self._path}: {error.strerror}",
                hint="make it readable for the agent's user",
            ) from None
        return True

    def __del__(self) -> None:
        with suppress(OSError):
            self.close()
