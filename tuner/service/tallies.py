"""What figures of whole studies need every trial of: worked out by the clock, never by a scrape.

The report of a study of 500 trials takes a tenth of a second.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tuner.core import NotFound, Notice, Origin
from tuner.service.operations import Operations

FRESH_S = 300.0
"""A hold goes on saving without any news of it."""
EVERY_S = 10
BUDGET_S = 0.5
"""So long is worked at most, `EVERY_S` after the last time: a twentieth of a core."""

StateVerdict = tuple[str, str]


@dataclass(frozen=True, slots=True)
class StudyTally:
    """One study in figures: trials by state and verdict, and its bill in J, None where unknown.

    `unmet` is whether what it holds is proven to break a limit.
    """

    trials: Mapping[StateVerdict, int]
    saved_j: float | None
    explored_j: float | None
    origin: Origin | None
    unmet: bool


@dataclass(slots=True)
class TallyEntry:
    """A study's tally, since when it is known, and whether it may have changed since."""

    tally: StudyTally | None = None
    at_s: float = 0.0
    stale: bool = True


class StudyTallies:
    """Keeps the tally of every study. What has changed is worked out anew, the longest known first."""

    def __init__(
        self, operations: Operations, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._operations, self._monotonic = operations, monotonic
        self._known: dict[str, TallyEntry] = {}
        self._lock = threading.Lock()
        operations.loop.store.bus.subscribe(self._heard)

    def known(self) -> Mapping[str, StudyTally | None]:
        """Return the tallies by study; None where one was not worked out yet."""
        with self._lock:
            return {study: known.tally for study, known in self._known.items()}

    def renew(self, budget_s: float = BUDGET_S) -> int:
        """Work out what has changed until the time is up; return how many studies that were."""
        began, done = self._monotonic(), 0
        for study in self._due():
            self._renew(study)
            done += 1
            if self._monotonic() - began >= budget_s:
                break
        return done

    def _due(self) -> list[str]:
        active = {s.id: s.active for s in self._operations.loop.store.studies.list()}
        now = self._monotonic()
        with self._lock:
            for gone in self._known.keys() - active.keys():
                del self._known[gone]
            for study in active:
                self._known.setdefault(study, TallyEntry())
            due = [
                (known.at_s, study)
                for study, known in self._known.items()
                if known.stale or (active[study] and now - known.at_s >= FRESH_S)
            ]
        return [study for _, study in sorted(due)]

    def _renew(self, study: str) -> None:
        with self._lock:
            known = self._known[study]
            known.stale = False  # before the look: what changes meanwhile makes it stale again
        try:
            tally = self._worked_out(study)
        except NotFound:  # deleted since
            return
        with self._lock:
            known.tally, known.at_s = tally, self._monotonic()

    def _worked_out(self, study: str) -> StudyTally:
        report = self._operations.report(study)
        judged = Counter(
            (str(t.state), str(t.verdict or "none")) for t in self._operations.trials(study)
        )
        return StudyTally(
            trials=judged,
            saved_j=report.bill.saved_j,
            explored_j=report.bill.explored_j,
            origin=report.bill.origin,
            unmet=report.study.unmet is not None,
        )

    def _heard(self, notice: Notice) -> None:
        with self._lock:
            known = self._known.get(notice.study)
            if known is not None:
                known.stale = True
