"""What the tuner does by the clock: reap what was abandoned, watch for drift, keep the log short."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial, wraps

from tuner import malloc
from tuner.core import (
    ANYWHERE,
    Context,
    Estimate,
    Event,
    Events,
    MetricSample,
    Observations,
    Past,
    Phase,
    Plan,
    Row,
    Setting,
    Study,
    TuningError,
    baseline_context,
    comparable,
    is_at,
    render_setting,
    setting_key,
)
from tuner.moments import day
from tuner.service.budgets.times import AWAY_S
from tuner.service.clock.replicas import FORGOTTEN, TELL_S
from tuner.study.confirm import confirmation_load, duel
from tuner.study.drift import drift
from tuner.study.loop import Loop
from tuner.study.presence import KEEP_S

log = logging.getLogger(__name__)

SILENT = "no contact with the device; check that its agent and its host are up"
NOTED_AT_ONCE = 500
"""How many devices that fell silent are noted in one transaction, in which no other event can be."""
LOOKED_AT = 10_000
"""The given number of the latest events are read at the start for devices that were away."""
AUDIT_DAYS = 400
"""The audit log is kept for a year at least."""
PRUNED_AT_ONCE = timedelta(days=1)
"""So much of what is kept is deleted in an hour at most."""
MOST_WINDOWS = 500
"""The given number of a hold's latest windows are looked at."""
STEP_S = 1.0
"""A wall clock that moves so much against the monotonic one was set."""
LONGEST_TURN_S = 0.01
"""A turn of work that is done in turns ends after this, with the piece it is at."""


@dataclass(frozen=True, slots=True)
class HeldRow:
    """What a row of a plan should show while it is held: at the load `at`, or at that of the baseline."""

    setting: Setting
    expected: Estimate
    at: Context
    present: Context

    def drift(self, metric: str, samples: Sequence[MetricSample]) -> str | None:
        """Return how its windows of the same load have drifted, None where they have not."""
        own = [w for w in samples if w.setting == setting_key(self.setting)]
        like = [w for w in own if self._is_like(w.context)]
        why = drift(metric, self.expected, like) if own else None
        return None if why is None else f"{why} while {render_setting(self.setting)} was held"

    def _is_like(self, load: Context) -> bool:
        return is_at(load, self.at) if self.at else comparable(load, self.present)


@dataclass(frozen=True)
class Maintenance:
    """The periodic work, each piece callable on its own."""

    loop: Loop
    keep_days: int
    _expected: dict[str, tuple[tuple[int, int], tuple[HeldRow, ...]]] = field(
        default_factory=dict, repr=False
    )
    """What the rows of each held plan should show, by its revision and number of trials."""

    def reap(self) -> None:
        """End trials whose agents never came back."""
        ended = self.loop.trial_reports.reap()
        if ended:
            log.info("event=reaped trials=%d abandoned", ended)

    def watch_drift(self) -> Iterator[None]:
        """Send a held study back to its baseline when its windows have drifted from what they were.

        Yield after each study: there may be thousands, and requests wait meanwhile.
        """
        rows = self.loop.changes.rows("the watch for drift")
        for name in self.loop.store.studies.ids(phase=Phase.HOLDING.value):
            yield
            rows.each(name, partial(self._watch_drift, name), lambda _: None)

    def _watch_drift(self, name: str) -> None:
        study = self.loop.store.studies.get(name)
        why = self._drift(study)
        if why is None:
            return
        with self.loop.changes.lock(study.id):  # judged without it: its agents need not wait
            if self.loop.store.studies.get(study.id).revision == study.revision:
                self.loop.changes.note("drift", why, study.id)
                self.loop.changes.start_over(study, why)

    def watch_clock(self) -> None:
        """Note where the wall clock was set: nothing that lasts is counted by it."""
        step_s = self.loop.steady.stepped_s()
        if abs(step_s) >= STEP_S:
            way = "forward" if step_s > 0.0 else "back"
            text = (
                f"the clock was set {way} by {abs(step_s):.0f} s; caps, leases and silences go on"
            )
            self.loop.changes.note("clock", text)

    def keep_seen(self) -> None:
        """Store when devices were last heard of."""
        self.loop.presence.keep()

    def watch_silence(self) -> None:
        """Note devices that fell silent, and those that are heard of again."""
        turned, now = self.loop.presence.turned(self.loop.store.studies.windows_s), self.loop.now()
        events = [_turn(device, now, online=online) for device, online in turned]
        for first in range(0, len(events), NOTED_AT_ONCE):
            self.loop.changes.note_all(events[first : first + NOTED_AT_ONCE])

    def prune(self) -> None:
        """Delete observations and events that are older than `keep_days`; say how many.

        The oldest day of each at most: a clock that runs far ahead for an hour must not take all. Events
        not yet delivered to a destination stay.
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
        """Return how a held study has drifted, None where it has not or where that is unknown.

        The held windows of several devices are each one device's and are not compared with a target's
        sum.
        """
        if study.phase is not Phase.HOLDING or study.plan is None or len(study.devices) > 1:
            return None
        metric, since = study.objective.metric, self.loop.store.studies.latest(study.id).at
        samples = self.loop.store.observations.samples(study.id, metric, since, MOST_WINDOWS)
        if not samples:
            return None
        drifts = (row.drift(metric, samples) for row in self._rows(study, study.plan))
        return next((why for why in drifts if why is not None), None)

    def _rows(self, study: Study, plan: Plan) -> tuple[HeldRow, ...]:
        """Return what the rows of a held plan should show, worked out again once that may have changed."""
        trials = self.loop.store.trials
        key = (study.revision, trials.count(study.id))
        cached = self._expected.get(study.id)
        if cached is None or cached[0] != key:
            past = Past(study=study, trials=tuple(trials.list(study.id)))
            rows = (_held_row(past, plan, row) for row in plan.rows)
            cached = key, tuple(row for row in rows if row is not None)
            self._expected[study.id] = cached
        return cached[1]


def _turn(device: str, at: datetime, *, online: bool) -> Event:
    kind, text = ("online", "contact with the device is back") if online else ("offline", SILENT)
    return Event(at=at, kind=kind, text=text, device=device)


def _shorten(records: Observations | Events, before: datetime) -> int:
    oldest = records.oldest()
    return 0 if oldest is None else records.prune(min(before, oldest + PRUNED_AT_ONCE))


def _held_row(past: Past, plan: Plan, row: Row) -> HeldRow | None:
    """Return what a row should show: what it did while confirming. None where that is not known.

    The baseline what it ever did; the tuning windows of any other setting were selected for looking good.
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
    """Wait for the devices there were; which of them were away the log says."""
    events = loop.store.events.list(last=LOOKED_AT)
    latest = {e.device: e.kind for e in events if e.kind in ("offline", "online")}
    devices = [device.id for device in loop.store.devices.list()]
    loop.presence.expect(devices, (d for d in devices if latest.get(d) == "offline"))


