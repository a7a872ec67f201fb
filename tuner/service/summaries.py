"""Summaries of all studies for the pages of all devices, computed by a thread beside requests.

The report of one study of 500 trials takes 0.1 s: a page of 200 studies cannot wait for all of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tuner.core import (
    HELD,
    IN_ALL,
    Estimate,
    Limit,
    NotFound,
    Notice,
    PeriodSaving,
    Study,
    TrialState,
    TuningError,
    UnreadableStudy,
    Verdict,
)
from tuner.service.operations import Operations
from tuner.service.reports import StudyLook

log = logging.getLogger(__name__)

FRESH_S = 60.0
"""The age in seconds from which the summary of an active study is stale: a hold saves without notices."""
PERIODS_S = 3600.0
"""The age in seconds from which that of a stopped study is stale: its savings leave the latest periods."""
IDLE_S = 120.0
"""Seconds after the last request for a summary, from which changes are no longer computed at once."""
DUTY, DUTY_AGAIN = 0.5, 0.01
"""The share of a core that the thread uses: for missing summaries, and to renew stale ones."""


@dataclass(frozen=True, slots=True)
class StudySummary:
    """A study in short; None stands for an unknown value.

    `saving` is the share that it saves; `saved` are the savings by holding in each period and in all,
    `explored_j` the joules that trials have used. `uncounted`: it holds on several devices
    together, and their saving is not billed. `trials` are the numbers of trials by state and by verdict
    under today's limits. `error` is the reason why the other values are unknown; empty if they are
    available.
    """

    saving: Estimate | None = None
    saved: tuple[PeriodSaving, ...] = ()
    explored_j: float | None = None
    origin: str = ""
    limits: tuple[Limit, ...] = ()
    unmet: Limit | None = None
    uncounted: bool = False
    trials: Mapping[tuple[TrialState, Verdict | None], int] = field(default_factory=dict)
    error: str = ""

    @classmethod
    def of(cls, look: StudyLook) -> StudySummary:
        """Return the summary of a look at a study."""
        report, bill = look.report, look.report.bill
        return cls(
            saving=report.saving,
            saved=(*bill.periods, *([bill.whole] if bill.whole else ())),
            explored_j=bill.explored_j,
            origin=str(bill.origin) if bill.origin is not None else "",
            limits=report.study.limits,
            unmet=report.study.unmet,
            uncounted=report.study.phase in HELD and len(report.study.devices) > 1,
            trials=Counter((trial.state, trial.verdict) for trial in look.trials),
        )

    @property
    def whole(self) -> PeriodSaving | None:
        """The saving by all holding; None without a held window."""
        return next((saving for saving in self.saved if saving.period == IN_ALL), None)


@dataclass
class _CachedSummary:
    """A summary, the time of its computation, and whether it must be computed again."""

    summary: StudySummary | None = None
    at_s: float = 0.0
    stale: bool = True


class Summaries:
    """Keeps the summary of every study requested so far; a thread renews the stale ones."""

    def __init__(
        self, operations: Operations, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._operations, self._monotonic = operations, monotonic
        self._cached: dict[str, _CachedSummary] = {}
        self._read_s = float("-inf")
        self._requested, self._over = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._unsubscribe = operations.loop.store.bus.subscribe(self._on_notice)

    def of(self, study: Study | UnreadableStudy) -> StudySummary | None:
        """Return the latest summary of a study; None before its first computation."""
        with self._lock:
            return self._of(study.id, active=study.active)

    def of_each(
        self, active: Iterable[str], stopped: Iterable[str]
    ) -> dict[str, StudySummary | None]:
        """Return the latest summaries by study id; those of stopped studies age by the hour."""
        with self._lock:
            return {study: self._of(study, active=True) for study in active} | {
                study: self._of(study, active=False) for study in stopped
            }

    def _of(self, study: str, *, active: bool) -> StudySummary | None:
        """Return the latest summary of a study, and wake the thread if it is stale. Needs the lock."""
        entry = self._cached.get(study)
        if entry is None:
            entry = self._cached[study] = _CachedSummary()
        self._read_s = self._monotonic()
        if entry.stale or self._read_s - entry.at_s > (FRESH_S if active else PERIODS_S):
            entry.stale = True
            self._requested.set()
        return entry.summary

    def begin(self) -> Callable[[], None]:
        """Start the thread that renews the summaries; return the function that ends it."""
        worker = threading.Thread(target=self._run, name="summaries", daemon=True)
        worker.start()

        def end() -> None:
            self._over.set()
            self._requested.set()
            self._unsubscribe()
            worker.join()

        return end

    def renew(self) -> int:
        """Compute all stale summaries, and return the number computed."""
        count = 0
        while (due := self._due()) is not None:
            study, duty = due
            began = self._monotonic()
            self._renew(study)
            count += 1
            if self._over.wait((self._monotonic() - began) * (1.0 / duty - 1.0)):
                break
        return count

    def _due(self) -> tuple[str, float] | None:
        """Return a stale study and the share of a core for it; None if all summaries are fresh.

        Studies without a summary come first.
        """
        with self._lock:
            stale = [(study, entry.summary) for study, entry in self._cached.items() if entry.stale]
        new = (study for study, summary in stale if summary is None)
        if (first := next(new, None)) is not None:
            return first, DUTY
        return (stale[0][0], DUTY_AGAIN) if stale else None

    def _run(self) -> None:
        """Renew the summaries at each request, until the end; log errors."""
        while not self._over.is_set():
            self._requested.wait()
            self._requested.clear()
            try:
                self.renew()
            except TuningError as error:
                log.warning("event=pages_late the pages show old data: %s", error)
                self._over.wait(1.0 / DUTY)

    def _renew(self, study: str) -> None:
        """Compute the summary of a study; forget a study that was deleted."""
        with self._lock:
            entry = self._cached.get(study)
            if entry is None:
                return
            entry.stale = False  # before the look: a change during it makes it stale again
        summary = self._operations.loop.changes.rows("the summary").each(
            study, lambda: self._summary(study), lambda why: StudySummary(error=why)
        )
        with self._lock:
            if summary is None:
                self._cached.pop(study, None)
            else:
                entry.summary, entry.at_s = summary, self._monotonic()

    def _summary(self, study: str) -> StudySummary | None:
        """Return the summary of a study; None if it was deleted."""
        try:
            return StudySummary.of(self._operations.look(study))
        except NotFound:
            return None

    def _on_notice(self, notice: Notice) -> None:
        """Mark the summary of a changed study as stale; wake the thread if pages are in use."""
        with self._lock:
            entry = self._cached.get(notice.study)
            if entry is not None:
                entry.stale = True
                if self._monotonic() - self._read_s < IDLE_S:
                    self._requested.set()
