"""The loop of one study: past → step → order to the device → report → evidence.

All state is in the store, so a restarted tuner continues from there. One lock per study keeps two
callers of this process from computing the same step. Of several processes one takes it: the store
accepts a step only if the study is unchanged since it was read; the others read it again.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import db
from tuner.core import (
    HELD,
    Conflict,
    Device,
    IllegalTransition,
    InvalidInput,
    Lease,
    Mode,
    NotFound,
    Notice,
    Now,
    Outcome,
    Past,
    Phase,
    Policy,
    Situation,
    StaleRevision,
    Study,
    Topic,
    Trial,
    TrialState,
    TuningError,
    Unreadable,
)
from tuner.study import apart, assignments, control, follow, lifecycle, like_holds, moves
from tuner.study.answers import Answered, Derived, News, poll_key
from tuner.study.changes import Changes, Telemetry
from tuner.study.control import LastControl
from tuner.study.exploring import over_budget, waits_to_explore
from tuner.study.hold_reports import HoldReports
from tuner.study.presence import Presence
from tuner.study.registry import Registry
from tuner.study.trial_reports import Silence, TrialReports
from tuner.wire import Assignment, HoldOrder, Idle, Poll, Registered, Release, Renewal

log = logging.getLogger(__name__)

MOST_ATTEMPTS = 3
MOST_MOVES = 6
MOST_TRUSTED_S = 300.0
"""Seconds after which an answer is computed again, with or without news."""
Orders = Assignment | HoldOrder | Idle | Release


def boot_s() -> float:
    """Return the seconds since this machine started, also those in which it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """Seconds since 1970 by the wall clock of this start, counted on the monotonic clock since then."""

    def __init__(self, now: Now, monotonic: Callable[[], float]) -> None:
        self._now, self._monotonic = now, monotonic
        self._began_s = now().timestamp() - monotonic()
        self._lead_s = 0.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self._began_s + self._monotonic()

    def lead_s(self) -> float:
        """Return the seconds by which the wall clock is ahead; work due at an hour is due by that clock."""
        return self._now().timestamp() - self()

    def stepped_s(self) -> float:
        """Return the seconds by which the wall clock was set since the last call."""
        before, self._lead_s = self._lead_s, self.lead_s()
        return self._lead_s - before


