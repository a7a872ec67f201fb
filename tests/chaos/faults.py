"""Fault points: every call that can fail is counted, and a chosen one fails, once or permanently."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock


class Faults:
    """Counts calls; the chosen one fails, and if `lasting` all later ones of its kind until `mended`.

    With `at` 0 nothing fails, and `labels` has the call at each point. Calls after the end are no points.
    """

    def __init__(self, at: int = 0, *, lasting: bool = False) -> None:
        self.at = at
        self.lasting = lasting
        self.mended = False
        self.labels: list[str] = []
        self._kind = ""

    @property
    def struck(self) -> bool:
        """Whether the chosen point was reached."""
        return bool(self._kind)

    def strikes(self, kind: str, what: str) -> bool:
        """Count a call; return whether it fails."""
        if self.mended:
            return False
        self.labels.append(f"{kind} {what}")
        if len(self.labels) == self.at:
            self._kind = kind
            return True
        return self.lasting and self._kind == kind


def full(path: object) -> OSError:
    """Return the error of a full disk."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@contextmanager
def failing_files(faults: Faults, folder: Path) -> Iterator[None]:
    """Make every change that this process makes to a file below a folder a point at which the disk is full.

    Reading and removing still work, as on a full disk; a removal is a separate point.
    """
    prefix = str(folder)

    def inside(path: object) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(prefix)

    def failing(call: Callable[..., Any], kind: str, *, always: bool = False) -> Callable[..., Any]:
        def checked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            path = args[0]
            name = Path(path).name if inside(path) else "file"
            if (always or inside(path)) and faults.strikes(kind, f"{call.__name__} {name}"):
                raise full(path)
            return call(*args, **kwargs)

        return checked

    opened = io.open

    def opening(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        writes = any(letter in mode for letter in "wax+")
        if writes and inside(file) and faults.strikes("disk", f"open {Path(file).name}"):
            raise full(file)
        return opened(file, mode, *args, **kwargs)

    with (
        mock.patch.object(io, "open", opening),
        mock.patch.object(os, "fsync", failing(os.fsync, "disk", always=True)),
        mock.patch.object(os, "replace", failing(os.replace, "disk")),
        mock.patch.object(os, "mkdir", failing(os.mkdir, "disk")),
        mock.patch.object(os, "unlink", failing(os.unlink, "removal")),
    ):
        yield
