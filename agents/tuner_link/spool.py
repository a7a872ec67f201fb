"""The queue of reports to the tuner, kept on disk until they have arrived."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from tuner import files
from tuner.core import Conflict, Forbidden, InvalidInput, NotFound, StoreError, first_fault
from tuner.wire import HoldReport, Reverted, StepReport, TrialReport

log = logging.getLogger(__name__)

MOST_WAITING = 5000
"""Three days of one hold's windows, about 10 MB. Trials cannot pile up: each waits for its order."""
MOST_REFUSED = 200

Report = TrialReport | HoldReport | Reverted | StepReport
KINDS: Mapping[str, type[Report]] = {
    "trial": TrialReport,
    "end": HoldReport,
    "revert": Reverted,
    "step": StepReport,
}
WINDOW = "window"
"""The kind of a hold's report before its end."""


class Spool:
    """One file per report, in order, intact after any crash; safe from many threads.

    A full queue drops the oldest window of a hold; without one, the oldest report. A report that the disk
    refuses waits in memory until the disk accepts it. A delivered report whose file cannot be removed is
    not sent again. `dropped` counts the reports dropped for space, `refused` those that the tuner refused
    permanently.
    """

    def __init__(self, folder: Path, most: int = MOST_WAITING) -> None:
        self._folder = folder
        self._refused = folder / "refused"
        self._most = most
        self._lock = threading.RLock()
        self._sending = threading.Lock()
        self._unwritten: dict[str, str] = {}
        self._delivered: set[str] = set()
        self.dropped = self.refused = 0
        unsent = self.waiting()
        self._next = int(unsent[-1].name.split("-")[0]) + 1 if unsent else 1

    def put(self, report: Report) -> bool:
        """Queue a report; return whether it is on the disk, not only in memory."""
        kind = next(name for name, schema in KINDS.items() if isinstance(report, schema))
        if isinstance(report, HoldReport) and not report.ended:
            kind = WINDOW
        with self._lock:
            self._make_room()
            name, text = f"{self._next:012d}-{kind}.json", report.model_dump_json()
            self._next += 1
            try:
                files.write(self._folder / name, text)
            except StoreError as error:
                log.error("event=report_in_memory file=%s why=%r", name, str(error))
                self._unwritten[name] = text
            return name not in self._unwritten

    def waiting(self) -> list[Path]:
        """Return the files of the reports to send, oldest first, including those only in memory."""
        with self._lock:
            written = {path.name for path in self._folder.glob("[0-9]*-*.json")}
            names = sorted({*written, *self._unwritten} - self._delivered)
        return [self._folder / name for name in names]

    def size(self) -> tuple[int, int]:
        """Return the number of unsent reports, and their size in bytes."""
        waiting, total = self.waiting(), 0
        for path in waiting:
            unwritten = self._unwritten.get(path.name)
            with suppress(OSError):  # it may have been sent meanwhile
                total += path.stat().st_size if unwritten is None else len(unwritten.encode())
        return len(waiting), total

    def deliver(self, send: Callable[[Report], object]) -> int:
        """Send all queued reports, oldest first, and return the number that arrived.

        A report that the tuner refuses permanently goes to `refused/` with the reason. After a crash
        between sending and removing, a report is sent again; the tuner recognises it.

        Raises:
            LinkError, Unauthorised: from `send`; the report stays first in the queue.
        """
        arrived = 0
        with self._sending:
            self._tidy()
            for path in self.waiting():
                try:
                    text = self._text(path)
                except OSError as error:
                    log.error("event=report_unreadable file=%s why=%r", path.name, str(error))
                    continue
                try:
                    send(_load(path, text))
                except (InvalidInput, NotFound, Conflict, Forbidden) as error:
                    self._refuse(path, text, str(error))
                else:
                    self._drop(path)
                    arrived += 1
        return arrived

    def _text(self, path: Path) -> bytes:
        """Return a report's content, from memory or from its file. Raises OSError."""
        unwritten = self._unwritten.get(path.name)
        return path.read_bytes() if unwritten is None else unwritten.encode()

    def _tidy(self) -> None:
        """Retry the writes and removals that the disk refused before, until the next refusal."""
        with self._lock:
            try:
                for name in sorted(self._unwritten):
                    files.write(self._folder / name, self._unwritten[name])
                    del self._unwritten[name]
                for name in sorted(self._delivered):
                    files.remove(self._folder / name)
                    self._delivered.discard(name)
            except StoreError:
                return  # the first refusal was logged

    def _drop(self, path: Path) -> None:
        """Remove a report from the queue; if the disk refuses, only skip it."""
        with self._lock:
            self._unwritten.pop(path.name, None)
            try:
                files.remove(path)
            except StoreError as error:
                log.error("event=report_not_removed file=%s why=%r", path.name, str(error))
                self._delivered.add(path.name)

    def _make_room(self) -> None:
        """Drop one report if the queue is full: the oldest window, else the oldest report."""
        waiting = self.waiting()
        if len(waiting) < self._most:
            return
        windows = [path for path in waiting if path.name.endswith(f"-{WINDOW}.json")]
        lost = (windows or waiting)[0]
        log.warning("event=spool_full dropped=%s", lost.name)
        self.dropped += 1
        self._drop(lost)

    def _refuse(self, path: Path, text: bytes, why: str) -> None:
        """Set a report aside with the reason; if the disk refuses, it stays queued and is sent again."""
        log.error("event=report_refused file=%s why=%r", path.name, why)
        # Kept on this host only: the bounds of a message would refuse a report of usual length.
        refusal = json.dumps({"why": why, "report": text.decode(errors="replace")})
        try:
            files.write(self._refused / path.name, refusal)
        except StoreError as error:
            log.error("event=refusal_not_kept file=%s why=%r", path.name, str(error))
            return
        self.refused += 1
        self._drop(path)
        for old in sorted(self._refused.glob("*.json"))[:-MOST_REFUSED]:
            with suppress(StoreError):
                files.remove(old)


def _load(path: Path, text: bytes) -> Report:
    """Return a report from its file's content. Raises InvalidInput if it is damaged."""
    kind = path.stem.split("-")[1]
    try:
        return KINDS.get(kind, HoldReport).model_validate_json(text)
    except ValidationError as error:
        raise InvalidInput(f"{path} is damaged: {first_fault(error)}") from None
