"""A job's record on its node's disk: a JSON file to read, and a socket to end its lease."""

import json
import socket
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tuner import files
from tuner.errors import TuningError

MOST_RECORDS = 2000
BEGIN_S = 5.0
"""The Prolog's wait for leases, in seconds: Slurm's BatchStartTimeout is 10 s by default."""
ENDING_S = 20.0
"""The Epilog's wait for a lease to end, in seconds: the driver restores within the actuator's deadlines."""


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
        """End the records of killed processes, and remove the oldest above the limit without a process.

        Other jobs' prologs do so at the same time.
        """
        for path in self.folder.glob("*.sock"):
            if line := self._connected(path.stem):
                line.close()
        kept, dated = {path.stem for path in self.folder.glob("*.sock")}, []
        for path in self.folder.glob("*.json"):
            with suppress(FileNotFoundError):
                dated += [(path.stat().st_mtime, path)] if path.stem not in kept else []
        for _, path in sorted(dated)[:-MOST_RECORDS]:
            path.unlink(missing_ok=True)

    def listen(self, key: str) -> socket.socket:
        """Return the socket that ends a job's lease, for its process. Raises OSError."""
        path, line = self.folder / f"{key}.new", socket.socket(socket.AF_UNIX)
        path.unlink(missing_ok=True)
        line.bind(str(path))
        path.chmod(0o600)
        line.listen()
        path.rename(self.folder / f"{key}.sock")  # it is never seen without a listener
        return line

    def forget(self, key: str, line: socket.socket) -> None:
        """Remove the socket of an ended lease."""
        (self.folder / f"{key}.sock").unlink(missing_ok=True)
        line.close()

    def end(self, cause: str, *keys: str, within_s: float = ENDING_S) -> list[str]:
        """End leases at once and wait until all are restored, or the time is over; return their keys."""
        until, lines = time.monotonic() + within_s, dict[str, socket.socket]()
        with ExitStack() as stack:
            for key in keys:
                if line := self._connected(key):
                    lines[key] = stack.enter_context(line)
                    with suppress(OSError):
                        line.sendall(cause.encode())
            for line in lines.values():
                with suppress(OSError):
                    line.settimeout(max(0.01, until - time.monotonic()))
                    line.recv(1)  # it closes the connection, or ends
        return [*lines]

    def leases_on(self, gpus: Collection[int], uuids: Collection[str]) -> Iterator[str]:
        """Yield the keys of leases of whole nodes, and of those on a GPU of these gres ids or UUIDs."""
        for path in self.folder.glob("*.sock"):
            record = self._read(path.stem)
            same = {*record.get("gres", ())} & {*gpus} or {*record.get("uuids", ())} & {*uuids}
            if record.get("exclusive") or same:
                yield path.stem

    def _connected(self, key: str) -> socket.socket | None:
        """Return a connection to a lease's process; without a listener, note its end and return None."""
        path, line = self.folder / f"{key}.sock", socket.socket(socket.AF_UNIX)
        line.settimeout(1.0)
        try:
            line.connect(str(path))
            return line
        except ConnectionRefusedError:
            with suppress(TuningError):  # a full disk: the next prolog tries again
                if self._read(key).get("state") not in ("ended", "refused"):
                    why = "the end of its process, which was killed"
                    self.note(key, state="ended", ended_by=why, ended_at=utc_now())
                path.unlink(missing_ok=True)
        except OSError:
            pass  # it has no lease
        line.close()
        return None

    def _read(self, key: str) -> dict[str, Any]:
        """Return a job's record; empty without an intact one."""
        with suppress(OSError, ValueError):
            record = json.loads((self.folder / f"{key}.json").read_text())
            return record if isinstance(record, dict) else {}
        return {}


def utc_now() -> str:
    """Return the present UTC time as ISO 8601, in whole seconds."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
