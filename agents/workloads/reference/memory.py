"""Checks whether instances fit in the remaining memory."""

from __future__ import annotations

from pathlib import Path

from tuner.core import OutOfRange

SPARE = 0.05
"""Share of the available memory that stays free: the kernel's figure is an estimate."""


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return the memory in bytes available without swapping; None if the kernel does not report it."""
    return _field(root / "proc/meminfo", "MemAvailable")


def own_bytes(pid: int, root: Path = Path("/")) -> int:
    """Return a process's own memory in bytes, without shared files; 0 if the process has ended."""
    return _field(root / "proc" / str(pid) / "status", "RssAnon") or 0


def refuse_too_much(name: str, count: int, each: int, available: int | None) -> None:
    """Check that `count` more instances of `each` bytes fit. Raises OutOfRange."""
    if available is None or count * each <= available * (1.0 - SPARE):
        return
    raise OutOfRange(
        f"{count} more instances of {name} need {count * each / 2**20:.0f} MiB "
        f"({each / 2**20:.0f} each), and {available / 2**20:.0f} MiB are available",
        hint="choose fewer instances",
    )


def _field(path: Path, name: str) -> int | None:
    """Return a figure of a /proc file in bytes; None if it is missing."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(x.split()[1]) * 1024 for x in lines if x.startswith(f"{name}:")), None)
