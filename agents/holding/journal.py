"""Original settings of devices, written to disk before the agent changes them."""

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
"""Name of the file whose presence keeps every device at its original setting."""
PROBE_BYTES = 16 * 1024
"""More bytes than an entry and a hold together."""
LIFT = "lift it with `jouletune agent revert --lift`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One device's original setting per side, and the level of the present change.

    `attached` has the data to open the device again: its spec, the workload's, and the seed. `damaged`
    lists the parts of the file that could not be read.
    """

    device: str
    level: Level
    boot: str
    sides: SideSettings
    attached: Mapping[str, str] = field(default_factory=dict)
    damaged: str = ""


class Journal:
    """A file per device, with one checksummed line per side: undamaged lines remain usable.

    Entries noted or read are also kept in memory until the device is restored: if the file vanishes
    meanwhile, it is written again. After a restart only the disk counts. An empty file beside them,
    which needs no room on a full disk, keeps every device at its original setting. `refused` is the
    reason why the disk refused the write that a change requires; `restores` counts restores by
    device.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._noted: dict[str, Entry] = {}
        self._restored: set[str] = set()
        self.refused = ""
        self.restores: Counter[str] = Counter()

    @property
    def stays(self) -> bool:
        """Whether every device must stay at its original setting."""
        return os.path.exists(self._folder / STAY)  # noqa: PTH110 - it never raises

    def stay(self) -> None:
        """Keep every device at its original setting, for all processes. Raises StoreError."""
        files.touch(self._folder / STAY)

    def lift(self) -> bool:
        """Allow changes again; return whether they were blocked. Raises StoreError."""
        stayed = self.stays
        files.remove(self._folder / STAY)
        return stayed

    def unable(self, host: str) -> str:
        """Return why no device of this host can be set, with the next step; empty if they can."""
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
        """Return the entries of all devices that are not at their original setting."""
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
        """Return a device's entry, or None if it is at its original setting.

        An entry in memory takes precedence over a file that has vanished or been damaged since, and
        is written again. The entry of a restored device no longer counts, and is removed as soon as
        the disk allows.

        Raises:
            StoreError: the entry is only on the disk, and cannot be read now; try again.
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
        except StoreError as error:  # the device is restored without the file, too
            log.error("event=journal_not_written device=%s why=%r", device, str(error))
        return noted

    def left(self, device: str) -> bool:
        """Return whether a device's file is on the disk, valid or not."""
        return os.path.exists(self._path(device))  # noqa: PTH110 - it never raises

    def record(
        self, device: str, target: Target, level: Level, boot: str, attached: Mapping[str, str]
    ) -> None:
        """Note that the device is about to be set at a level.

        The current setting is read and kept only if nothing is noted yet: the original is the
        setting before the first change. If that is on the disk, a mere change of level may be
        written later.

        Raises:
            ActuationError: the current setting cannot be read; change nothing.
            StoreError: the disk refuses; change nothing.
            Conflict: every device must stay at its original setting; change nothing.
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
        # Last: a request to stay checks for entries after its own write, so one of the two sees the
        # other.
        if self.stays:
            raise Conflict(f"an operator keeps {device} at its original setting", hint=LIFT)

    def restore(self, device: str, target: Target) -> bool:
        """Restore a device to its original setting; return whether there was anything to restore.

        All sides are restored, even if one fails; a second call does nothing. A side whose original
        is lost to damage is set to its default. The entry is removed once all sides are restored;
        if the disk refuses to delete the file, that is retried whenever the device is requested.

        Raises:
            ActuationError: some sides failed; the entry stays for another attempt.
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
        """Delete the device's journal. If the disk fails, remember that the device is restored."""
        try:
            files.remove(self._path(device))
            self._restored.discard(device)
        except StoreError as error:
            if device not in self._restored:
                log.error("event=journal_not_removed device=%s why=%r", device, str(error))
            self._restored.add(device)

    def _path(self, device: str) -> Path:
        """Return the path of the device's journal."""
        return self._folder / files.file_name(device, SUFFIX)


def originals(entry: Entry, target: Target) -> SideSettings:
    """Return the setting to restore per side: the original, or the default if that is lost."""
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
    """Parse the readable lines of a file's content."""
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
    """Parse a line as a JSON object. Raises ValueError if it is none, or its checksum is wrong."""
    record = json.loads(line)
    if not isinstance(record, dict) or record.pop("sum", "") != _sum(record):
        raise ValueError("not an object with its checksum")
    return record


def _sum(line: Mapping[str, Any]) -> str:
    """Return the checksum of a journal line."""
    return hashlib.sha256(json.dumps(line, sort_keys=True).encode()).hexdigest()
