"""The actuator's journal: the original values of a device, on disk before anything is written to it."""

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from agents.actuator.driver import Value
from tuner.errors import StoreError

log = logging.getLogger(__name__)

T = TypeVar("T")

COPIES = (".json", ".copy")
DAMAGE = (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError)
"""The errors that reading a damaged record may raise."""
STAY = "stay=all"
"""The name of the note beside the records: the order to keep all devices at their originals."""


WRITING, PROBING, SET, CAPPED = "writing", "probing", "set", "capped"
"""States of an entry. WRITING: our write is on its way, and any value shown is due to it. PROBING: the
entry showed `at`, below our value, which is written once more. SET: our value is in force. CAPPED: the
kernel caps it at `at`, below our value."""
OFFLINE, THEIRS = "waiting: offline", "lowered by another"
"""OFFLINE: its CPU or device is offline; it is restored once that is back. THEIRS: another program set it
to `at`, and it is left alone."""


@dataclass(slots=True)
class JournalEntry:
    """One file, or one driver call, that our changes affect.

    `original` is the value before our changes, `wrote` our last value; None is the driver's own default,
    for entries that cannot be read. `back` replaces the original as the target of a restore. `lasts`: the
    value survives a reboot. `at` is the value shown instead of ours.
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
        """Return the value to restore; None is the driver's own default."""
        return self.original if self.back is None else self.back

    @property
    def restored(self) -> bool:
        """Return whether the entry was read back at its target."""
        return self.state == SET and self.wrote == self.target


