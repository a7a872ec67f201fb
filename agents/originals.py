"""The actuator's journal: what a device was found at, on disk before anything is written to it."""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from agents.hand import Value
from tuner.errors import StoreError


@dataclass(slots=True)
class Touched:
    """A knob that we write: what it was found at, and what we wrote last.

    None is the driver's own default, for a knob that cannot be read. `pending` while a write is on its
    way: whatever the knob shows then is our doing.
    """

    found: Value | None
    wrote: Value | None = None
    pending: bool = True


@dataclass(slots=True)
class Record:
    """What we do to one device, valid only in the boot and the load of the driver it was made in."""

    device: str
    boot: str
    epoch: str = ""
    knobs: dict[str, Touched] = field(default_factory=dict)


class Originals:
    """A file per device that is not as it was found.

    Its file calls are one each, so that what happens between any two can be tested.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, device: str) -> Record | None:
        """Return a device's record, None where it is as it was found.

        Raises:
            StoreError: there is one that cannot be read; the device is not to be touched.
        """
        path = self._path(device)
        try:
            sealed = json.loads(self.read(path))
            if sealed["sha256"] != _seal(sealed["record"]):
                raise ValueError("its checksum is wrong")
            table = json.loads(sealed["record"])
            knobs = {name: Touched(**knob) for name, knob in table.pop("knobs").items()}
            if table["device"] != device:
                raise ValueError("it is not of this device")
            return Record(**table, knobs=knobs)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise StoreError(f"the journal {path} cannot be read: {error}") from error

    def save(self, record: Record) -> None:
        """Put a record on the disk, or drop one without knobs; no power cut undoes what returned.

        Raises:
            StoreError: the disk refuses; the device is not to be touched.
        """
        path = self._path(record.device)
        new = path.with_suffix(".new")
        text = json.dumps(asdict(record))
        sealed = json.dumps({"sha256": _seal(text), "record": text})
        try:
            if record.knobs:
                self.write(new, sealed.encode())
                self.sync(new)
                self.rename(new, path)
            else:
                self.remove(path)
            self.sync(self._folder)
        except OSError as error:
            why = f"cannot write the journal {path}: {error.strerror}"
            raise StoreError(why, hint="free space there") from error

    def others(self, devices: Iterable[str]) -> list[str]:
        """Return the names of records that are of none of these devices."""
        known = {self._path(device) for device in devices}
        return sorted(p.name for p in self._folder.glob("*.json") if p not in known)

    def read(self, path: Path) -> bytes:
        """Return a file's content."""
        return path.read_bytes()

    def write(self, path: Path, content: bytes) -> None:
        """Fill a file; it is not yet on the disk."""
        path.write_bytes(content)

    def sync(self, path: Path) -> None:
        """Force a file's content, or a folder's names, to the disk."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, old: Path, new: Path) -> None:
        """Put one file in the place of another."""
        old.replace(new)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        path.unlink(missing_ok=True)

    def _path(self, device: str) -> Path:
        return self._folder / (re.sub(r"[^A-Za-z0-9._@+-]", "-", device) + ".json")


def _seal(text: str) -> str:
    """Return what a record's text must still come to when it is read: one flipped bit may be a knob."""
    return hashlib.sha256(text.encode()).hexdigest()
