"""A job's record on its node's disk: a JSON file to read, and a socket to end its lease."""

import json
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
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
        record = json.dumps(self._read(key) | fields, indent=1)
        files.write(self.folder / f"{key}.json", record + "\n", 0o644)

    def prune(self) -> None:
        """Remove the oldest records above the limit."""
        dated = sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in dated[:-MOST_RECORDS]:
            path.unlink(missing_ok=True)

    def listen(self, key: str) -> socket.socket:
        """Return the socket that ends a job's lease, for its process. Raises OSError."""
        path, line = self.folder / f"{key}.sock", socket.socket(socket.AF_UNIX)
        path.unlink(missing_ok=True)
        line.bind(str(path))
        path.chmod(0o600)
        line.listen()
        return line

    def forget(self, key: str, line: socket.socket) -> None:
        """Remove the socket of an ended lease."""
        (self.folder / f"{key}.sock").unlink(missing_ok=True)
        line.close()

    def end(self, key: str, cause: str) -> bool:
        """End a job's lease and wait until it is restored; return whether it had one."""
        with closing(socket.socket(socket.AF_UNIX)) as line, suppress(OSError):
            line.settimeout(ENDING_S)
            line.connect(str(self.folder / f"{key}.sock"))
            line.sendall(cause.encode())
            line.recv(1)  # it closes the connection, or ends
            return True
        return False

    def leases_on(self, gpus: tuple[int, ...]) -> Iterator[str]:
        """Yield the keys of leases of whole nodes, and of those on any of these GPUs, given by gres id."""
        for path in self.folder.glob("*.sock"):
            record = self._read(path.stem)
            if record.get("exclusive") or {*record.get("gres", ())} & {*gpus}:
                yield path.stem

    def _read(self, key: str) -> dict[str, Any]:
        """Return a job's record; empty without an intact one."""
        with suppress(OSError, ValueError):
            record: dict[str, Any] = json.loads((self.folder / f"{key}.json").read_text())
            return record
        return {}


def utc_now() -> str:
    """Return the present UTC time as ISO 8601, in whole seconds."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
