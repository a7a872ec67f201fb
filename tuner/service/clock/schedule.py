"""Periodic work of the tuner: end abandoned trials, watch for drift, delete old records."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial, wraps

import db
from tuner import process_memory
from tuner.core import (
    ANYWHERE,
    Context,
    Estimate,
    Event,
    MetricSample,
    Past,
    Phase,
    Plan,
    Row,
    Setting,
    Study,
    TuningError,
    baseline_context,
    is_like,
    render_setting,
    setting_key,
)
from tuner.moments import day
from tuner.service.budgets.state import AWAY_S
from tuner.service.clock.liveness import FORGOTTEN, TELL_S
from tuner.study.answers import Derived
from tuner.study.confirm import confirmation_load, duel
from tuner.study.loop import Loop
from tuner.study.presence import KEEP_S
from tuner.study.sequential_tests import drift

log = logging.getLogger(__name__)

SILENT = "no contact with the device; check that its agent and its host are up"
NOTED_AT_ONCE = 500
"""The most silent devices noted in one transaction, which delays every other event."""
LOOKED_AT = 10_000
"""The number of latest events that are read at the start for devices that were offline."""
AUDIT_DAYS = 400
"""The least number of days that the audit log is kept: a year and a margin."""
PRUNED_AT_ONCE = timedelta(days=1)
"""The most that one run of `prune` deletes: the records of this span, from the oldest on."""
MOST_WINDOWS = 500
"""The number of a hold's latest windows that are tested for drift."""
STEP_S = 1.0
"""A wall clock that moves by this much against the monotonic clock was set."""
DUTY = 0.01
"""The share of a core that the watch for drift uses."""


@dataclass(frozen=True, slots=True)
class HeldRow:
    """The expected metric of a plan's row during a hold: at the load `at`, else at the baseline's load."""

    setting: Setting
    expected: Estimate
    at: Context
    present: Context

    def drift(self, metric: str, samples: Sequence[MetricSample]) -> str | None:
        """Return how the row's windows at the same load have drifted; None if they have not."""
        own = [w for w in samples if w.setting == setting_key(self.setting)]
        like = [w for w in own if is_like(w.context, self.at, self.present)]
        why = drift(metric, self.expected, like) if own else None
        return None if why is None else f"{why} while {render_setting(self.setting)} was held"


