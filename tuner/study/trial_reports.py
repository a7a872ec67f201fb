"""Reports of trials: stores them, and ends a trial once all its devices have reported or are lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import db
from tuner.core import (
    Conflict,
    InvalidInput,
    Lease,
    Mode,
    NotFound,
    Now,
    Outcome,
    Phase,
    Report,
    StaleToken,
    Study,
    Trial,
    TrialCare,
    TrialState,
    Unreadable,
    implausible,
    refuse_negative,
)
from tuner.study.changes import Changes, Telemetry, looking_again
from tuner.wire import Receipt, StepReport, TrialReport

log = logging.getLogger(__name__)

MOST_ABANDONED = 3
MOST_LATE = 8
"""Number of late reports of a trial kept from each device."""
AWAY_S = 60.0
"""After this time without a check of all trials, due every 10 s, the tuner itself was not listening."""


class Silence:
    """Time since leases and trials last changed in the store, on a monotonic clock in seconds.

    Stored times are wall time, which may step, and may come from another tuner on the same
    database: only their change counts. A value seen for the first time counts as just changed.
    """

    def __init__(self, monotonic: Callable[[], float], lease_s: float, abandon_s: float) -> None:
        self._monotonic = monotonic
        self._lease_s, self._abandon_s = lease_s, abandon_s
        self._looked_at = monotonic()
        self._seen: dict[Hashable, tuple[object, float]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Wrap a check of all trials; a failed one does not count.

        After a long pause (suspended, without its database) all times start again.
        """
        if self._monotonic() - self._looked_at > AWAY_S:
            with self._lock:
                self._seen.clear()
        yield
        self._looked_at = self._monotonic()

    def in_time(self, lease: Lease) -> bool:
        """Return whether a lease is still valid."""
        return self._seconds(lease.device, (lease.token, lease.expires_at)) < self._lease_s

    def abandoned(self, care: TrialCare) -> bool:
        """Return whether a trial had no contact for long, under any lease on its devices."""
        own = care.study, care.trial
        return self._seconds(own, care) > self._lease_s + self._abandon_s

    def _seconds(self, of: Hashable, stored: object) -> float:
        """Return the seconds since the stored value last changed."""
        now = self._monotonic()
        with self._lock:
            previous, since = self._seen.get(of, (None, now))
            if previous != stored:
                self._seen[of] = stored, now
                return 0.0
            return now - since


