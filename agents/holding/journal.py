"""What a device was set to before the agent changed it, on disk before the change is made."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.target.target import SideSettings, Target
from tuner import files
from tuner.core import ActuationError, Conflict, Level, StoreError

log = logging.getLogger(__name__)

SUFFIX = ".journal"
STAY = "stay"
"""The name of the file that says: every device stays at its original setting until this is removed."""
PROBE_BYTES = 16 * 1024
"""More than an entry and a hold together."""
LIFT = "lift it with `jouletune agent revert --lift`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One device's original setting, side by side, and by what right it is set otherwise now.

    `attached` is what to open to reach the device again: its spec, the workload's, and the seed.
    `damaged` says what could not be read of the file.
    """

    device: str
    level: Level
    boot: str
    sides: SideSettings
    attached: Mapping[str, str] = field(default_factory=dict)
    damaged: str = ""


class Journal:
    """A file per device, one line with a checksum per side: what is left of a damaged one counts.

    What a process has noted or read it also keeps in memory until it is restored: should the file vanish
    meanwhile, it is written again. After a restart only the disk counts. An empty file beside them, which
    needs no room on a full disk, says that every device stays at its original setting. `refused` says why
    the disk did not take what a change must write first; `restores` counts by device.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._noted: dict[str, Entry] = {}
        self._restored: set[str] = set()
        self.refused = ""
        self.restores: Counter[str] = Counter()

    @property
    def stays(self) -> bool:
        """Whether every device is to stay at its original setting."""
        return os.path.exists(self._folder / STAY)  # noqa: PTH110 - it never raises

    def stay(self) -> None:
        """Have every device stay at its original setting, for every process. Raises StoreError."""
        files.touch(self._folder / STAY)

    def lift(self) -> bool:
        """Let devices be set again; return whether they were to stay. Raises StoreError."""
        stayed = self.stays
        files.remove(self._folder / STAY)
        return stayed

    def unable(self, host: str) -> str:
        """Return why nothing of this host can be set now, with the next step; empty where it can."""
        if self.stays:
            return (
                f"an operator reverted every device of {host} "
                f"and keeps it at its original; {LIFT} on {host}"
            )
        if self.refused:
            probe = self._folder / "probe"
            try:
                files.write(probe, "x" * PROBE_BYTES)
                files.remove(probe)
                self.refused = ""
            except StoreError as error:
                self.refused = f"{host} {error}"
        return self.refused

    def devices(self) -> list[Entry]:
        """Return the entries of all devices that are set otherwise than they were found."""
        paths = sorted(self._folder.glob(f"*{SUFFIX}"))
        entries: list[Entry] = []
        for path in paths:
            try:
                content = path.read_bytes()
            except OSError as error:
                log.error("event=journal_unreadable file=%s why=%r", path, str(error))
                content = b""
            entries.append(_parse(path.name.removesuffix(SUFFIX), path, content))
        return entries

    def get(self, device: str) -> Entry | None:
        """Return a device's entry, None where it is at its original setting.

        What this process knows counts more than a file that has vanished or been damaged since, which is
        written again; one of a device that was restored counts no more, and is removed once it can be.

        Raises:
            StoreError: only the disk knows it, and cannot be read now; ask again.
        """
        path = self._path(device)
        if device in self._restored:
            self._forget(device)
            return None
        noted, entry = self._noted.get(device), None
        try:
            entry = _parse(device, path, path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            if noted is None:
                raise StoreError(
                    f"cannot read {path}: {error.strerror}", hint="make it readable"
                ) from error
        if entry is not None and not entry.damaged:
            self._noted[device] = entry
            return entry
        if noted is None:
            return entry
        event = "journal_vanished" if entry is None else "journal_damaged"
        log.error("event=%s device=%s file=%s next='it is rewritten'", event, device, path)
        try:
            files.write(path, _render(noted))
        except StoreError as error:  # no reason to leave the device as it is
            log.error("event=journal_not_written device=%s why=%r", device, str(error))
        return noted

    def left(self, device: str) -> bool:
        """Return whether a device's file is on the disk, whatever it says."""
        return os.path.exists(self._path(device))  # noqa: PTH110 - it never raises

    def record(
        self, device: str, target: Target, level: Level, boot: str, attached: Mapping[str, str]
    ) -> None:
        """Note that the device is about to be set at a level.

        What is in force is read and kept only where nothing is noted yet: the original is the setting
        before the first change. Where that is on the disk, a mere change of level may wait.

        Raises:
            ActuationError: what is in force cannot be read; change nothing.
            StoreError: the disk refuses; change nothing.
            Conflict: every device is to stay at its original setting; change nothing.
        """
        earlier, path = self.get(device), self._path(device)
        whole = earlier is not None and not earlier.damaged and path.exists()
        if earlier is None or not whole or earlier.level != level:
            sides = target.read_sides() if earlier is None else originals(earlier, target)
            entry = Entry(device=device, level=level, boot=boot, sides=sides, attached=attached)
            try:
                files.write(path, _render(entry))
            except StoreError as error:
                if not whole:
                    self.refused = str(error)
                    raise
                log.error("event=level_not_written device=%s why=%r", device, str(error))
            self._noted[device] = entry
            self._restored.discard(device)
        # Last: a request for a stay looks for entries after it, so one of the two sees the other.
        if self.stays:
            raise Conflict(f"an operator keeps {device} at its original setting", hint=LIFT)

    def restore(self, device: str, target: Target) -> bool:
        """Restore a device to its original value; return whether there was anything to restore.

        Side by side, never stopping at a failure; done twice it does nothing. What a damaged journal
        no longer tells goes back to its default. The entry is forgotten once all of it is done; where
        the disk does not let its file go, that is tried again whenever the device is requested.

        Raises:
            ActuationError: some of it failed; the entry stays, so that it can be tried again.
        """
        entry = self.get(device)
        if entry is None:
            return False
        if entry.damaged:
            log.error("event=journal_damaged device=%s what=%r", device, entry.damaged)
        failures = target.restore_originals(originals(entry, target))
        if failures:
            raise ActuationError(
                f"{device} is not restored to its original setting: {'; '.join(failures)}",
                hint="correct the cause, then run `jouletune agent revert`",
            )
        self.restores[device] += 1
        self._noted.pop(device, None)
        self._forget(device)
        return True

    def _forget(self, device: str) -> None:
        try:
            files.remove(self._path(device))
            self._restored.discard(device)
        except StoreError as error:
            if device not in self._restored:
                log.error("event=journal_not_removed device=%s why=%r", device, str(error))
            self._restored.add(device)

    def _path(self, device: str) -> Path:
        return self._folder / files.file_name(device, SUFFIX)


