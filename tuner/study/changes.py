"""Changes a study: ends its trials, revises it, moves it to another phase, and announces that.

Each change is stored first, then announced to the devices that wait for orders and to the operator.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import ParamSpec, TypeVar

import db
from tuner.core import (
    Applied,
    Device,
    Event,
    IllegalTransition,
    Limit,
    Measurement,
    Notice,
    Now,
    Outcome,
    Phase,
    Plan,
    Report,
    StaleRevision,
    Study,
    Topic,
    Trial,
    TrialState,
    UnreadableStudy,
    merged,
)
from tuner.rows import EachRow
from tuner.study import apart, control

log = logging.getLogger(__name__)

TUNER = "tuner"
"""Author of a revision that no operator requested."""
MOST_LOOKS = 6
MOST_KEPT = 20_000
"""Number of trials kept, some 2 kB each; the least recently requested study is evicted first."""

P = ParamSpec("P")
R = TypeVar("R")


class Telemetry:
    """Receive events after they are stored; this one keeps nothing.

    No method raises. Called from many threads.
    """

    def noted(self, kind: str) -> None:
        """Note that an event of a kind was written."""

    def measured(self, of: Study | Device, device: str, window: Measurement) -> None:
        """Note a window of a device, in a trial, while holding or while it is only observed."""

    def observed(self, device: Device, window: Measurement) -> None:
        """Note a window of a device that is only observed."""

    def held(self, study: Study, device: str, window: Measurement, limits: Sequence[Limit]) -> None:
        """Note a window of a hold; `limits` are those under which it is held."""

    def ended(self, outcome: Outcome) -> None:
        """Note how a trial ended."""

    def applied(self, applied: Applied) -> None:
        """Note that a device's setting differs from its last reported one."""

    def suggested(self, policy: str, seconds: float) -> None:
        """Note how many seconds the next step of a study while tuning took to decide."""


