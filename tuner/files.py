"""Files that a crash leaves whole, with the old content or the new, and folders locked by one process."""

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
    """Return the name of a device's file: its id, with `-` for any unusual character, and the suffix."""
    return re.sub(r"[^A-Za-z0-9._@+-]", "-", device) + suffix


def token(path: Path) -> str:
    """Return the bearer token in a file; empty if the file is empty.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not one word of ASCII, as an HTTP header must be.
    """
    words = path.read_text("ascii").split()
    if len(words) > 1 or not "".join(words).isprintable():
        raise ValueError(f"{path} is not one word")
    return "".join(words)


def write(path: Path, text: str, mode: int = 0o666, *, keep_mode: bool = False) -> None:
    """Replace a file's content; after the return it is on the disk.

    The steps are a temporary file, fsync, rename, and fsync of the folder. `mode` is the file's mode, less
    the umask; with `keep_mode` a link is followed, and an existing file keeps its mode and, as far as
    allowed, its owner. If two processes write at the same time, the content of one of them is kept, whole.

    Raises:
        StoreError: the disk refuses. The file has its old content or the new one, whole.
    """
    target = path.resolve() if keep_mode else path
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            if keep_mode and target.exists():
                before = target.stat()
                with suppress(OSError):
                    os.fchown(handle, before.st_uid, before.st_gid)
                os.fchmod(handle, stat.S_IMODE(before.st_mode))
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        sync(target.parent)
    except OSError as error:
        with suppress(OSError):  # a half-written file would fill the disk still more
            temporary.unlink()
        raise StoreError(
            f"cannot write {path}: {error.strerror}", hint="free space, or make it writable"
        ) from error


def make_private(path: Path) -> None:
    """Make an empty file that only its owner can read, for any umask, unless it exists. Raises OSError."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def rename(path: Path, to: Path) -> None:
    """Rename a file; an existing file of the new name is replaced.

    Raises:
        StoreError: the disk refuses.
    """
    try:
        path.replace(to)
        sync(to.parent)
    except OSError as error:
        raise StoreError(
            f"cannot rename {path}: {error.strerror}", hint="make its folder writable"
        ) from error


def touch(path: Path) -> None:
    """Make an empty file that survives a crash; it needs no disk space but its name. Raises StoreError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        sync(path.parent)
    except OSError as error:
        raise StoreError(
            f"cannot make {path}: {error.strerror}", hint="make its folder writable"
        ) from error


def remove(path: Path) -> None:
    """Remove a file so that it stays removed after a crash; do nothing if it does not exist.

    Raises:
        StoreError: the disk refuses.
    """
    try:
        path.unlink(missing_ok=True)
        if path.parent.exists():
            sync(path.parent)
    except OSError as error:
        raise StoreError(
            f"cannot remove {path}: {error.strerror}", hint="make its folder writable"
        ) from error


@contextmanager
def lock(folder: Path, user: str, mode: int = 0o777) -> Iterator[None]:
    """Lock a folder for one process of a kind, `user`; make it with `mode` if it is missing.

    Raises:
        Conflict: another process of this kind has the lock.
        StoreError: the folder cannot be made or used.
    """
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
        # Opened read-only: a process that only restores devices must lock a read-only folder, too.
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


def sync(path: Path) -> None:
    """Force a file's content, or a folder's names, to the disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