def originals(entry: Entry, target: Target) -> SideSettings:
    """Return what each side goes back to: the original, or the default where that is lost."""
    lost = target.sides if entry.damaged else {}
    return {key: side.space.default for key, side in lost.items()} | dict(entry.sides)


def _render(entry: Entry) -> str:
    """Return the text of an entry's file."""
    head: dict[str, Any] = {
        "device": entry.device,
        "level": str(entry.level),
        "boot": entry.boot,
        "attached": dict(entry.attached),
        "sides": len(entry.sides),
    }
    lines: list[dict[str, Any]] = [
        {"side": key, "setting": dict(setting)} for key, setting in entry.sides.items()
    ]
    return "".join(json.dumps({**line, "sum": _sum(line)}) + "\n" for line in [head, *lines])


def _parse(device: str, path: Path, content: bytes) -> Entry:
    """Return what can be read of a file's content."""
    lines: list[dict[str, Any]] = []
    damaged = ""
    for number, line in enumerate(content.splitlines(), 1):
        try:
            lines.append(_object(line))
        except ValueError:
            damaged = f"{path}: line {number} cannot be read"
    heads = [line for line in lines if "level" in line]
    settings = [
        line
        for line in lines
        if isinstance(line.get("side"), str) and isinstance(line.get("setting"), dict)
    ]
    head = heads[0] if heads else {}
    if not damaged and len(settings) != head.get("sides"):
        damaged = f"{path}: {len(settings)} of {head.get('sides', 'its')} sides are present"
    return Entry(
        device=str(head.get("device", device)),
        level=Level(head["level"]) if head.get("level") in list(Level) else Level.TRIAL,
        boot=str(head.get("boot", "")),
        sides={line["side"]: dict(line["setting"]) for line in settings},
        attached=dict(head.get("attached") or {}),
        damaged=damaged,
    )


def _object(line: bytes) -> dict[str, Any]:
    """Return a line's JSON object. Raises ValueError where it is anything else, or not as written."""
    record = json.loads(line)
    if not isinstance(record, dict) or record.pop("sum", "") != _sum(record):
        raise ValueError("not an object with its checksum")
    return record


def _sum(line: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(line, sort_keys=True).encode()).hexdigest()