@dataclass(frozen=True)
class TrialReports:
    """Accept agents' reports of trials, and end trials that no agent renews."""

    store: db.Store
    now: Now
    changes: Changes
    telemetry: Telemetry
    silence: Silence
    abandon_s: float

    def record(self, message: TrialReport) -> Receipt:
        """Record a report: end the trial, or keep it as late evidence if its token is not in force."""
        study = self.store.studies.get(message.study)
        require_member(message.device, study)
        outcome = credible(message.outcome, study)
        with self.changes.lock(message.study):
            trial = self._trial(message.study, message.trial)
            reports = self.store.trials.reports(message.study, message.trial)
            own = [r for r in reports if r.device == message.device]
            if any((r.token, r.nonce) == (message.token, message.nonce) for r in own):
                return Receipt(result="duplicate")
            late = trial.state.final or not self._in_force(message)
            if late and sum(r.late for r in own) >= MOST_LATE:
                raise StaleToken(
                    f"trial {message.trial} already has {MOST_LATE} late reports of {message.device}",
                    hint="this one was not stored",
                )
            report = Report(
                study=message.study,
                trial=message.trial,
                device=message.device,
                attempt=message.attempt,
                token=message.token,
                nonce=message.nonce,
                outcome=outcome,
                received_at=self.now(),
                late=late,
            )
            self.store.trials.report(report)
            report = replace(report, outcome=without_samples(outcome))  # those are kept once
            if outcome.measurement is not None:
                self.telemetry.measured(study, message.device, outcome.measurement)
            if late:
                text = f"trial {message.trial} attempt {message.attempt} reported late; kept"
                self.changes.note("late report", text, message.study, message.device)
                return Receipt(result="late")
            self.store.leases.release(message.device, message.token)
            alone = (report,) if study.devices == (message.device,) else None
            closed = self.changes.close(study, trial, alone)
            return Receipt(result="closed" if closed else "kept")

    @looking_again
    def own_step(self, message: StepReport) -> Receipt:
        """Record a step that a continuous study's agent made by itself, as a trial like any other.

        Raises:
            Conflict: the study is not continuous.
            InvalidInput: the setting is not in its space.
        """
        with self.changes.lock(message.study):
            study = self.store.studies.get(message.study)
            require_member(message.device, study)
            if study.terms.mode is not Mode.CONTINUOUS:
                raise Conflict(
                    f"study {study.id} does not accept steps decided by an agent",
                    hint="use a continuous study",
                )
            study.space.check(message.setting)
            outcome = credible(message.outcome, study)
            why = f"decided by the agent while the tuner was unreachable; {message.key}"
            version = study.revision, self.store.trials.count(study.id)
            trial = next((t for t in self.store.trials.list(study.id) if t.why == why), None)
            if trial is not None and trial.state.final:
                return Receipt(result="duplicate")
            if trial is None:
                self.changes.abort(study, "its agent continued without the tuner")
                trial = self.store.trials.begin(
                    study.id, message.setting, Phase.TUNING, why, self.now(), seen=version
                )
            self.changes.end(trial, study, outcome)
            if outcome.measurement is not None:
                self.telemetry.measured(study, message.device, outcome.measurement)
            return Receipt(result="closed")

    def _in_force(self, message: TrialReport) -> bool:
        lease = self.store.leases.get(message.device)
        if lease is None or (lease.study, lease.trial) != (message.study, message.trial):
            return False
        try:
            lease.admit(message.token, message.nonce)
        except StaleToken:
            return False
        return True

    def _trial(self, study: str, number: int) -> Trial:
        """Return a trial by its number, of the running ones first. Raises NotFound."""
        for look in (self.store.trials.running, self.changes.trials):
            trial = next((t for t in reversed(look(study)) if t.number == number), None)
            if trial is not None:
                return trial
        raise NotFound(f"study {study} has no trial {number}", hint="list its trials")

    def reap(self) -> int:
        """End running trials without contact for `abandon_s`; return their number.

        A trial whose lease has merely expired stays: until a newer attempt takes it, its late owner
        may still report, and the same agent gets the same trial on its next poll. A tuner that was
        itself away (restarted, suspended, without its database) gives every agent the same time
        again.
        """
        with self.silence.listening():
            at_work = self.store.trials.at_work()
            alone = {one.study for one in at_work if self.silence.abandoned(one) or one.reported}
            ended = 0
            for name in sorted(alone):
                try:
                    ended += self._reap(name)
                except Unreadable as error:  # it must not keep the others' trials running
                    log.warning(
                        "event=not_reaped study=%s: its trials are unchanged: %s", name, error
                    )
            return ended

    def _reap(self, name: str) -> int:
        """End the study's abandoned trials, and return how many ended."""
        ended = 0
        with self.changes.lock(name):
            study = self.store.studies.get(name)
            if not study.active:
                return 0
            for trial in self.store.trials.running(study.id):
                leases = [self.store.leases.get(device) for device in trial.on(study.devices)]
                care = TrialCare.of(study.id, trial, leases)
                if self.changes.close(study, trial) or not self.silence.abandoned(care):
                    continue
                why = f"no agent has worked on it for {self.abandon_s:g} s"
                self.changes.cancel(study, trial, why)
                if not trial.control:  # the held setting is not affected
                    self._despair(study, trial, why)
                ended += 1
        return ended

    def _despair(self, study: Study, trial: Trial, why: str) -> None:
        """Pause a study whose trials are abandoned one after another: one of its devices is lost."""
        latest = self.store.trials.list(study.id)[-MOST_ABANDONED:]
        if len(latest) == MOST_ABANDONED and all(t.reason == why for t in latest):
            reported = {r.device for r in self.store.trials.reports(study.id, trial.number)}
            silent = ", ".join(d for d in trial.on(study.devices) if d not in reported)
            pause_reason = (
                f"{MOST_ABANDONED} trials in a row were abandoned; check the agent of {silent}"
            )
            self.changes.abort(study, pause_reason)  # the trials of other devices alone
            self.changes.move(self.store.studies.get(study.id), Phase.PAUSED, pause_reason)


def require_member(device: str, study: Study) -> None:
    """Raise InvalidInput if the reporting device does not belong to the study."""
    if device not in study.devices:
        raise InvalidInput(f"study {study.id} does not have the device {device}")


def credible(outcome: Outcome, study: Study) -> Outcome:
    """Return an outcome without its window if the window's numbers are implausible.

    Raises:
        MeasurementError: a quantity that cannot be negative is below zero.
    """
    window = outcome.measurement
    if window is None:
        return outcome
    refuse_negative(window.estimates, study.quantities)
    why = implausible(window, study.quantities)
    if not why:
        return outcome
    state = TrialState.CONTAMINATED if outcome.state.evidence else outcome.state
    reason = f"implausible: {why}; window discarded; check the meter"
    return Outcome(state=state, reason="; ".join(filter(None, (outcome.reason, reason))))


def without_samples(outcome: Outcome) -> Outcome:
    """Return an outcome without the raw values of its window."""
    window = outcome.measurement
    return (
        outcome if window is None else replace(outcome, measurement=replace(window, samples=None))
    )
