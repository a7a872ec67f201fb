"""The actuator's journal: the original values of a device, on disk before anything is written to it."""

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from agents.actuator.budget import Membership
from agents.actuator.driver import Value
from tuner.errors import StoreError

log = logging.getLogger(__name__)

T = TypeVar("T")

COPIES = (".json", ".copy")
DAMAGE = (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError)
"""What reading a damaged record may raise."""
STAY = "stay=all"
"""What is kept beside the devices' records: the order that all stay at their originals."""


WRITING, PROBING, SET, CAPPED = "writing", "probing", "set", "capped"
"""States of an entry. Our write is on its way: whatever it shows then is our doing. It showed `at`, below
ours, which is written once more. It is what we wrote. The kernel caps it at `at`, below ours."""
OFFLINE, THEIRS, RESTORED = "waiting: offline", "lowered by another", "restored"
"""Its CPU or device is offline: it is restored once that is back. Another program set it to `at`, and it is
left alone. It is back, and is kept for the next time, as a member's floor is."""


@dataclass(slots=True)
class JournalEntry:
    """A file, or a driver's call, that our changes move.

    `original` is its value before them, `wrote` what we wrote last; None is the driver's own default, for
    what cannot be read. `back` is what it goes back to instead of its original, `lasts` whether its value
    outlives a boot. `at` is what it showed in place of what we wrote.
    """

    knob: str
    original: Value | None
    wrote: Value | None
    state: str = WRITING
    back: Value | None = None
    lasts: bool = False
    at: Value | None = None

    @property
    def target(self) -> Value | None:
        """What it goes back to; None is the driver's own default."""
        return self.original if self.back is None else self.back

    @property
    def at_rest(self) -> str:
        """Its state once it shows what we wrote last."""
        return RESTORED if self.wrote == self.target else SET


@dataclass(slots=True)
class Record:
    """What we do to one device, valid only in the boot and the load of the driver it was made in.

    `setting` is what its knobs are set to, `originals` their former values, `held` whether a hold is set.
    `driver` is the driver's name with its argument. `budget` has a member's floor, and its steps, whose
    times are this boot's.
    """

    device: str
    boot: str
    epoch: str = ""
    entries: dict[str, JournalEntry] = field(default_factory=dict)
    driver: str = ""
    budget: Membership = field(default_factory=Membership)
    held: bool = False
    setting: dict[str, Any] = field(default_factory=dict)
    originals: dict[str, Any] = field(default_factory=dict)