@dataclass(slots=True)
class Membership:
    """The membership of a power budget: a `floor`, and `steps` in order of time that cap the knobs.

    From its `at_s` (boot clock) on, a step limits each knob to its value in `at_most`. Before the first
    step the floor is the cap. All fields are empty for a device outside any budget.
    """

    group: str = ""
    revision: int = 0
    floor: Mapping[str, Any] = field(default_factory=dict)
    steps: Sequence[Mapping[str, Any]] = ()

    def at_most(self, now: float, granted: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """Return the highest granted values within the cap in force, at least the floor."""
        due = [step["at_most"] for step in self.steps if step["at_s"] <= now]
        most = due[-1] if due else {}
        return {
            knob: max([least, *(v for v in granted.get(knob, ()) if v <= most.get(knob, least))])
            for knob, least in self.floor.items()
        }

    def reported(self, now: float) -> dict[str, Any]:
        """Return the membership as sent to an agent; `in_s` is the time until a step, in seconds."""
        steps = [{**step, "in_s": step["at_s"] - now} for step in self.steps]
        return {"group": self.group, "revision": self.revision, "floor": self.floor, "steps": steps}


@dataclass(slots=True)
class Record:
    """Our changes to one device, valid for one boot and one load of the driver.

    `setting` has the values that its knobs are set to, `originals` the former ones; `held` marks a hold.
    `driver` is the driver's name with its argument. `budget` has a member's floor and its steps, whose
    times are on this boot's clock.
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

    The intact copy with the highest number is valid. `marks` is a folder that is empty after a boot; a
    file in it shows that a device had a record in this boot, so a deleted journal is noticed. Each file
    operation is a separate method, so that tests can inject a fault between any two.
    """

    def __init__(self, folder: Path, marks: Path | None = None) -> None:
        self._folder, self._marks = folder, marks
        self._number = 0
        self._unsure: set[str] = set()

    def get(self, device: str) -> Record | None:
        """Return a device's record; None if the device is at its original setting.

        Raises:
            StoreError: no copy of the record is intact, or the record of this boot was deleted.
        """
        name = file_name(device)
        record = self._newest(name, _record)
        mark = self._marks and self._marks / name
        if record is None and mark and mark.exists() and mark.read_text() == str(self._folder):
            raise StoreError(f"the journal of {device} was deleted from {self._folder}")
        return record

    def save(self, record: Record) -> None:
        """Write a record to the disk, or remove an empty one; a later power cut does not undo it.

        Raises:
            StoreError: the write failed; do not touch the device.
        """
        whole = record.entries or record.budget.floor
        self._put(file_name(record.device), asdict(record) if whole else None)

    def stay(self, by: str) -> None:
        """Save the user that ordered all devices to stay at their originals; empty removes the note.

        Raises:
            StoreError: the write failed.
        """
        self._put(STAY, {"device": STAY, "by": by} if by else None)

    def stays(self) -> str:
        """Return the user that ordered all devices to stay at their originals; empty without a note.

        A damaged note counts as an order: that is the safe reading.
        """
        try:
            return self._newest(STAY, lambda table: str(table["by"])) or ""
        except StoreError as error:
            return f"unknown user: {error}"

    def kept(self, record: Record) -> bool:
        """Return whether a record's files exist and its last write succeeded; contents are not compared."""
        name = file_name(record.device)
        present = all(path.exists() for path in self._paths(name))
        return name not in self._unsure and (present or not record.entries)

    def missing(self, devices: Collection[str], boot: str) -> list[str]:
        """Return the file names of recorded devices that are not among `devices`.

        A record of another boot is removed if none of its values survives a reboot.
        """
        left, configured = list[str](), {*map(file_name, devices)}
        for name, record in ((n, r) for n, r in self._records() if n not in configured):
            if record and record.boot != boot and not any(e.lasts for e in record.entries.values()):
                with suppress(StoreError):
                    self._put(name, None)
                    continue
            left.append(name)
        return left

    def drivers(self) -> set[str]:
        """Return the drivers named in intact records."""
        return {record.driver for _, record in self._records() if record}

    def _records(self) -> Iterator[tuple[str, Record | None]]:
        """Yield the file name of each device that has a record, and the record; None if it is damaged."""
        names = {path.stem for path in self._folder.glob("*.*") if path.suffix in COPIES}
        for name in sorted(names - {STAY}):
            record = None
            with suppress(StoreError):
                record = self._newest(name, _record)
            yield name, record

    def _newest(self, name: str, parse: Callable[[dict[str, Any]], T]) -> T | None:
        """Return the newest intact copy, parsed; None without a file. Raises StoreError."""
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
        """Write both copies of a table, or remove them if it is None. Raises StoreError."""
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
        """Note whether a device has a record in this boot. A mark without a record is a false alarm."""
        with suppress(OSError):
            if self._marks and there:
                self._marks.mkdir(0o700, parents=True, exist_ok=True)
                (self._marks / name).write_text(str(self._folder))
            elif self._marks:
                (self._marks / name).unlink(missing_ok=True)

    def _paths(self, name: str) -> list[Path]:
        """Return the paths of both copies."""
        return [self._folder / f"{name}{copy}" for copy in COPIES]

    def read(self, path: Path) -> bytes:
        """Return a file's content."""
        return path.read_bytes()

    def write(self, path: Path, content: bytes) -> None:
        """Write a file's content; `sync` then forces it to the disk."""
        path.write_bytes(content)

    def sync(self, path: Path) -> None:
        """Force a file's content, or a folder's names, to the disk."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file, replacing the one at `new`."""
        old.replace(new)

    def remove(self, path: Path) -> None:
        """Remove a file or an empty folder, if it exists."""
        if path.is_dir():
            path.rmdir()
        path.unlink(missing_ok=True)


def file_name(device: str) -> str:
    """Return the file name for a device; it never equals the note's."""
    return re.sub(r"[^A-Za-z0-9._@+-]", "-", device)


def _record(table: dict[str, Any]) -> Record:
    """Return a record from its table, also from one that 0.2.0 wrote."""
    entries = {name: JournalEntry(**entry) for name, entry in table.pop("entries", {}).items()}
    # Of 0.2.0, where files had the constant epoch "files".
    for knob, of in table.pop("knobs", {}).items():
        state = WRITING if of["pending"] or of["wrote"] is None else SET
        entries[knob] = JournalEntry(knob, of["found"], of["wrote"], state, of["back"], of["lasts"])
        table.setdefault("setting", {})[knob] = of["wrote"]
        table.setdefault("originals", {})[knob] = of["found"]
        table["epoch"] = table["epoch"].replace("files", "")
    budget = Membership(**table.pop("budget", {}))
    return Record(**table, entries=entries, budget=budget)


def _sum(text: str) -> str:
    """Return the SHA-256 of a record's text: one flipped bit could change a knob."""
    return hashlib.sha256(text.encode()).hexdigest()