@dataclass
class Loop:
    """Advance studies whenever an agent polls.

    `policies` finds a policy by name. `hours` returns whether tuning is allowed at a time (holding
    always is). `now` is for display: the duration of a lease is counted on `monotonic`, in seconds.
    `decides` finds the object that decides instead of a policy, and reports how long that took; by
    default each policy decides itself, at once.

    Raises the store's errors; a refused message changes nothing.
    """

    store: db.Store
    policies: Callable[[str], Policy]
    now: Now
    lease_s: float = 30.0
    abandon_s: float = 900.0
    hours: Callable[[datetime], bool] = lambda _: True
    monotonic: Callable[[], float] = boot_s
    telemetry: Telemetry = field(default_factory=Telemetry)
    decides: Callable[[str], Policy] | None = None
    changes: Changes = field(init=False)
    trial_reports: TrialReports = field(init=False)
    hold_reports: HoldReports = field(init=False)
    presence: Presence = field(init=False)
    news: News = field(default_factory=News)
    steady: SteadyClock = field(init=False)
    _silence: Silence = field(init=False)
    _registry: Registry = field(init=False)
    _answered: dict[str, Answered] = field(default_factory=dict)
    _hold_orders: Derived[HoldOrder] = field(default_factory=Derived)
    _last_controls: Derived[LastControl] = field(default_factory=Derived)
    _growth: follow.Growth = field(default_factory=follow.Growth)

    def __post_init__(self) -> None:
        store, now, telemetry = self.store, self.now, self.telemetry
        self.steady = SteadyClock(now, self.monotonic)
        self._silence = Silence(self.monotonic, self.lease_s, self.abandon_s)
        self.presence = Presence(
            store.devices, now, self.monotonic, self.lease_s, store.stops.released
        )
        self.changes = Changes(store, now, telemetry)
        self.trial_reports = TrialReports(
            store, now, self.changes, telemetry, self._silence, self.abandon_s
        )
        self.hold_reports = HoldReports(store, now, self.changes, telemetry, self._hold_orders)
        self._registry = Registry(store, now, self.changes, telemetry, self.presence)
        store.bus.subscribe(self._on_notice)

    def register(self, device: Device) -> Registered:
        """Store a device's description from its agent; a new driver or workload restarts its study."""
        self._registry.register(device)
        self._answered.pop(device.id, None)
        self.presence.note_contact(device.id)
        return Registered(lease_s=self.lease_s)

    def _on_notice(self, notice: Notice) -> None:
        """Wake the polls of a device that may have new assignments, and drop its cached data."""
        if notice.topic is Topic.DEVICES:
            self.presence.stored_elsewhere(notice.devices)
            self._registry.forget(notice.devices)
            for device in notice.devices or tuple(self._answered):
                self._answered.pop(device, None)
        if notice.topic is not Topic.ORDERS:
            return
        if notice.devices:
            self.news.tell(notice.devices)
        elif not notice.study:
            self.news.tell_all()
        else:
            with suppress(NotFound, Unreadable):
                self.news.tell(self.store.studies.get(notice.study).devices)

    def order(self, device: str, poll: Poll) -> Orders:
        """Return a device's present orders; the same trial again after a crash.

        Raises:
            Conflict: a second agent serves the device, and this one is the first of the two.
        """
        news = self.presence.meet(device, poll)
        mark, key = self.news.mark(device), poll_key(poll)
        last = self._answered.get(device)
        if last is not None and last.holds_for(mark, key, self.monotonic()):
            return last.answer
        answer = self._order(device, poll, news)
        self.presence.note_hold(device, answer.window_s if isinstance(answer, HoldOrder) else 0.0)
        self._answered.pop(device, None)
        if isinstance(answer, HoldOrder | Release):
            until = self.monotonic() + self._trusted_s(answer)
            self._answered[device] = Answered(mark, key, until, answer)
        return answer

    def _trusted_s(self, answer: HoldOrder | Release) -> float:
        """Return how long an answer is valid without news: a control window is due by the clock."""
        if isinstance(answer, Release):
            return MOST_TRUSTED_S
        if answer.follows:  # another load may arrive at any time
            return 0.0
        last = self._last_controls.latest(answer.study)
        return MOST_TRUSTED_S if last is None else min(MOST_TRUSTED_S, last.due_in_s(self.now()))

    def _order(self, device: str, poll: Poll, news: str) -> Orders:
        """Return the device's assignment, from the stored situation and its poll."""
        situation = self.store.studies.situation(device)
        if news:
            self.changes.note("unable" if poll.unable else "able", news, device=device)
        self._registry.note_applied(replace(poll.applied, device=device), situation.applied, news)
        study = situation.study
        if study is None:
            stopped = self._stopped(situation, device, poll)
            return stopped or Release(
                why=situation.unreadable or "no active study uses this device"
            )
        if not (situation.stopped or situation.running):  # most devices hold: no poll waits for it
            standing = self._standing(study, situation, device, poll)
            if standing is not None:
                return standing
        with self.changes.lock(study.id):
            for _ in range(MOST_MOVES):
                with suppress(StaleRevision):  # another tuner took the step
                    answer = self._look(study.id, device, poll)
                    if answer is not None:
                        return answer
        return Idle(why=f"study {study.id} changed {MOST_MOVES} times in a row")

    def _look(self, name: str, device: str, poll: Poll) -> Orders | None:
        """Take a study's next step; None if the study moved and must be read again."""
        situation = self.store.studies.situation(device)
        study = situation.study
        if study is None or study.id != name:
            return Idle(why=f"study {name} no longer uses this device")
        if (stopped := self._stopped(situation, device, poll)) is not None:
            self.changes.abort(study, stopped.why)
            return stopped
        if self._pauses_unsupported(study):
            return None
        running = self.store.trials.running(name) if situation.running else ()
        own = next((t for t in running if device in t.on(study.devices)), None)
        if own is not None:
            return self._running(study, own, device, poll)
        if running and study.phase is not Phase.TUNING:
            return Idle(why=_waits_for(running))
        return self._advance(study, situation, device, poll, running)

    def pause_unsupported(self) -> None:
        """Pause, at the start, every study whose plan an earlier release followed and this one cannot."""
        for study in self.store.studies.list():
            with self.changes.lock(study.id), suppress(StaleRevision):  # another tuner did so
                self._pauses_unsupported(study)

    def _pauses_unsupported(self, study: Study) -> bool:
        why = follow.unsupported(study) if study.active else ""
        if why:
            self.changes.abort(study, why)
            self.changes.move(study, Phase.PAUSED, why)
        return bool(why)

    def _stopped(self, situation: Situation, device: str, poll: Poll) -> Release | None:
        """Return the release that an emergency stop demands, or None without a stop."""
        return assignments.stopped(self.store.stops, device, poll) if situation.stopped else None

    def renew(self, renewal: Renewal) -> Registered:
        """Extend a lease. Raises NotFound or Conflict: the agent must stop."""
        stop = self.store.stops.current(renewal.device)
        if stop is not None:
            raise Conflict(f"device {renewal.device} is stopped ({stop})", hint="restore it")
        lease = self.store.leases.renew(
            renewal.device, renewal.token, renewal.nonce, self._lease_end()
        )
        self._silence.in_time(lease)
        self.presence.note_contact(renewal.device)
        return Registered(lease_s=self.lease_s)

    def _running(self, study: Study, trial: Trial, device: str, poll: Poll) -> Orders | None:
        """Return the running trial to a polling device, or the reason why it waits."""
        if self.changes.close(study, trial):
            return None
        reports = self.store.trials.reports(study.id, trial.number)
        if any(r.device == device and not r.late for r in reports):
            return Idle(why=f"trial {trial.number} waits for the study's other devices")
        if poll.unable:
            self.changes.cancel(study, trial, poll.unable)
            return None
        agent = poll.agent
        lease = self.store.leases.get(device)
        mine = lease is not None and (lease.study, lease.trial) == (study.id, trial.number)
        if lease is not None and mine:
            in_time = self._silence.in_time(lease)
            if in_time and lease.held_by(agent):  # the answer got lost on its way
                return self._assigned(study, trial, lease, self.changes.trials(study.id))
            if in_time and not lease.succeeded_by(agent):
                return Idle(why=f"agent {lease.agent} is working on trial {trial.number}")
            if trial.attempt >= MOST_ATTEMPTS * len(trial.on(study.devices)):
                why = f"{trial.attempt} attempts ended without a report"
                self.changes.end(trial, study, Outcome(state=TrialState.FAILED, reason=why))
                self.store.leases.release(device, lease.token)
                return None
            try:
                trial = self.store.trials.restart(study.id, trial.number, self.now())
            except IllegalTransition:  # another tuner has ended it
                return None
            text = f"trial {trial.number} again, attempt {trial.attempt}"
            self.changes.note("attempt", text, study.id, device)
        return self._granted(study, trial, device, agent, self.changes.trials(study.id))

    def _standing(
        self, study: Study, situation: Situation, device: str, poll: Poll
    ) -> HoldOrder | Release | Idle | None:
        """Return the assignment of a device whose study takes no step now; None if it must take one."""
        if follow.unsupported(study):
            return None
        if study.phase is Phase.CANARY and device != study.terms.canary:
            return Release(why=f"its plan is tried on the canary {study.terms.canary} first")
        if study.phase in HELD and (plan := study.plan) is not None:
            if poll.unable:
                return Idle(why=poll.unable)
            trials = functools.cache(lambda: self.store.trials.list(study.id))
            if self._control_due(study, situation, trials, poll):
                return None
            if self._grows(study, situation.since, poll):
                return None
            devices = 0 if study.phase is Phase.CANARY else self.presence.contacted
            try:
                order = self._hold_orders.get(
                    study, situation.trials, lambda: assignments.hold(study, trials(), plan)
                )
            except InvalidInput as error:  # no agent could read it
                why = f"its plan cannot be held: {error}"
                with self.changes.lock(study.id), suppress(StaleRevision):
                    self.changes.move(study, Phase.PAUSED, why)
                return Idle(why=why)
            return order.model_copy(update={"report_s": assignments.report_every_s(devices)})
        if study.phase is Phase.PAUSED:
            return Release(why=f"study {study.id} is paused")
        if study.phase is Phase.PROPOSED:
            return Release(why=f"study {study.id} awaits approval")
        return None

    def _advance(
        self, study: Study, situation: Situation, device: str, poll: Poll, running: Sequence[Trial]
    ) -> Orders | None:
        """Take the study's next step; None if the study moved and must be read again.

        `running` are trials that other devices run alone. Every step waits for them, except another
        trial of one device.
        """
        standing = self._standing(study, situation, device, poll)
        if standing is not None:
            return standing
        if study.phase in HELD and study.plan is not None:
            if why := self._grows(study, situation.since, poll):
                self.changes.move(study, Phase.CONFIRMING, why, study.plan)
                return None
            window = control.control(study, study.plan, poll.applied.setting)
            trials = self.store.trials.list(study.id)
            return self._begun(study, situation.trials, window, device, poll, trials)
        if poll.holding and assignments.outgrown(
            study, self.changes.trials(study.id), poll.applied.setting
        ):
            return Release(why="the held setting breaks a limit now, and the baseline does not")
        if not self.hours(self.now()):
            return Idle(why="tuning is not allowed at this hour")
        if why := self._waits(study):
            return Idle(why=why)
        trials = self.changes.trials(study.id)
        if why := over_budget(study, trials, self.now()):
            return Idle(why=why)
        alone = device if self._may_explore(study, trials, device) else ""
        if running and not alone:
            return Idle(why=_waits_for(running))
        step = self._step(study, trials, poll, alone)
        if isinstance(step, moves.Rest):
            return Idle(why=step.why)
        if isinstance(step, moves.Move):
            if running:
                return Idle(why=_waits_for(running))
            return self._move(study, step, trials)
        return self._begun(study, situation.trials, step, device, poll, trials, alone)

    def _waits(self, study: Study) -> str:
        """Return why a study starts no trial now; empty if it may."""
        return waits_to_explore(study.exploration, self.now()) or self.presence.unable(
            study.devices
        )

    def _move(self, study: Study, step: moves.Move, trials: Sequence[Trial]) -> Idle | None:
        """Move a study to another phase; as it begins to tune it chooses its first candidate."""
        begins = (study.phase, step.phase) == (Phase.BASELINE, Phase.TUNING)
        if begins and study.terms.mode is Mode.SEARCH:
            study = replace(study, transfer=like_holds.transfer(self.store, study, trials))
        self.changes.move(study, step.phase, step.why, step.plan)
        return None

    def _may_explore(self, study: Study, trials: Sequence[Trial], device: str) -> bool:
        """Return whether a device may try the study's next setting alone."""
        if len(study.devices) < 2:
            return False
        devices = [self.store.devices.get(name) for name in study.devices]
        try:
            policy = self.policies(study.policy)
        except TuningError:  # the step reports the reason
            return False
        return apart.may_explore(study, devices, policy) and apart.is_scalable(
            study, self.changes.shares(study, trials, device)
        )

    def _begun(
        self,
        study: Study,
        count: int,
        step: moves.Assign,
        device: str,
        poll: Poll,
        trials: Sequence[Trial],
        alone: str = "",
    ) -> Assignment | None:
        """Begin a trial and assign it to the polling device. Raises StaleRevision."""
        version = study.revision, count
        trial = self.store.trials.begin(
            *(study.id, step.setting, study.phase, step.why, self.now(), step.context),
            *(version, alone, step.plan),
        )
        self.changes.publish(study)
        return self._granted(study, trial, device, poll.agent, trials)

    def _control_due(
        self, study: Study, situation: Situation, trials: Callable[[], Sequence[Trial]], poll: Poll
    ) -> bool:
        """Return whether a control window is due for a hold in force."""
        if (poll.holding, poll.revision) != (study.id, study.revision) or situation.since is None:
            return False
        now, plan, since = self.now(), study.plan, situation.since
        if study.terms.control_share <= 0.0 or plan is None:
            return False

        def last_control() -> LastControl:
            held_s = assignments.held_window_s(study, trials(), plan)
            terms = replace(study.terms, window_s=held_s)
            return LastControl(terms, control.last_control(study, trials(), since))

        last = self._last_controls.get(study, situation.trials, last_control)
        return last.is_due(now) and self.hours(now) and not self._waits(study)

    def _grows(self, study: Study, since: datetime | None, poll: Poll) -> str:
        """Return why the held setting must be confirmed at a higher load; empty if it need not be."""
        in_force = (poll.holding, poll.revision) == (study.id, study.revision)
        now = self.now()
        held = timedelta() if since is None else now - since
        why = self._growth.why(study, poll.context, self.monotonic(), held)
        if not why or not in_force or not self.hours(now):
            return ""
        if self._waits(study):  # a study that waits in TUNING loses its hold
            return ""
        tuning = replace(study, phase=Phase.TUNING)
        spent = over_budget(tuning, self.changes.trials(study.id), now)
        return "" if spent else why

    def _step(self, study: Study, trials: Sequence[Trial], poll: Poll, alone: str) -> moves.Step:
        """Return the next step; if the policy fails, pause its study with the reason."""
        past = Past(study=study, trials=tuple(trials), context=poll.context)
        began = self.monotonic()
        try:
            policy = (self.decides or self.policies)(study.policy)
            says = self.policies(study.policy) if study.terms.mode is Mode.CONTINUOUS else None
            step = lifecycle.next_step(past, policy, alone, says)
            if study.phase is Phase.TUNING and self.decides is None:
                self.telemetry.suggested(study.policy, self.monotonic() - began)
            return step
        except Exception as error:  # a plug-in's exception must not stop the tuner
            log.exception("event=policy_failed policy=%s study=%s", study.policy, study.id)
            why = str(error)
            if not isinstance(error, TuningError):
                why = f"{type(error).__name__}: {why}; see the tuner's log"
            return moves.Move(Phase.PAUSED, f"policy {study.policy} failed: {why}")

    def _granted(
        self, study: Study, trial: Trial, device: str, agent: str, trials: Sequence[Trial]
    ) -> Assignment | None:
        """Assign a trial to a device; `trials` include those measured before it."""
        lease = self.store.leases.grant(device, study.id, trial, agent, self._lease_end())
        self._silence.in_time(lease)
        return self._assigned(study, trial, lease, trials)

    def _assigned(
        self, study: Study, trial: Trial, lease: Lease, trials: Sequence[Trial]
    ) -> Assignment | None:
        """Return the assignment of a leased trial; None if no agent could read it: the trial has failed."""
        shares = self.changes.shares(study, trials, trial.device)
        try:
            return assignments.assignment(study, trials, trial, lease, self.lease_s, shares)
        except InvalidInput as error:
            why = f"it cannot be assigned: {error}"
            self.changes.cancel(study, trial, why, TrialState.FAILED)
            return None

    def _lease_end(self) -> datetime:
        return self.now() + timedelta(seconds=self.lease_s)


def _waits_for(running: Sequence[Trial]) -> str:
    """Return the reason why a device without its own trial waits."""
    return "waits for " + ", ".join(f"trial {t.number} on {t.device}" for t in running)