class RestoreJournal:
    """Two files per device that is not at its original setting, each with a checksum and a number.

    The whole one with the highest number counts. `marks` is a folder that the next boot empties: a file
    there says that a device has a record. Its file calls are one each, so that what happens between any two
    can be tested.
    """

    def __init__(self, folder: Path, marks: Path | None = None) -> None:
        self._folder, self._marks = folder, marks
        self._number = 0
        self._unsure: set[str] = set()

    def get(self, device: str) -> Record | None:
        """Return a device's record, None where it is at its original setting.

        Raises:
            StoreError: there is one, and no copy of it is whole; or there was one in this boot.
        """
        name = file_name(device)
        record = self._newest(name, _record)
        mark = self._marks and self._marks / name
        if record is None and mark and mark.exists() and mark.read_text() == str(self._folder):
            raise StoreError(f"the journal of {device} was deleted from {self._folder}")
        return record

    def save(self, record: Record) -> None:
        """Put a record on the disk, or drop an empty one; no power cut undoes what returned.

        Raises:
            StoreError: the disk refuses; the device is not to be touched.
        """
        whole = record.entries or record.budget.floor
        self._put(file_name(record.device), asdict(record) if whole else None)

    def stay(self, by: str) -> None:
        """Note who ordered that all devices stay at their originals; empty: the note is removed.

        Raises:
            StoreError: the disk refuses.
        """
        self._put(STAY, {"device": STAY, "by": by} if by else None)

    def stays(self) -> str:
        """Return who ordered that all devices stay at their originals, empty without a note.

        A damaged note holds as well: what it represents is the safe side.
        """
        try:
            return self._newest(STAY, lambda table: str(table["by"])) or ""
        except StoreError as error:
            return f"unknown user: {error}"

    def kept(self, record: Record) -> bool:
        """Return whether a record is on the disk as it was saved, as far as files' names tell."""
        name = file_name(record.device)
        present = all(path.exists() for path in self._paths(name))
        return name not in self._unsure and (present or not record.entries)

    def missing(self, devices: Collection[str], boot: str) -> list[str]:
        """Return the names of devices that have a record and are none of these.

        Records of another boot are dropped where the hardware forgot what we did.
        """
        left: list[str] = []
        for name in sorted(self._recorded() - {*map(file_name, devices)}):
            with suppress(StoreError):  # a damaged one stays
                record = self._newest(name, _record)
                lasts = record and any(entry.lasts for entry in record.entries.values())
                if record and record.boot != boot and not lasts:
                    self._put(name, None)
                    continue
            left.append(name)
        return left

    def drivers(self) -> set[str]:
        """Return the drivers that whole records name."""
        names: set[str] = set()
        for name in self._recorded():
            with suppress(StoreError):
                names |= {record.driver} if (record := self._newest(name, _record)) else set()
        return names

    def _recorded(self) -> set[str]:
        return {path.stem for path in self._folder.glob("*.*") if path.suffix in COPIES} - {STAY}

    def _newest(self, name: str, parse: Callable[[dict[str, Any]], T]) -> T | None:
        """Return what the newest whole copy holds. Raises StoreError where there are only others."""
        whole: dict[int, T] = {}
        damage: list[str] = []
        for path in self._paths(name):
            try:
                sealed = json.loads(self.read(path))
                if sealed["sha256"] != _sum(sealed["record"]):
                    raise ValueError("its checksum is wrong")
                table: dict[str, Any] = json.loads(sealed["record"])
                if file_name(table["device"]) != name and name != STAY:
                    raise ValueError("it belongs to another device")
                number = int(table.pop("number"))
                whole[number] = parse(table)
            except FileNotFoundError:
                continue
            except DAMAGE as error:
                damage.append(f"{path}: {error}")
        if damage:
            log.error("event=journal_damaged why=%r", "; ".join(damage))
            self._unsure.add(name)
        if damage and not whole:
            raise StoreError(f"the journal cannot be read: {'; '.join(damage)}")
        self._number = max(self._number, *whole, 0)
        return whole[max(whole)] if whole else None

    def _put(self, name: str, table: Mapping[str, Any] | None) -> None:
        self._number += 1
        self._unsure.add(name)
        text = json.dumps({"number": self._number, **(table or {})})
        sealed = json.dumps({"sha256": _sum(text), "record": text}).encode()
        try:
            if table is None:
                self._mark(name, False)
            self._folder.mkdir(parents=True, exist_ok=True)
            for path in self._paths(name):
                new = path.with_suffix(".new")
                if table is None:
                    self.remove(path)
                else:
                    self.write(new, sealed)
                    self.sync(new)
                    self.rename(new, path)
            self.sync(self._folder)
        except OSError as error:
            why = f"cannot write the journal of {name} in {self._folder}: {error.strerror}"
            raise StoreError(why, hint="free space there") from error
        self._unsure.discard(name)
        if table is not None:
            self._mark(name, True)

    def _mark(self, name: str, there: bool) -> None:
        """Note whether there is a record in this boot; a mark without one would be a false alarm."""
        with suppress(OSError):
            if self._marks and there:
                self._marks.mkdir(0o700, parents=True, exist_ok=True)
                (self._marks / name).write_text(str(self._folder))
            elif self._marks:
                (self._marks / name).unlink(missing_ok=True)

    def _paths(self, name: str) -> list[Path]:
        return [self._folder / f"{name}{copy}" for copy in COPIES]

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
        """Put one file instead of another."""
        old.replace(new)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there; a folder in its place, too."""
        if path.is_dir():
            path.rmdir()
        path.unlink(missing_ok=True)


def file_name(device: str) -> str:
    """Return a device's name as a file's; never that of the note."""
    return re.sub(r"[^A-Za-z0-9._@+-]", "-", device)


def _record(table: dict[str, Any]) -> Record:
    entries = {name: JournalEntry(**entry) for name, entry in table.pop("entries", {}).items()}
    for knob, of in table.pop("knobs", {}).items():  # of 0.2.0, whose epoch of files said nothing
        state = WRITING if of["pending"] or of["wrote"] is None else SET
        entries[knob] = JournalEntry(knob, of["found"], of["wrote"], state, of["back"], of["lasts"])
        table.setdefault("setting", {})[knob] = of["wrote"]
        table.setdefault("originals", {})[knob] = of["found"]
        table["epoch"] = table["epoch"].replace("files", "")
    budget = Membership(**table.pop("budget", {}))
    return Record(**table, entries=entries, budget=budget)


def _sum(text: str) -> str:
    """Return what a file's text must still come to when it is read: one flipped bit may be a knob."""
    return hashlib.sha256(text.encode()).hexdigest()
