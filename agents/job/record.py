"""A job's record on its node's disk: a JSON file to read, and a lock during its lease."""

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tuner import files

MOST_RECORDS = 2000
ENDING_S = 20.0
"""The wait for a lease to end, in seconds: the driver restores within the actuator's deadlines."""


class JobRecords:
    """The records of a node's jobs in one folder, by job key."""

    def __init__(self, folder: Path) -> None:
        """Use a folder, created if it is missing. Raises OSError."""
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.folder = folder

    def note(self, key: str, **fields: object) -> None:
        """Add fields to a job's record. Raises StoreError."""
        path, record = self.folder / f"{key}.json", dict[str, Any]()
        with suppress(OSError, ValueError):
            record = json.loads(path.read_text())
        files.write(path, json.dumps(record | fields, indent=1) + "\n", 0o644)

    def prune(self) -> None:
        """Remove the oldest records above the limit."""
        dated = sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in dated[:-MOST_RECORDS]:
            path.unlink(missing_ok=True)

    def lock(self, key: str, gpus: tuple[int, ...]) -> int:
        """Return this process's lock on a job's lease. Raises OSError if another process has it."""
        held = os.open(self._lock(key), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(held, 0)
        os.write(held, json.dumps({"pid": os.getpid(), "gpus": gpus}).encode())
        return held

    def unlock(self, key: str, held: int) -> None:
        """Remove a lock."""
        self._lock(key).unlink(missing_ok=True)
        os.close(held)

    def end(self, key: str, by: signal.Signals, wait_s: float = ENDING_S) -> bool:
        """End a job's lease and wait until its GPUs are restored; return whether it had one."""
        path, until = self._lock(key), time.monotonic() + wait_s
        lease = _leased(path)
        if lease is not None:
            os.kill(int(lease["pid"]), by)
        while _leased(path) is not None and time.monotonic() < until:
            time.sleep(0.02)
        return lease is not None

    def leases_on(self, gpus: tuple[int, ...]) -> Iterator[str]:
        """Yield the keys of live leases on any of these GPUs, given by gres id."""
        for path in self.folder.glob("*.lock"):
            lease = _leased(path)
            if lease is not None and {*lease["gpus"]} & {*gpus}:
                yield path.stem

    def _lock(self, key: str) -> Path:
        """Return the path of a job's lock."""
        return self.folder / f"{key}.lock"


def _leased(path: Path) -> Mapping[str, Any] | None:
    """Return the content of a live lease's lock; None if no process holds it."""
    try:
        held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        with suppress(ValueError):
            lease: Mapping[str, Any] = json.loads(os.read(held, 1 << 14))
            return lease
    finally:
        os.close(held)
    return None


def utc_now() -> str:
    """Return the present UTC time as ISO 8601, in whole seconds."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