@dataclass(frozen=True)
class Maintenance:
    """The periodic work; each method is one task."""

    loop: Loop
    keep_days: int
    pause: Callable[[float], object] = time.sleep
    _expected: Derived[tuple[HeldRow, ...]] = field(default_factory=Derived, repr=False)

    def reap(self) -> None:
        """End trials whose agents have been silent for too long."""
        ended = self.loop.trial_reports.reap()
        if ended:
            log.info("event=reaped trials=%d abandoned", ended)

    def watch_drift(self) -> None:
        """Return a held study to its baseline if its windows have drifted from their expected metrics.

        Pause after each study: there may be thousands, and requests must not wait for all of them. A round
        may take an hour, and ends once another tuner leads.
        """
        rows = self.loop.changes.rows("the watch for drift")
        for name in self.loop.store.studies.ids(phase=Phase.HOLDING.value):
            if not self.loop.store.bus.leads():
                return
            began_s = time.thread_time()
            rows.each(name, partial(self._watch_drift, name), lambda _: None)
            self.pause((time.thread_time() - began_s) * (1.0 / DUTY - 1.0))

    def _watch_drift(self, name: str) -> None:
        """Start a held study over if it has drifted and has no newer revision."""
        study = self.loop.store.studies.get(name)
        why = self._drift(study)
        if why is None:
            return
        # The drift was computed without the lock, so that the study's agents need not wait for it.
        with self.loop.changes.lock(study.id):
            if self.loop.store.studies.get(study.id).revision == study.revision:
                self.loop.changes.note("drift", why, study.id)
                self.loop.changes.start_over(study, why)

    def watch_clock(self) -> None:
        """Note that the wall clock was set. Durations use the monotonic clock and are not affected."""
        step_s = self.loop.steady.stepped_s()
        if abs(step_s) >= STEP_S:
            way = "forward" if step_s > 0.0 else "back"
            text = (
                f"the clock was set {way} by {abs(step_s):.0f} s; caps, leases and silences go on"
            )
            self.loop.changes.note("clock", text)

    def keep_seen(self) -> None:
        """Store the time of each device's last contact."""
        self.loop.presence.keep()

    def watch_silence(self) -> None:
        """Note devices that have become silent, and devices whose contact is back."""
        turned, now = self.loop.presence.turned(self.loop.store.studies.windows_s), self.loop.now()
        events = [_turn(device, now, online=online) for device, online in turned]
        for first in range(0, len(events), NOTED_AT_ONCE):
            self.loop.changes.note_all(events[first : first + NOTED_AT_ONCE])

    def prune(self) -> None:
        """Delete observations and events that are older than `keep_days`, and note how many.

        One run deletes at most the oldest day of each: a clock that is far ahead for an hour must not
        delete everything. Events not yet delivered to a destination stay.
        """
        before, store = self.loop.now() - timedelta(days=self.keep_days), self.loop.store
        store.replicas.prune(self.loop.now() - FORGOTTEN)
        store.audit.prune(self.loop.now() - timedelta(days=max(self.keep_days, AUDIT_DAYS)))
        delivered = min((d.event for d in store.deliveries.list()), default=store.events.newest())
        undelivered = next(iter(store.events.after(delivered, 1)), None)
        of_events = before if undelivered is None else min(before, undelivered.at)
        deleted = _shorten(store.observations, before), _shorten(store.events, of_events)
        if any(deleted):
            text = f"{deleted[0]} observations and {deleted[1]} events from before {day(before)}"
            self.loop.changes.note("pruned", text)

    def _drift(self, study: Study) -> str | None:
        """Return how a held study has drifted; None if it has not, or if that is unknown.

        A study of several devices is never tested: its held windows are each one device's and cannot be
        compared with the sum over its devices. Neither is one that follows a load: its expected metrics
        are at the mean load of the trials, its held windows at those that arrive.
        """
        held = study.phase is Phase.HOLDING and study.plan is not None
        if not held or study.plan is None or len(study.devices) > 1 or study.terms.plan_by:
            return None
        metric, since = study.objective.metric, self.loop.store.studies.latest(study.id).at
        samples = self.loop.store.observations.samples(study.id, metric, since, MOST_WINDOWS)
        if not samples:
            return None
        drifts = (row.drift(metric, samples) for row in self._rows(study, study.plan))
        return next((why for why in drifts if why is not None), None)

    def _rows(self, study: Study, plan: Plan) -> tuple[HeldRow, ...]:
        """Return the expected metrics of a held plan's rows, computed again after a revision or a trial."""
        trials = self.loop.store.trials

        def rows() -> tuple[HeldRow, ...]:
            past = Past(study=study, trials=tuple(trials.list(study.id)))
            held = (_held_row(past, plan, row) for row in plan.rows)
            return tuple(row for row in held if row is not None)

        return self._expected.get(study, trials.count(study.id), rows)


def _turn(device: str, at: datetime, *, online: bool) -> Event:
    """Return the event that a device is online again or offline."""
    kind, text = ("online", "contact with the device is back") if online else ("offline", SILENT)
    return Event(at=at, kind=kind, text=text, device=device)


def _shorten(records: db.Observations | db.Events, before: datetime) -> int:
    """Delete records before a time, at most `PRUNED_AT_ONCE` from the oldest on; return their number."""
    oldest = records.oldest()
    return 0 if oldest is None else records.prune(min(before, oldest + PRUNED_AT_ONCE))


