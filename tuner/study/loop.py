"""One study at work: past → step → order to the device → report → evidence.

All state is in the store, so a tuner that dies goes on where it was. One lock per study keeps two
callers of this process from working out the same step; of several processes one takes it, as the store
takes a step only for the study as it was seen, and the others look again.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from tuner.core import (
    ENERGY,
    HELD,
    Applied,
    Conflict,
    Device,
    Event,
    HeldRange,
    IllegalTransition,
    InvalidInput,
    Lease,
    Mode,
    NotFound,
    Notice,
    Now,
    Observation,
    Outcome,
    Past,
    Phase,
    Plan,
    Policy,
    Report,
    Situation,
    StaleRevision,
    StaleToken,
    Store,
    Study,
    Topic,
    Trial,
    TrialCare,
    TrialState,
    TuningError,
    Unreadable,
    called,
    implausible,
    merged,
    refuse_negative,
    setting_key,
)
from tuner.study import advice, apart, assignments, canary, control, lifecycle, moves
from tuner.study.ended import EndedTrials
from tuner.study.news import News
from tuner.study.presence import Presence
from tuner.study.silence import Silence
from tuner.study.stale import looking_again
from tuner.study.telemetry import Telemetry
from tuner.wire import (
    Assignment,
    HoldOrder,
    HoldReport,
    Idle,
    Poll,
    Receipt,
    Registered,
    Release,
    Renewal,
    StepReport,
    TrialReport,
)

log = logging.getLogger(__name__)

TUNER = "tuner"
"""Who made a revision that no operator asked for."""
MOST_ATTEMPTS = 3
MOST_MOVES = 6
MOST_ABANDONED = 3
MOST_TRUSTED_S = 300.0
"""After so long an answer is looked up again, whether or not there was news."""
MOST_LATE = 8
"""So many late reports of a trial are kept from each device."""
MOST_CANARY_WINDOWS = 200
"""So many of a canary's latest windows are looked at."""

Orders = Assignment | HoldOrder | Idle | Release


Asked = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """What a device was told last, where nothing but news or another question changes that."""

    mark: int
    asked: Asked
    until: float
    answer: HoldOrder | Release

    def holds_for(self, mark: int, asked: Asked, now: float) -> bool:
        """Return whether the answer is still the same, without a look at the store."""
        return (self.mark, self.asked) == (mark, asked) and now < self.until