@dataclass
class Changes:
    """Change studies and their trials in the store; thread-safe.

    One lock per study keeps two callers of this process from changing it at the same time. Of
    several processes one succeeds: the store accepts a revision or a trial only if the study is
    unchanged since it was read.
    """

    store: db.Store
    now: Now
    telemetry: Telemetry
    _ended: EndedTrials = field(init=False)
    _locks: defaultdict[str, threading.RLock] = field(
        default_factory=lambda: defaultdict(threading.RLock)
    )
    _rows: dict[str, EachRow] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ended = EndedTrials(self.store.trials)

    def rows(self, work: str) -> EachRow:
        """Return the row reader of a list, page, scrape or job. A row that fails becomes an event."""
        if work not in self._rows:
            self._rows[work] = EachRow(work, lambda text, _: self.note("row failed", text))
        return self._rows[work]

    def lock(self, study: str) -> threading.RLock:
        """Return the lock to hold while changing a study."""
        return self._locks[study]

    def publish(self, study: Study | UnreadableStudy) -> None:
        """Announce that a study's devices may have new orders."""
        self.store.bus.publish(Notice(Topic.ORDERS, study.id, study.devices))

    def revise(self, study: Study, who: str, why: str) -> Study:
        """Store a study's next revision, and wake its devices; `why` is the reason for a new phase."""
        reasoned = study if study.reason else replace(study, reason=why)
        stored = self.store.studies.revise(reasoned, who, why, self.now())
        self.publish(study)
        return stored

    def move(self, study: Study, phase: Phase, why: str, plan: Plan | None = None) -> Study:
        """Move a study to another phase, with an event for the operator."""
        moved = self.entering(study.moved(phase, plan))
        stored = self.revise(moved, TUNER, why)
        self.note(str(phase), why, study.id)
        return stored

    def entering(self, study: Study) -> Study:
        """Return the study with its phase starting at its next trial."""
        return replace(study, phase_since=self.store.trials.count(study.id) + 1)

    def start_over(self, study: Study, why: str) -> Study:
        """Restart a study from its baseline; old trials are kept, but no longer count."""
        fresh = replace(study, since_trial=self.store.trials.count(study.id) + 1)
        if study.phase is Phase.PAUSED:
            fresh = replace(fresh, paused_from=Phase.BASELINE, plan=None)
        elif study.phase is not Phase.BASELINE:
            moved = self.move(fresh, Phase.BASELINE, why)
            self.note_withdrawn(study, why)
            return moved
        self.note("started over", why, study.id)
        fresh = replace(fresh, phase_since=fresh.since_trial, reason="")
        stored = self.revise(fresh, TUNER, why)
        self.note_withdrawn(study, why)
        return stored

    def with_reason(self, study: Study) -> Study:
        """Return the study with the reason for its present phase; older studies are stored without it."""
        return replace(study, reason=study.reason or self.store.studies.latest(study.id).why)

    def note(self, kind: str, text: str, study: str = "", device: str = "") -> None:
        """Write an event for the operator."""
        self.note_all([Event(at=self.now(), kind=kind, text=text, study=study, device=device)])

    def note_all(self, events: Sequence[Event]) -> None:
        """Write events for the operator in one transaction."""
        self.store.events.add_all(events)
        for event in events:
            self.telemetry.noted(event.kind)

    def note_withdrawn(self, study: Study, why: str) -> None:
        """Report that a study's former proposal, if any, can no longer be approved."""
        if study.proposed is not None:
            plan = study.proposed.in_words
            self.note("withdrawn", f"{plan} is no longer proposed: {why}", study.id)

    def end_unreadable(self, study: UnreadableStudy, who: str, why: str) -> None:
        """End a study that cannot be read with its running trials, and wake its devices."""
        self.abort(study, why)
        self.store.studies.end_unreadable(study, who, why, self.now())
        self.publish(study)
        self.note(str(Phase.STOPPED), why, study.id)

    def abort(self, study: Study | UnreadableStudy, reason: str) -> None:
        """Abort the study's running trials; their agents learn of it at their next renewal."""
        for trial in self.store.trials.running(study.id):
            self.cancel(study, trial, reason)

    def cancel(
        self,
        study: Study | UnreadableStudy,
        trial: Trial,
        why: str,
        state: TrialState = TrialState.ABORTED,
    ) -> None:
        """End a running trial without evidence and free its devices; a FAILED one counts as spent."""
        self.end(trial, study, Outcome(state=state, reason=why))
        for device in trial.on(study.devices):
            lease = self.store.leases.get(device)
            if lease is not None and lease.study == study.id:
                self.store.leases.release(device, lease.token)

    def end(self, trial: Trial, study: Study | UnreadableStudy, outcome: Outcome) -> None:
        """End a trial; do nothing if another tuner has ended it since it was read."""
        try:
            ended = self.store.trials.end(study.id, trial.number, outcome, self.now())
        except IllegalTransition as error:
            log.info("event=trial_not_ended trial=%d study=%s: %s", trial.number, study.id, error)
            return
        self.telemetry.ended(outcome)
        self.publish(study)
        if outcome.state is not TrialState.COMPLETED:
            text = f"trial {trial.number}: {outcome.reason or 'no reason given'}"
            self.note(str(outcome.state), text, study.id)
        if ended.control and isinstance(study, Study):
            for kind, text in control.news_of(study, self.store.trials.list(study.id), ended):
                self.note(kind, text, study.id)

    def close(self, study: Study, trial: Trial, reports: Sequence[Report] | None = None) -> bool:
        """End a trial once every device that tries it has reported; return whether it ended.

        `reports` are all its reports, None to look them up.
        """
        if reports is None:
            reports = self.store.trials.reports(study.id, trial.number)
        by_device = {r.device: r.outcome for r in reports if not r.late}
        devices = trial.on(study.devices)
        if not all(device in by_device for device in devices):
            return False
        outcome = merged([by_device[device] for device in devices], study.quantities)
        if trial.device:
            trials = self.store.trials.list(study.id)
            outcome = apart.scaled(outcome, self.shares(study, trials, trial.device))
        self.end(trial, study, outcome)
        return True

    def shares(self, study: Study, trials: Sequence[Trial], device: str) -> apart.Shares:
        """Return the factors that scale a trial of one device to all devices."""
        if not device:
            return apart.ALIKE
        return apart.shares(
            study, trials, device, lambda number: self.store.trials.reports(study.id, number)
        )

    def trials(self, study: str) -> Sequence[Trial]:
        """Return all trials of a study by number; ended ones come from memory."""
        return self._ended.list(study)


class EndedTrials:
    """Keep ended trials, which never change; later ones are read from the store. Thread-safe.

    The last kept trial is read again each time: if it differs, its study was deleted, and its name
    given to a new one.
    """

    def __init__(self, trials: db.Trials, most: int = MOST_KEPT) -> None:
        self._trials, self._most = trials, most
        self._ended: OrderedDict[str, Sequence[Trial]] = OrderedDict()
        self._kept = 0
        self._lock = threading.Lock()

    def list(self, study: str) -> Sequence[Trial]:
        """Return all trials of a study by number."""
        with self._lock:
            ended = self._ended.get(study, ())
        fresh = self._trials.list(study, ended[-1].number if ended else 1)
        if ended and fresh[:1] != ended[-1:]:
            ended, fresh = (), self._trials.list(study)
        listed = (*ended[:-1], *fresh)
        self._keep(study, tuple(takewhile(lambda trial: trial.state.final, listed)))
        return listed

    def _keep(self, study: str, ended: Sequence[Trial]) -> None:
        """Cache the study's ended trials, and drop the oldest studies above the limit."""
        with self._lock:
            self._kept += len(ended) - len(self._ended.pop(study, ()))
            self._ended[study] = ended
            while self._kept > self._most:
                self._kept -= len(self._ended.popitem(last=False)[1])


def looking_again(act: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that it restarts if the study was changed since it was read.

    For functions that read the study themselves and may run twice. Raises StaleRevision after six
    attempts.
    """

    @functools.wraps(act)
    def again(*args: P.args, **named: P.kwargs) -> R:
        for _ in range(MOST_LOOKS - 1):
            with suppress(StaleRevision):
                return act(*args, **named)
        return act(*args, **named)

    return again
