"""Files that a crash leaves whole, either the old content or the new, and folders for one process."""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tuner.errors import Conflict, StoreError


def file_name(device: str, suffix: str) -> str:
    """Return the name of a device's file: its id with anything unusual replaced."""
    return re.sub(r"[^A-Za-z0-9._@+-]", "-", device) + suffix


def write(path: Path, text: str, mode: int = 0o666, *, keep_mode: bool = False) -> None:
    """Replace a file's content; once this returns, it is on the disk.

    Temporary file, fsync, rename, fsync of the folder. `mode` is the file's, less the umask; with
    `keep_mode` one that is there keeps its own. Of two processes that write at the same time, one's content
    stands, whole.

    Raises:
        StoreError: the disk refuses; the old content is still there, or the new one, but whole.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            if keep_mode and path.exists():
                os.fchmod(handle, stat.S_IMODE(path.stat().st_mode))
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        with suppress(OSError):  # what was half written would fill the disk still more
            temporary.unlink()
        raise StoreError(
            f"cannot write {path}: {error.strerror}", hint="free space, or make it writable"
        ) from error


def make_private(path: Path) -> None:
    """Make a file that only its owner reads, whatever the umask, where there is none. Raises OSError."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def rename(path: Path, to: Path) -> None:
    """Give a file another name, in place of what has it.

    Raises:
        StoreError: the disk refuses.
    """
    try:
        path.replace(to)
        _sync(to.parent)
    except OSError as error:
        raise StoreError(
            f"cannot rename {path}: {error.strerror}", hint="make its folder writable"
        ) from error


def touch(path: Path) -> None:
    """Make an empty file, permanently: it needs no room but its name. Raises StoreError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        _sync(path.parent)
    except OSError as error:
        raise StoreError(
            f"cannot make {path}: {error.strerror}", hint="make its folder writable"
        ) from error


def remove(path: Path) -> None:
    """Remove a file permanently; quietly nothing where there is none.

    Raises:
        StoreError: the disk refuses.
    """
    try:
        path.unlink(missing_ok=True)
        if path.parent.exists():
            _sync(path.parent)
    except OSError as error:
        raise StoreError(
            f"cannot remove {path}: {error.strerror}", hint="make its folder writable"
        ) from error


@contextmanager
def lock(folder: Path, user: str, mode: int = 0o777) -> Iterator[None]:
    """Have a folder to oneself, made with `mode` where it is missing; `user` is the kind of process.

    Raises:
        Conflict: another process of this kind has it.
        StoreError: it cannot be made, or used.
    """
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
        # Not to be written: who only puts devices back needs a lock also where nothing can be.
        handle = os.open(folder / f"{user}.lock", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise StoreError(
            f"cannot use the state folder {folder}: {error.strerror}",
            hint="make it writable, or give another with --state-dir",
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Conflict(
                f"another {user} is using the state folder {folder}",
                hint="stop that one first, or give another with --state-dir",
            ) from None
        yield
    finally:
        os.close(handle)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
