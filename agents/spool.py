"""Reports on their way to the tuner, kept on disk until they have arrived."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from agents import durable
from tuner.core import Conflict, Forbidden, InvalidInput, NotFound
from tuner.wire import HoldReport, Message, TrialReport

log = logging.getLogger(__name__)

MOST_WAITING = 5000
"""Three days of one hold's windows, about 10 MB. Trials cannot pile up: each waits for its order."""
MOST_REFUSED = 200


class Refusal(Message):
    """A report that the tuner will never take, and why."""

    why: str
    report: str


class Spool:
    """One file per report, in order, whole after any crash; safe from many threads.

    When it is full the oldest window of a hold makes room: a trial or the end of a hold is not lost.
    """

    def __init__(self, folder: Path, most: int = MOST_WAITING) -> None:
        self._folder = folder
        self._refused = folder / "refused"
        self._most = most
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        found = self.waiting()
        self._next = int(found[-1].name.split("-")[0]) + 1 if found else 1

    def put(self, report: TrialReport | HoldReport) -> None:
        """Keep a report. Raises StoreError where the disk refuses."""
        kind = "trial" if isinstance(report, TrialReport) else "end" if report.ended else "window"
        with self._lock:
            self._make_room()
            durable.write(self._folder / f"{self._next:012d}-{kind}.json", report.model_dump_json())
            self._next += 1

    def waiting(self) -> list[Path]:
        """Return the files that still have to arrive, oldest first."""
        return sorted(self._folder.glob("[0-9]*-*.json"))

    def deliver(self, send: Callable[[TrialReport | HoldReport], object]) -> int:
        """Send everything that waits, oldest first, and return how many arrived.

        What the tuner refuses for good goes to `refused/` with the reason. A crash between sending
        and removing sends once more, which the tuner recognises.

        Raises:
            LinkError, Unauthorised, StoreError: from `send`; the report stays first in the queue.
        """
        arrived = 0
        with self._sending:
            for path in self.waiting():
                try:
                    send(_load(path))
                except (InvalidInput, NotFound, Conflict, Forbidden) as error:
                    self._refuse(path, str(error))
                else:
                    durable.remove(path)
                    arrived += 1
        return arrived

    def _make_room(self) -> None:
        waiting = self.waiting()
        if len(waiting) < self._most:
            return
        windows = [path for path in waiting if path.name.endswith("-window.json")]
        lost = (windows or waiting)[0]
        log.warning("event=spool_full dropped=%s", lost.name)
        durable.remove(lost)

    def _refuse(self, path: Path, why: str) -> None:
        log.error("event=report_refused file=%s why=%r", path.name, why)
        text = path.read_text(encoding="utf-8", errors="replace")
        durable.write(self._refused / path.name, Refusal(why=why, report=text).model_dump_json())
        durable.remove(path)
        for old in sorted(self._refused.glob("*.json"))[:-MOST_REFUSED]:
            durable.remove(old)


def _load(path: Path) -> TrialReport | HoldReport:
    kind: Literal["trial", "end", "window"] | str = path.stem.split("-")[1]
    schema = TrialReport if kind == "trial" else HoldReport
    try:
        return schema.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidInput(f"{path} is damaged: {first['msg']}") from None