def _held_row(past: Past, plan: Plan, row: Row) -> HeldRow | None:
    """Return a row with its expected metric, that of its confirming windows; None if unknown.

    A row that holds the baseline expects the baseline's pooled metric. Any other setting was selected
    because its tuning windows looked good, so those are not used.
    """
    study, at = past.study, confirmation_load(past.study, plan, row)
    if study.rests(row.setting):
        evidence = past.behind(plan, row)
        at, shown = ANYWHERE if evidence is past.evidence else plan.context(row), evidence.baseline
    else:
        alternating = duel(study, past.trials, row.setting, at)
        shown = alternating[1] if alternating else {}
    expected = shown.get(study.objective.metric)
    if expected is None:
        return None
    return HeldRow(row.setting, expected, at, baseline_context(study, past.trials))


def expect(loop: Loop) -> None:
    """Wait for contact with all stored devices; those that were offline by the log count as offline."""
    events = loop.store.events.list(last=LOOKED_AT)
    latest = {e.device: e.kind for e in events if e.kind in ("offline", "online")}
    devices = [device.id for device in loop.store.devices.list()]
    loop.presence.expect(devices, (d for d in devices if latest.get(d) == "offline"))


class Lead:
    """Runs the tasks that one tuner of a database does for all, while this tuner leads."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._led_s = -math.inf

    def taken(self) -> bool:
        """Return whether this tuner leads.

        A tuner that has just begun to lead, or was suspended, first waits for contact with all devices.
        """
        with self._lock:
            leads, now_s = self._loop.store.bus.leads(), self._loop.monotonic()
            if leads and now_s - self._led_s > AWAY_S:
                expect(self._loop)
                log.info("event=leads this replica is now the leader")
            self._led_s = now_s if leads else -math.inf
            return leads

    def alone(self, task: Callable[[], None]) -> Callable[[], None]:
        """Return the task so that it runs only while this tuner leads."""

        @wraps(task)
        def run() -> None:
            if self.taken():
                task()

        return run


class Periodic:
    """Repeats each task in its own thread, by the monotonic clock.

    A task that takes longer than its interval starts again at once, and never runs twice at a time.
    """

    def __init__(self, plan: Sequence[tuple[Callable[[], None], float]]) -> None:
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=one, name=one[0].__name__, daemon=True)
            for one in plan
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, task: Callable[[], None], every_s: float) -> None:
        """Repeat a task until shutdown; log its errors."""
        due_s = time.monotonic() + every_s
        while not self._over.wait(max(0.0, due_s - time.monotonic())):
            due_s = max(due_s, time.monotonic()) + every_s
            try:
                task()
            except TuningError as error:
                log.warning("event=task_failed task=%s: %s", task.__name__, error)
            except Exception:  # it runs again when due, and the other tasks go on
                log.exception("event=task_failed task=%s", task.__name__)

    def shutdown(self, *, wait: bool) -> None:
        """Start no more tasks; with `wait` return after the running tasks have ended."""
        self._over.set()
        for thread in self._threads if wait else ():
            thread.join()


def start(
    maintenance: Maintenance,
    tell: Callable[[], None],
    refresh: Callable[[], None],
    divide_watts: Callable[[], None],
) -> Periodic:
    """Start the periodic tasks in the background; return the object that ends them.

    `tell` stores this tuner's report, `refresh` reads published series again, and `divide_watts` sends
    the caps of budgets.
    """
    maintenance.loop.pause_unsupported()
    lead = Lead(maintenance.loop)
    lead.taken()
    return Periodic(
        [
            (lead.alone(maintenance.reap), 10.0),
            (lead.alone(maintenance.watch_drift), 60.0),
            (maintenance.keep_seen, KEEP_S),
            (lead.alone(maintenance.watch_silence), 10.0),
            (lead.alone(maintenance.prune), 3600.0),
            (maintenance.watch_clock, 1.0),
            (tell, TELL_S),
            (refresh, 10.0),
            (lead.alone(divide_watts), 1.0),
            (process_memory.trim, 60.0),
        ]
    )