def in_turns(
    work: Callable[[], Iterator[None]],
    every_s: float,
    monotonic: Callable[[], float] = time.monotonic,
) -> Callable[[], None]:
    """Return a task that, asked again and again, does the work once in a while, a short turn each time."""
    left: Iterator[None] | None = None
    due = monotonic() + every_s

    @wraps(work)
    def turn() -> None:
        nonlocal left, due
        began = monotonic()
        if left is None:
            if began < due:
                return
            left, due = work(), began + every_s
        for _ in left:
            if monotonic() - began > LONGEST_TURN_S:
                return
        left = None

    return turn


class Lead:
    """Runs what one tuner of a database does for all, while that is this one."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._led_s = -math.inf

    def taken(self) -> bool:
        """Return whether this tuner leads; a new leader, or one that was suspended, expects all devices."""
        with self._lock:
            leads, now_s = self._loop.store.bus.leads(), self._loop.monotonic()
            if leads and now_s - self._led_s > AWAY_S:
                expect(self._loop)
                log.info("event=leads this replica is now the leader")
            self._led_s = now_s if leads else -math.inf
            return leads

    def alone(self, task: Callable[[], None]) -> Callable[[], None]:
        """Return the task so that it is done by who leads only."""

        @wraps(task)
        def run() -> None:
            if self.taken():
                task()

        return run


class Periodic:
    """Does each piece of work again and again, in a thread of its own, by the monotonic clock.

    What takes longer than its interval is begun again at once, and never runs twice at a time.
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
        due_s = time.monotonic() + every_s
        while not self._over.wait(max(0.0, due_s - time.monotonic())):
            due_s = max(due_s, time.monotonic()) + every_s
            try:
                task()
            except TuningError as error:
                log.warning("event=task_failed task=%s: %s", task.__name__, error)
            except Exception:  # it is tried again, and the others go on
                log.exception("event=task_failed task=%s", task.__name__)

    def shutdown(self, *, wait: bool) -> None:
        """Begin no more work; with `wait` return once none is at it."""
        self._over.set()
        for thread in self._threads if wait else ():
            thread.join()


def start(
    maintenance: Maintenance,
    tell: Callable[[], None],
    refresh: Callable[[], None],
    divide_watts: Callable[[], None],
) -> Periodic:
    """Start the maintenance in the background and return what ends it.

    `tell` is how this tuner lets the others know of itself, `refresh` reads again what others publish, and
    `divide_watts` sends the caps of budgets.
    """
    maintenance.loop.pause_unsupported()
    lead = Lead(maintenance.loop)
    lead.taken()
    return Periodic(
        [
            (lead.alone(maintenance.reap), 10.0),
            (lead.alone(in_turns(maintenance.watch_drift, 60.0)), 1.0),
            (maintenance.keep_seen, KEEP_S),
            (lead.alone(maintenance.watch_silence), 10.0),
            (lead.alone(maintenance.prune), 3600.0),
            (maintenance.watch_clock, 1.0),
            (tell, TELL_S),
            (refresh, 10.0),
            (lead.alone(divide_watts), 1.0),
            (malloc.trim, 60.0),
        ]
    )