@dataclass
class Loop:
    """Carries studies on whenever an agent asks.

    `policies` finds a policy by name, `hours` says whether tuning is allowed at a time (holding
    always is). `now` is for display: how long a lease lasts is counted on `monotonic`, in seconds.
    `decides` finds who decides in a policy's place, and tells how long that took; by default each
    policy itself does, at once.
    Raises the store's errors; a refused message changes nothing.
    """

    store: Store
    policies: Callable[[str], Policy]
    now: Now
    lease_s: float = 30.0
    abandon_s: float = 900.0
    hours: Callable[[datetime], bool] = lambda _: True
    monotonic: Callable[[], float] = time.monotonic
    telemetry: Telemetry = field(default_factory=Telemetry)
    decides: Callable[[str], Policy] | None = None
    _silence: Silence = field(init=False)
    _locks: defaultdict[str, threading.RLock] = field(
        default_factory=lambda: defaultdict(threading.RLock)
    )

    _ended: EndedTrials = field(init=False)
    _holds: assignments.Holds = field(default_factory=assignments.Holds)
    _controls: control.ControlClock = field(default_factory=control.ControlClock)
    presence: Presence = field(init=False)
    news: News = field(default_factory=News)
    _applied: dict[str, tuple[object, ...]] = field(default_factory=dict)
    _answered: dict[str, Answered] = field(default_factory=dict)
    _doubted: set[tuple[str, str]] = field(default_factory=set)
    _held_until: dict[tuple[str, str], datetime] = field(default_factory=dict)
    _ranges: dict[str, tuple[int, HeldRange | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ended = EndedTrials(self.store.trials)
        self._silence = Silence(self.monotonic, self.lease_s, self.abandon_s)
        self.presence = Presence(self.store.devices, self.now, self.monotonic, self.lease_s)
        self.store.bus.subscribe(self._heard)

    def lock(self, study: str) -> threading.RLock:
        """Return the lock that whoever changes a study holds meanwhile."""
        return self._locks[study]

    def register(self, device: Device) -> Registered:
        """Store a device as its agent describes it; a new driver or workload restarts its study."""
        device = replace(device, seen_at=self.now())
        try:
            former = self.store.devices.get(device.id)
        except NotFound:
            self.note("registered", f"{device.board} with {device.workload}", device=device.id)
        else:
            known = former.driver, former.workload_version
            if known != (device.driver, device.workload_version):
                self._restart_evidence(device)  # before `put`: a crash between finds it again
        self.store.devices.put(device)
        self._narrow(device)
        self._applied.pop(device.id, None)
        self._answered.pop(device.id, None)
        self.presence.note_contact(device.id)
        return Registered(lease_s=self.lease_s)

    def _heard(self, notice: Notice) -> None:
        """Wake who waits for a device that may have other orders; forget what others have stored anew."""
        if notice.topic is Topic.DEVICES:
            self.presence.told_elsewhere(notice.devices)
            for device in notice.devices or tuple(self._applied):
                self._applied.pop(device, None)
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

    def publish(self, study: Study) -> None:
        """Tell everybody that a study's devices may have other orders."""
        self.store.bus.publish(Notice(Topic.ORDERS, study.id, study.devices))

    def order(self, device: str, poll: Poll) -> Orders:
        """Return what a device is to do now. Asking again after a crash gives the same trial.

        Raises:
            Conflict: a second agent serves the device, and this one is the first of the two.
        """
        news = self.presence.meet(device, poll)
        mark, asked = self.news.mark(device), _asked(poll)
        known = self._answered.get(device)
        if known is not None and known.holds_for(mark, asked, self.monotonic()):
            return known.answer
        answer = self._order(device, poll, news)
        self._answered.pop(device, None)
        if isinstance(answer, HoldOrder | Release):
            until = self.monotonic() + self._trusted_s(answer)
            self._answered[device] = Answered(mark, asked, until, answer)
        return answer

    def _trusted_s(self, answer: HoldOrder | Release) -> float:
        """Return how long an answer stays the same without news: a control window comes by the clock."""
        if isinstance(answer, Release):
            return MOST_TRUSTED_S
        return min(MOST_TRUSTED_S, self._controls.due_in_s(answer.study, self.now()))

    def _order(self, device: str, poll: Poll, news: str) -> Orders:
        seen = self.store.studies.situation(device)
        if news:
            self.note("unable" if poll.unable else "able", news, device=device)
        self._note_applied(replace(poll.applied, device=device), seen.applied, news)
        study = seen.study
        if study is None:
            stopped = self._stopped(seen, device, poll)
            return stopped or Release(why=seen.unreadable or "no active study has this device")
        if not (seen.stopped or seen.running):  # most devices hold: nobody need wait for that
            standing = self._standing(study, seen, device, poll)
            if standing is not None:
                return standing
        with self.lock(study.id):
            for _ in range(MOST_MOVES):
                with suppress(StaleRevision):  # another tuner took the step
                    answer = self._look(study.id, device, poll)
                    if answer is not None:
                        return answer
        return Idle(why=f"study {study.id} changed {MOST_MOVES} times in a row")

    def _look(self, name: str, device: str, poll: Poll) -> Orders | None:
        """Take a study's next step; None where it moved and must be looked at again."""
        seen = self.store.studies.situation(device)
        study = seen.study
        if study is None or study.id != name:
            return Idle(why=f"study {name} does not have this device any more")
        if (stopped := self._stopped(seen, device, poll)) is not None:
            self.abort(study, stopped.why)
            return stopped
        running = self.store.trials.running(name) if seen.running else ()
        own = next((t for t in running if device in t.on(study.devices)), None)
        if own is not None:
            return self._running(study, own, device, poll)
        if running and study.phase is not Phase.TUNING:
            return Idle(why=_waits_for(running))
        return self._advance(study, seen, device, poll, running)

    def _stopped(self, seen: Situation, device: str, poll: Poll) -> Release | None:
        return assignments.stopped(self.store.stops, device, poll) if seen.stopped else None

    def _note_applied(self, applied: Applied, stored: Applied | None, news: str) -> None:
        """Store what a device is set to, where that is not what it was when last heard of.

        Other tuners hear of that, and of `news` of whether it takes orders: what they know is old.
        """
        state = (setting_key(applied.setting), applied.level, applied.study, applied.revision)
        if self._applied.get(applied.device) != state:
            if stored is None or replace(stored, at=applied.at) != applied:
                self.store.devices.apply(replace(applied, at=self.now()))
            self.telemetry.applied(applied)
        if news:
            self.store.bus.publish(Notice(Topic.DEVICES, devices=(applied.device,)))
            self.presence.told_here(applied.device)
        self._applied[applied.device] = state

    def renew(self, renewal: Renewal) -> Registered:
        """Put off the end of a lease. Raises NotFound or Conflict: the agent must stop."""
        stop = self.store.stops.current()
        if stop is not None:
            raise Conflict(f"every device is stopped ({stop})", hint="put the device back")
        lease = self.store.leases.renew(
            renewal.device, renewal.token, renewal.nonce, self._lease_end()
        )
        self._silence.in_time(lease)
        self.presence.note_contact(renewal.device)
        return Registered(lease_s=self.lease_s)

    def record(self, message: TrialReport) -> Receipt:
        """Take a report: close the trial, or keep it as late evidence when its token is not in force."""
        study = self.store.studies.get(message.study)
        _require(message.device, study)
        outcome = _believed(message.outcome, study)
        with self.lock(message.study):
            trial = self._trial(message.study, message.trial)
            known = self.store.trials.reports(message.study, message.trial)
            own = [r for r in known if r.device == message.device]
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
            if outcome.measurement is not None:
                self.telemetry.measured(study, message.device, outcome.measurement)
            if late:
                text = f"trial {message.trial} attempt {message.attempt} reported late; kept"
                self.note("late report", text, message.study, message.device)
                return Receipt(result="late")
            self.store.leases.release(message.device, message.token)
            alone = (report,) if study.devices == (message.device,) else None
            closed = self._close(study, trial, alone)
            return Receipt(result="closed" if closed else "kept")

    @looking_again
    def own_step(self, message: StepReport) -> Receipt:
        """Take a step of a continuous study that its agent made by itself: a trial like any other.

        Raises:
            Conflict: the study is not continuous.
            InvalidInput: the setting is none of its space.
        """
        with self.lock(message.study):
            study = self.store.studies.get(message.study)
            _require(message.device, study)
            if study.terms.mode is not Mode.CONTINUOUS:
                raise Conflict(
                    f"study {study.id} takes no steps of an agent's own",
                    hint="only a continuous study does",
                )
            study.space.check(message.setting)
            outcome = _believed(message.outcome, study)
            why = f"decided by the agent, which did not reach the tuner; {message.key}"
            seen = study.revision, self.store.trials.count(study.id)
            known = next((t for t in self.store.trials.list(study.id) if t.why == why), None)
            if known is not None and known.state.final:
                return Receipt(result="duplicate")
            if known is None:
                self.abort(study, "its agent went on without the tuner")
                known = self.store.trials.begin(
                    study.id, message.setting, Phase.TUNING, why, self.now(), seen=seen
                )
            self._end(known, study, outcome)
            if outcome.measurement is not None:
                self.telemetry.measured(study, message.device, outcome.measurement)
            return Receipt(result="closed")

    def observe(self, message: HoldReport) -> Receipt:
        """Take a window of a hold, or its end, which sends the study back to its baseline."""
        told = self.observe_all([message])[0]
        if isinstance(told, TuningError):
            raise told
        return told

    def observe_all(self, messages: Sequence[HoldReport]) -> Sequence[Receipt | TuningError]:
        """Take what is told of holds, all windows in one transaction; what one is refused, is its answer.

        Raises:
            StoreError: the database does not answer.
        """
        asked = self.store.studies.list(among={message.study for message in messages})
        studies = {study.id: study for study in asked}
        doubts = {
            n: why
            for n, m in enumerate(messages)
            if m.study in studies and (why := _doubt(m, studies[m.study]))
        }
        told = [
            (m, o)
            for n, m in enumerate(messages)
            if n not in doubts and (o := self._observation(m)) is not None
        ]
        try:
            for message in messages:
                if message.study not in studies:
                    studies[message.study] = self.store.studies.get(message.study)
                _require(message.device, studies[message.study])
            new = self.store.observations.add_all([observation for _, observation in told])
        except (NotFound, InvalidInput, Unreadable) as error:
            if len(messages) == 1:
                return [error]
            return [answer for message in messages for answer in self.observe_all([message])]
        self._note_doubts([(messages[n], why) for n, why in doubts.items()])
        for message in (m for (m, _), kept in zip(told, new, strict=True) if kept):
            self._note_held(studies[message.study], message)
            if why := self._unbilled(studies[message.study], message):
                self._note_doubts([(message, why)])
        return [self._held(studies[message.study], message) for message in messages]

    def _unbilled(self, study: Study, message: HoldReport) -> str:
        """Return why a held window that is kept does not count for what is saved; empty where it does."""
        window, key = message.measurement, (message.study, message.device)
        energy = called(ENERGY, study.quantities)
        if window is None or energy not in window.estimates:
            return ""
        end = window.started_at + timedelta(seconds=window.seconds)
        until = self._held_until.get(key, window.started_at)
        self._held_until[key] = max(until, end)
        if window.started_at < until:
            return "held windows overlap; their time is billed once; check the agent"
        known = self._ranges.get(study.id)
        if known is None or known[0] != study.revision:
            windows = (t.measurement for t in self._ended.list(study.id))
            shown = HeldRange.of((w for w in windows if w is not None), study.quantities)
            known = self._ranges[study.id] = (study.revision, shown)
        if known[1] is None:
            return ""
        why = known[1].beyond(window.load.completed, window.seconds, window.estimates[energy].mean)
        return why and f"a held window is kept and not billed: {why}; check the agent"

    def _note_doubts(self, doubts: Sequence[tuple[HoldReport, str]]) -> None:
        """Say why held windows do not count: of each device's hold in a study once."""
        for message, why in doubts:
            if (key := (message.study, message.device)) not in self._doubted:
                self._doubted.add(key)
                self.note("implausible", why, *key)

    def _observation(self, message: HoldReport) -> Observation | None:
        if message.measurement is None:
            return None
        return Observation(
            study=message.study,
            device=message.device,
            setting=message.setting,
            measurement=message.measurement,
            at=self.now(),
        )

    def _note_held(self, study: Study, message: HoldReport) -> None:
        assert message.measurement is not None
        limits = self._holds.limits(study, message.revision, message.setting)
        self.telemetry.measured(study, message.device, message.measurement)
        self.telemetry.held(study, message.device, message.measurement, limits)

    def _held(self, study: Study, message: HoldReport) -> Receipt | TuningError:
        """Return what becomes of a hold whose window is kept."""
        if not message.ended and study.phase is not Phase.CANARY:
            return Receipt(result="kept")
        try:
            return self._moved_on(message)
        except TuningError as error:
            return error

    @looking_again
    def _moved_on(self, message: HoldReport) -> Receipt:
        """Judge a canary by its windows; send a study whose hold ended back to its baseline."""
        with self.lock(message.study):
            study = self.store.studies.get(message.study)
            old = study.phase not in HELD or study.revision != message.revision
            if not message.ended:
                if not old and study.phase is Phase.CANARY:
                    self._judge_canary(study)
                return Receipt(result="kept")
            self.note("hold ended", message.ended, study.id, message.device)
            if old or self.store.stops.current() is not None:  # who stops all ends no study
                return Receipt(result="late")
            self.start_over(study, f"the hold ended: {message.ended}")
            return Receipt(result="closed")

    def _judge_canary(self, study: Study) -> None:
        """Hold on all devices what the canary's windows confirm; start over where they contradict it."""
        trials = tuple(self.store.trials.list(study.id))
        own = canary.own_trials(
            study, trials, lambda number: self.store.trials.reports(study.id, number)
        )
        since = self.store.studies.latest(study.id).at
        seen = self.store.observations.list(study.id, MOST_CANARY_WINDOWS)
        windows = [o for o in seen if o.device == study.terms.canary and o.at > since]
        result = canary.judged(Past(study=study, trials=trials), own, windows)
        if result is None:
            return
        if result.confirmed:
            self.move(study, Phase.HOLDING, result.why, study.plan)
            return
        self.start_over(study, f"the canary contradicts its plan: {result.why}")

    def reap(self) -> int:
        """End running trials that no agent has cared for since `abandon_s`; return how many.

        A lease that merely ran out stays: until somebody newer takes the trial, its late owner may
        still report, and the same agent asking again gets the same trial. A tuner that was away itself
        (started anew, suspended, without its database) gives everybody the same time once more.
        """
        with self._silence.listening():
            at_work = self.store.trials.at_work()
            alone = {one.study for one in at_work if self._silence.abandoned(one) or one.reported}
            ended = 0
            for name in sorted(alone):
                try:
                    ended += self._reap(name)
                except Unreadable as error:  # it must not keep the others' trials running
                    log.warning("the trials of study %s stay as they are: %s", name, error)
            return ended

    def _reap(self, name: str) -> int:
        ended = 0
        with self.lock(name):
            study = self.store.studies.get(name)
            if not study.active:
                return 0
            for trial in self.store.trials.running(study.id):
                leases = [self.store.leases.get(device) for device in trial.on(study.devices)]
                care = TrialCare.of(study.id, trial, leases)
                if self._close(study, trial) or not self._silence.abandoned(care):
                    continue
                why = f"no agent worked on it for {self.abandon_s:g} s"
                self._cancel(study, trial, why)
                if not trial.control:  # nothing is amiss with what is held
                    self._despair(study, trial, why)
                ended += 1
        return ended

    def _despair(self, study: Study, trial: Trial, why: str) -> None:
        """Pause a study whose trials are abandoned one after another: a device of it is gone."""
        latest = self.store.trials.list(study.id)[-MOST_ABANDONED:]
        if len(latest) == MOST_ABANDONED and all(t.reason == why for t in latest):
            reported = {r.device for r in self.store.trials.reports(study.id, trial.number)}
            silent = ", ".join(d for d in trial.on(study.devices) if d not in reported)
            pause_reason = (
                f"{MOST_ABANDONED} trials in a row were abandoned; check the agent of {silent}"
            )
            self.abort(study, pause_reason)  # what other devices try alone
            self.move(self.store.studies.get(study.id), Phase.PAUSED, pause_reason)

    def _cancel(self, study: Study, trial: Trial, why: str) -> None:
        self._end(trial, study, Outcome(state=TrialState.ABORTED, reason=why))
        for device in trial.on(study.devices):
            lease = self.store.leases.get(device)
            if lease is not None and lease.study == study.id:
                self.store.leases.release(device, lease.token)

    def abort(self, study: Study, reason: str) -> None:
        """End the study's running trials from outside; their agents learn it at their next renewal."""
        for trial in self.store.trials.running(study.id):
            self._cancel(study, trial, reason)

    def start_over(self, study: Study, why: str) -> Study:
        """Start a study's evidence anew from its baseline; nothing is forgotten, it only stops counting."""
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

    def note_withdrawn(self, study: Study, why: str) -> None:
        """Say that what a study proposed until now, if anything, cannot be approved any more."""
        if study.proposed is not None:
            plan = advice.plan_in_words(study.proposed)
            self.note("withdrawn", f"{plan} is proposed no more: {why}", study.id)

    def revise(self, study: Study, who: str, why: str) -> Study:
        """Store a study's next revision, and tell its devices; of a new phase `why` is the reason."""
        reasoned = study if study.reason else replace(study, reason=why)
        stored = self.store.studies.revise(reasoned, who, why, self.now())
        self.publish(study)
        return stored

    def with_reason(self, study: Study) -> Study:
        """Return a study that stays in its phase, with the reason it is in that; some tell none yet."""
        return replace(study, reason=study.reason or self.store.studies.latest(study.id).why)

    def trials(self, study: str) -> Sequence[Trial]:
        """Return all trials of a study by number; what has ended is not read again."""
        return self._ended.list(study)

    def move(self, study: Study, phase: Phase, why: str, plan: Plan | None = None) -> Study:
        """Bring a study into another phase, with an event for the operator."""
        moved = self.entering(study.moved(phase, plan))
        stored = self.revise(moved, TUNER, why)
        self.note(str(phase), why, study.id)
        return stored

    def entering(self, study: Study) -> Study:
        """Return the study with its phase beginning at its next trial."""
        return replace(study, phase_since=self.store.trials.count(study.id) + 1)

    def note(self, kind: str, text: str, study: str = "", device: str = "") -> None:
        """Write an event for the operator."""
        self.note_all([Event(at=self.now(), kind=kind, text=text, study=study, device=device)])

    def note_all(self, events: Sequence[Event]) -> None:
        """Write events for the operator, all at once."""
        self.store.events.add_all(events)
        for event in events:
            self.telemetry.noted(event.kind)

    def _running(self, study: Study, trial: Trial, device: str, poll: Poll) -> Orders | None:
        """Give the running trial to a device that asks, or say what it waits for."""
        if self._close(study, trial):
            return None
        reports = self.store.trials.reports(study.id, trial.number)
        if any(r.device == device and not r.late for r in reports):
            return Idle(why=f"trial {trial.number} waits for the study's other devices")
        if poll.unable:
            self._cancel(study, trial, poll.unable)
            return None
        agent = poll.agent
        lease = self.store.leases.get(device)
        mine = lease is not None and (lease.study, lease.trial) == (study.id, trial.number)
        if lease is not None and mine:
            in_time = self._silence.in_time(lease)
            if in_time and lease.held_by(agent):  # the answer got lost on its way
                return self._assigned(study, trial, lease, self._ended.list(study.id))
            if in_time and not lease.succeeded_by(agent):
                return Idle(why=f"agent {lease.agent} is at work on trial {trial.number}")
            if trial.attempt >= MOST_ATTEMPTS * len(trial.on(study.devices)):
                why = f"{trial.attempt} attempts ended without a report"
                self._end(trial, study, Outcome(state=TrialState.FAILED, reason=why))
                self.store.leases.release(device, lease.token)
                return None
            try:
                trial = self.store.trials.restart(study.id, trial.number, self.now())
            except IllegalTransition:  # another tuner has ended it
                return None
            text = f"trial {trial.number} again, attempt {trial.attempt}"
            self.note("attempt", text, study.id, device)
        return self._granted(study, trial, device, agent, self._ended.list(study.id))

    def _standing(
        self, study: Study, seen: Situation, device: str, poll: Poll
    ) -> HoldOrder | Release | Idle | None:
        """Return what a device is told where its study takes no step now; None where it is to take one."""
        if study.phase is Phase.CANARY and device != study.terms.canary:
            return Release(why=f"its plan is tried on the canary {study.terms.canary} first")
        if study.phase in HELD and study.plan is not None:
            if poll.unable:
                return Idle(why=poll.unable)
            trials = functools.cache(lambda: self.store.trials.list(study.id))
            if self._control_due(study, seen, trials, poll):
                return None
            devices = 0 if study.phase is Phase.CANARY else self.presence.heard
            report_s = assignments.report_every_s(devices)
            return self._holds.order(study, study.plan, seen.trials, trials, report_s)
        if study.phase is Phase.PAUSED:
            return Release(why=f"study {study.id} is paused")
        if study.phase is Phase.PROPOSED:
            return Release(why=f"study {study.id} waits for an operator's yes")
        return None

    def _advance(
        self, study: Study, seen: Situation, device: str, poll: Poll, running: Sequence[Trial]
    ) -> Orders | None:
        """Take the study's next step; None where it moved and must be looked at again.

        `running` are what other devices try alone: any step but one more such trial waits for them.
        """
        standing = self._standing(study, seen, device, poll)
        if standing is not None:
            return standing
        if study.phase in HELD and study.plan is not None:
            window = control.control(study, study.plan, poll.applied.setting)
            trials = self.store.trials.list(study.id)
            return self._begun(study, seen.trials, window, device, poll, trials)
        if poll.holding and assignments.outgrown(
            study, self._ended.list(study.id), poll.applied.setting
        ):
            return Release(why="the held setting breaks a limit now, and the baseline does not")
        if not self.hours(self.now()):
            return Idle(why="tuning is not allowed at this hour")
        if why := self.presence.unable(study.devices):
            return Idle(why=why)
        trials = self._ended.list(study.id)
        alone = device if self._may_explore(study, trials, device) else ""
        if running and not alone:
            return Idle(why=_waits_for(running))
        step = self._step(study, trials, poll, alone)
        if isinstance(step, moves.Rest):
            return Idle(why=step.why)
        if isinstance(step, moves.Move):
            if running:
                return Idle(why=_waits_for(running))
            self.move(study, step.phase, step.why, step.plan)
            return None
        return self._begun(study, seen.trials, step, device, poll, trials, alone)

    def _may_explore(self, study: Study, trials: Sequence[Trial], device: str) -> bool:
        """Return whether a device may try the study's next setting alone."""
        if len(study.devices) < 2:
            return False
        devices = [self.store.devices.get(name) for name in study.devices]
        try:
            policy = self.policies(study.policy)
        except TuningError:  # the step says why it cannot be had
            return False
        return apart.may_explore(study, devices, policy) and apart.can_tell(
            study, self._shares(study, trials, device)
        )

    def _shares(self, study: Study, trials: Sequence[Trial], device: str) -> apart.Shares:
        """Return by what the numbers of a trial that a device runs alone are told of all."""
        if not device:
            return apart.ALIKE
        return apart.shares(
            study, trials, device, lambda number: self.store.trials.reports(study.id, number)
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
    ) -> Assignment:
        """Begin a trial and give it to the device that asks. Raises StaleRevision."""
        seen = study.revision, count
        trial = self.store.trials.begin(
            study.id, step.setting, study.phase, step.why, self.now(), step.context, seen, alone
        )
        self.publish(study)
        return self._granted(study, trial, device, poll.agent, trials)

    def _control_due(
        self, study: Study, seen: Situation, trials: Callable[[], Sequence[Trial]], poll: Poll
    ) -> bool:
        """Return whether it is time to measure the baseline again: of a hold that is in force."""
        if (poll.holding, poll.revision) != (study.id, study.revision) or seen.since is None:
            return False
        now = self.now()
        last = self._controls.last(study, seen.trials, trials, seen.since)
        return last is not None and control.is_due(study.terms, last, now) and self.hours(now)

    def _step(self, study: Study, trials: Sequence[Trial], poll: Poll, alone: str) -> moves.Step:
        """Return the next step; a policy that fails pauses its study with the reason."""
        past = Past(
            study=study,
            trials=tuple(trials),
            context=poll.context,
        )
        began = self.monotonic()
        try:
            policy = (self.decides or self.policies)(study.policy)
            says = self.policies(study.policy) if study.terms.mode is Mode.CONTINUOUS else None
            step = lifecycle.next_step(past, policy, alone, says)
            if study.phase is Phase.TUNING and self.decides is None:
                self.telemetry.suggested(study.policy, self.monotonic() - began)
            return step
        except Exception as error:  # whatever a plug-in raises must not stop the tuner
            log.exception("policy %s failed in study %s", study.policy, study.id)
            why = str(error)
            if not isinstance(error, TuningError):
                why = f"{type(error).__name__}: {why}; the tuner's log shows where"
            return moves.Move(Phase.PAUSED, f"policy {study.policy} failed: {why}")

    def _granted(
        self, study: Study, trial: Trial, device: str, agent: str, trials: Sequence[Trial]
    ) -> Assignment:
        """Give a trial to a device; what was measured before it is among these trials."""
        lease = self.store.leases.grant(device, study.id, trial, agent, self._lease_end())
        self._silence.in_time(lease)
        return self._assigned(study, trial, lease, trials)

    def _assigned(
        self, study: Study, trial: Trial, lease: Lease, trials: Sequence[Trial]
    ) -> Assignment:
        shares = self._shares(study, trials, trial.device)
        return assignments.assignment(study, trials, trial, lease, self.lease_s, shares)

    def _close(self, study: Study, trial: Trial, reports: Sequence[Report] | None = None) -> bool:
        """End the trial once every device that tries it has reported; return whether it ended.

        `reports` are all on it, None where they are to be looked up.
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
            outcome = apart.told(outcome, self._shares(study, trials, trial.device))
        self._end(trial, study, outcome)
        return True

    def _end(self, trial: Trial, study: Study, outcome: Outcome) -> None:
        """End a trial; quietly nothing where another tuner has ended it since it was looked at."""
        try:
            ended = self.store.trials.end(study.id, trial.number, outcome, self.now())
        except IllegalTransition as error:
            log.info("trial %d of study %s: %s", trial.number, study.id, error)
            return
        self.telemetry.ended(outcome)
        self.publish(study)
        if outcome.state is not TrialState.COMPLETED:
            text = f"trial {trial.number}: {outcome.reason or 'no reason given'}"
            self.note(str(outcome.state), text, study.id)
        if ended.control:
            for kind, text in control.news_of(study, self.store.trials.list(study.id), ended):
                self.note(kind, text, study.id)

    def _restart_evidence(self, device: Device) -> None:
        study = self.store.studies.of(device.id)
        if study is None:
            return
        with self.lock(study.id):
            study = self.store.studies.get(study.id)
            why = f"driver {device.driver}, workload {device.workload_version}: the device changed"
            self.abort(study, why)
            self.start_over(study, why)

    @looking_again
    def _narrow(self, device: Device) -> None:
        """Take out of a device's study what the device offers no more: a knob that it refused, say.

        What was measured within the rest still counts; a plan that is not within it is given up.
        """
        study = self.store.studies.of(device.id)
        if study is None:
            return
        with self.lock(study.id):
            study = self.store.studies.get(study.id)
            space = study.space.within(device.space)
            if space == study.space:
                return
            gone = [
                k.name for k, left in zip(study.space.knobs, space.knobs, strict=True) if k != left
            ]
            told = [
                f"{name}: {device.cannot.get(name, 'fewer values take effect')}" for name in gone
            ]
            why = f"{device.id} offers less than before; {'; '.join(told)}"
            narrowed = replace(study, space=space)
            if study.plan is not None and not all(space.has(r.setting) for r in study.plan.rows):
                self.abort(study, why)
                self.start_over(narrowed, why)
                return
            self.note("narrowed", why, study.id, device.id)
            self.revise(narrowed, TUNER, why)

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
        for look in (self.store.trials.running, self._ended.list):
            found = next((t for t in reversed(look(study)) if t.number == number), None)
            if found is not None:
                return found
        raise NotFound(f"study {study} has no trial {number}", hint="list its trials")

    def _lease_end(self) -> datetime:
        return self.now() + timedelta(seconds=self.lease_s)


def _asked(poll: Poll) -> Asked:
    """Return what of a question its answer depends on, where that is a hold or a release."""
    held = poll.applied
    applied = setting_key(held.setting), held.level, held.study, held.revision
    return poll.agent, poll.holding, poll.revision, poll.unable, *applied


def _doubt(message: HoldReport, study: Study) -> str:
    """Return why a held window's numbers cannot be true, as an event says it; empty where they can."""
    window = message.measurement
    why = "" if window is None else implausible(window, study.quantities)
    return why and f"a held window was discarded: {why}; check the meter"


def _believed(outcome: Outcome, study: Study) -> Outcome:
    """Return an outcome as it counts: without a window whose numbers cannot be true.

    Raises:
        MeasurementError: a quantity that has no sign is below zero.
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


def _waits_for(running: Sequence[Trial]) -> str:
    """Return what a device waits for that runs no trial itself."""
    return "waits for " + ", ".join(f"trial {t.number} on {t.device}" for t in running)


def _require(device: str, study: Study) -> None:
    """Refuse what a device tells of a study that does not have it."""
    if device not in study.devices:
        raise InvalidInput(f"study {study.id} does not have the device {device}")
