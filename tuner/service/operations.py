"""The operator's verbs: create, watch, change and stop studies; ask what was tried and saved."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from db.history import HistoryQuestion, HistoryRow, history, pareto, recent
from tuner.core import (
    ENERGY,
    PLANNED,
    BaselineCourse,
    BaselineShift,
    Conflict,
    Constraint,
    Estimate,
    Event,
    IllegalTransition,
    Improvement,
    InvalidInput,
    MetricSample,
    NotFound,
    Notice,
    Objective,
    Past,
    Phase,
    Study,
    Topic,
    Trial,
    TrialState,
    TuningError,
    Verdict,
    called,
    counted,
    draw_up,
    improvement,
    incumbent,
    setting_key,
    trials_spent,
    weigh,
)
from tuner.service import proposals, stops
from tuner.service.access import Access
from tuner.service.drafts import (
    constraints_of,
    read_constraints,
    refuse_controls,
    refuse_shared_joules,
    refuse_too_much,
    refuse_unheeded,
    require,
    signals_of,
    space_of,
    usual_draft,
)
from tuner.service.explanations import explained
from tuner.service.prefixes import begun_with
from tuner.service.previews import preview
from tuner.service.study_views import StudyViews, registered
from tuner.service.views import (
    alternating,
    candidate_view,
    chosen,
    limit_kept,
    origins,
    setting_view,
    trial_view,
)
from tuner.study.control import baseline_shifts
from tuner.study.loop import Loop
from tuner.study.stale import looking_again
from tuner.verbs.table import Verbs
from tuner.wire import (
    Change,
    ConstraintChange,
    ConstraintPreview,
    Decision,
    DeviceView,
    ExplanationView,
    Receipt,
    ReplicaView,
    Reverted,
    RevisionView,
    SettingView,
    StopView,
    StudyDraft,
    StudyReport,
    StudyView,
    TrialView,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StudyLook:
    """A study as its page shows it, by one look at its trials."""

    report: StudyReport
    trials: tuple[TrialView, ...]


@dataclass(frozen=True)
class Operations(Verbs[StudyView]):
    """What operators do, over one loop and its store. A refused wish changes nothing.

    Whoever names a study may give the beginning of its id, where no other begins so; only `delete` wants
    all of it.
    """

    loop: Loop
    _views: StudyViews = field(default_factory=StudyViews, init=False, repr=False, compare=False)

    @property
    def access(self) -> Access:
        """Who may do it: the tokens of the same store."""
        return Access(self.loop.store, self.loop.now)

    def create(self, draft: StudyDraft) -> StudyView:
        """Create a study and give it its devices; what the draft leaves open is chosen here.

        Raises:
            NotFound: a device is not registered.
            InvalidInput and its kin: knobs, constraints, metrics or policy do not fit the devices.
            DeviceBusy: a device belongs to another active study.
        """
        refuse_too_much(draft)
        devices = [registered(self.loop.store, name) for name in draft.devices]
        if not devices:
            raise InvalidInput("a study needs a device", hint="list them with `device list`")
        draft = usual_draft(draft, devices[0])
        refuse_controls(draft)
        refuse_shared_joules(draft, devices)
        policy = self.loop.policies(draft.policy)
        objective = Objective.parse(draft.objective, devices[0].quantities)
        study = Study(
            id=uuid.uuid4().hex[:8],
            devices=draft.devices,
            workload=devices[0].workload,
            space=space_of(devices, draft),
            objective=objective,
            quantities={n: q for d in reversed(devices) for n, q in d.quantities.items()},
            signals=signals_of(devices),
            constraints=constraints_of(draft, objective, devices[0]),
            policy=draft.policy,
            seed=draft.seed,
            terms=draft.terms,
            created_at=self.loop.now(),
        )
        for device in devices:
            for metric in (objective.metric, *(c.metric for c in study.constraints)):
                require(device, metric, study)
        refuse_unheeded(study, policy)
        self.loop.store.studies.add(study, draft.who, "created")
        self.loop.changes.publish(study)
        wishes = ", ".join(map(str, study.constraints)) or "no constraint"
        asked = f"{objective.goal} {objective.metric} under {wishes}"
        self.loop.changes.note("created", f"{asked} by {draft.who}", study.id)
        return self.study(study.id)

    def studies(self) -> list[StudyView]:
        """Return all studies, oldest first."""
        return self._views.every(self.loop)

    def study(self, study: str) -> StudyView:
        """Return one study as it stands. Raises NotFound."""
        return self._views.one(self.loop, self._found(study))

    def full_id(self, study: str) -> str:
        """Return the id of the study that begins so, or what was given where none does.

        Raises:
            InvalidInput: several do.
        """
        try:
            return self._found(study).id
        except NotFound:
            return study

    @looking_again
    def pause(self, study: str, change: Change) -> StudyView:
        """Stop trying; the devices go back to their original settings until it is resumed.

        Pausing it twice changes nothing.
        """
        return self._halted(study, Phase.PAUSED, change)

    @looking_again
    def reverted(self, message: Reverted) -> Receipt:
        """Pause the study whose device an operator put back on its host; a repeat changes nothing."""
        study = self.loop.store.studies.of(message.device)
        if study is None:
            return Receipt(result="late")
        with self.loop.changes.lock(study.id):
            known = any(r.why == message.why for r in self.revisions(study.id))
            if known or self.loop.store.studies.get(study.id).phase is Phase.PAUSED:
                return Receipt(result="duplicate")
            self.pause(study.id, Change(why=message.why))
        return Receipt(result="closed")

    @looking_again
    def resume(self, study: str, change: Change) -> StudyView:
        """Go on in the phase a paused study was in; what is counted by phase counts anew.

        One that is not paused goes on as it is.
        """
        study = self.full_id(study)
        with self.loop.changes.lock(study):
            found = self.loop.store.studies.get(study)
            if found.phase not in (Phase.PAUSED, Phase.STOPPED):
                return self.study(study)
            why = change.why or f"resumed by {change.who}"
            resumed = found.resumed()
            entitled = self._entitled(resumed)
            if not entitled:
                resumed = self._tuning_on(resumed, granting=False)
            self._revise(self.loop.changes.entering(resumed), change.who, why)
            if not entitled:
                self.loop.changes.note_withdrawn(found, why)
        return self.study(study)

    @looking_again
    def stop(self, study: str, change: Change) -> StudyView:
        """End a study for good; its devices go back to their original settings and are free.

        Ending it twice changes nothing.
        """
        return self._halted(study, Phase.STOPPED, change)

    def _halted(self, study: str, phase: Phase, change: Change) -> StudyView:
        study = self.full_id(study)
        with self.loop.changes.lock(study):
            found = self.loop.store.studies.get(study)
            if found.phase is not phase:
                why = change.why or f"{phase} by {change.who}"
                moved = found.moved(phase)
                self.loop.changes.abort(found, why)
                self._revise(moved, change.who, why)
        return self.study(study)

    def approve(self, study: str, decision: Decision) -> StudyView:
        """Hold what a study proposes; see `tuner.service.proposals`."""
        study = self.full_id(study)
        proposals.approve(self.loop, study, decision)
        return self.study(study)

    def reject(self, study: str, decision: Decision) -> StudyView:
        """End a study whose proposal is not wanted; see `tuner.service.proposals`."""
        study = self.full_id(study)
        proposals.reject(self.loop, study, decision)
        return self.study(study)

    def delete(self, study: str, change: Change) -> None:
        """Remove a stopped study with everything it measured. Raises NotFound, Conflict."""
        self.loop.store.studies.delete(study)
        self.loop.changes.note("deleted", f"study {study} deleted by {change.who}")

    @looking_again
    def set_constraints(self, study: str, change: ConstraintChange) -> StudyView:
        """Replace the constraints: all history is judged anew, and tuning goes on only if needed.

        A held plan that is proven best under them stays; otherwise, and where one was proposed, the study
        tunes on: nobody is to approve what was confirmed under other limits. Where its trials are used it
        is granted half of its first number anew. The same constraints again change nothing.

        Raises:
            NotFound: there is no such study.
            InvalidInput and its kin: one cannot be read or measured, or two contradict each other.
            IllegalTransition: it is stopped.
        """
        study = self.full_id(study)
        with self.loop.changes.lock(study):
            found = self.loop.store.studies.get(study)
            then = self._under(found, change)
            if then.constraints == found.constraints:
                return self.study(study)
            why = change.why or _changed_to(change.constraints)
            if _goes_on(found, then):
                self._revise(
                    self.loop.changes.with_reason(then), change.who, why, kind="constraints"
                )
            else:
                self.loop.changes.abort(found, "the constraints changed")
                kind = "constraints" if then.phase is Phase.PAUSED else ""
                self._revise(then, change.who, why, kind)
                self.loop.changes.note_withdrawn(found, why)
        return self.study(study)

    def preview(self, study: str, change: ConstraintChange) -> ConstraintPreview:
        """Return what other constraints would change, and change nothing.

        Raises:
            NotFound, InvalidInput and its kin, IllegalTransition: as `set_constraints` does.
        """
        found = self._found(study)
        then = self._under(found, change)
        trials = self.loop.store.trials.list(found.id)
        spent = trials_spent(counted(then, trials))
        more = 0 if _goes_on(found, then) else then.terms.trials - spent
        return preview(found, then, trials, max(0, more))

    def _under(self, found: Study, change: ConstraintChange) -> Study:
        """Return a study as it is to go on under other constraints. Raises as `set_constraints` does."""
        baseline = weigh(found, self.loop.store.trials.list(found.id)).baseline
        constraints = read_constraints(change.constraints, baseline)
        if not found.active:
            raise IllegalTransition(
                f"study {found.id} is stopped: it keeps its last constraints",
                hint="create a new study",
            )
        for device in (registered(self.loop.store, name) for name in found.devices):
            for constraint in constraints:
                require(device, constraint.metric, found)
        changed = replace(found, constraints=constraints)
        if constraints == found.constraints:
            return changed
        try:
            policy = self.loop.policies(found.policy)
        except TuningError:  # one that cannot be had here: its study's next step says why
            pass
        else:
            refuse_unheeded(changed, policy)
        at_work = changed.resumed() if changed.phase is Phase.PAUSED else changed
        loose = _opens(found.constraints, constraints, baseline)
        if found.proposed is None and self._entitled(at_work, loosened=loose):
            return changed
        return self._tuning_on(changed)

    def revisions(self, study: str) -> list[RevisionView]:
        """Return who changed what and when, first to last. Raises NotFound."""
        return [
            RevisionView(
                revision=r.study.revision,
                who=r.who,
                why=r.why,
                at=r.at,
                phase=r.study.phase,
                reason=r.study.reason,
                constraints=tuple(str(c) for c in r.study.constraints),
            )
            for r in self.loop.store.studies.revisions(self.full_id(study))
        ]

    def trials(self, study: str) -> list[TrialView]:
        """Return every trial of a study with its verdict as of now. Raises NotFound."""
        found = self._found(study)
        trials = self.loop.store.trials.list(found.id)
        past = Past(study=found, trials=tuple(trials))
        return [trial_view(past, trial) for trial in trials]

    def best(self, study: str) -> SettingView:
        """Return the held setting, or else the best feasible one measured. Raises NotFound."""
        view = self.study(study)
        if view.best is None:
            raise NotFound(
                f"study {view.id} has no feasible setting yet",
                hint="see what was tried with `trial list`",
            )
        return view.best

    def pareto(self, study: str) -> list[SettingView]:
        """Return the settings that none other beats in every metric asked for. Raises NotFound."""
        return [candidate_view(c) for c in pareto(self.loop.store, self.full_id(study))]

    def history(
        self, question: HistoryQuestion, last: int | None = None, skip: int = 0
    ) -> tuple[HistoryRow, ...]:
        """Return the trials a question asks for, across studies, by start.

        With `last` so many of the latest, latest first, after `skip` of them. Raises NotFound.
        """
        if question.study is not None:
            question = replace(question, study=self.full_id(question.study))
        if last is not None:
            return recent(self.loop.store, question, last, skip)
        return history(self.loop.store, question)

    def report(self, study: str) -> StudyReport:
        """Return what a study gained and cost. Raises NotFound."""
        return self.look(study).report

    def look(self, study: str) -> StudyLook:
        """Return what a study gained and cost, with every trial of it. Raises NotFound."""
        found = self._found(study)
        trials = self.loop.store.trials.list(found.id)
        past = Past(study=found, trials=tuple(trials))
        best = chosen(found, past.evidence)
        baseline = setting_view(past.evidence, found.baseline)
        shown = candidate_view(best) if best else None
        winner = best if best and not found.rests(best.setting) else None
        windows = alternating(past, winner.setting) if winner else None
        if windows is not None and shown is not None:
            baseline = baseline.model_copy(update={"metrics": windows[0]})
            shown = shown.model_copy(update={"metrics": windows[1]})
        views = [trial_view(past, trial) for trial in trials]
        shift = next(reversed(baseline_shifts(found, trials)), None)
        present = _shifted(found.objective, baseline, shift)
        gain = _improvement(found.objective, present, shown) if winner else None
        ended = (TrialState.COMPLETED, TrialState.RUNNING)
        report = StudyReport(
            study=self._with_held_violations(found, trials),
            baseline=baseline,
            best=shown,
            alternating=windows is not None,
            saving=gain.share if gain else None,
            difference=gain.amount if gain and not gain.relative else None,
            baseline_shift=shift,
            limit_kept=limit_kept(best),
            bill=draw_up(
                trials,
                present.metrics,
                shown.metrics if shown and winner else {},
                self._held_samples(found, trials),
                self.loop.store.studies.revisions(found.id),
                found.quantities,
                BaselineCourse.of(found, trials),
                len(found.devices),
                setting_key(found.baseline),
            ).ascribed(found.terms.energy_share or 1.0),
            origins=origins(found, trials),
            failures=tuple(v for v in views if v.state not in ended),
        )
        return StudyLook(report=report, trials=tuple(views))

    def explain(self, study: str) -> ExplanationView:
        """Return what a study's policy believes by its trials. Raises NotFound."""
        return explained(self.loop, self.full_id(study))

    def devices(self, only: Container[str] | None = None) -> list[DeviceView]:
        """Return all devices, or some, with what is applied to them and which study has them."""
        standing = self.loop.store.devices.standing()
        active = self.loop.store.studies.stored(active=True)
        owners = {device: study for study in active for device in study.devices}
        views = []
        for device in self.loop.store.devices.list():
            if only is not None and device.id not in only:
                continue
            owner = owners.get(device.id)
            context, context_at = self.loop.presence.load(device.id) or ({}, None)
            views.append(
                DeviceView(
                    device=device,
                    applied=standing.get(device.id),
                    study=owner.id if owner else "",
                    last_seen=self.loop.presence.last_seen(device),
                    online=self.loop.presence.online(
                        device, owner if isinstance(owner, Study) else None
                    ),
                    unable=self.loop.presence.refusal(device.id),
                    context=dict(context),
                    context_at=context_at,
                )
            )
        return views

    def replicas(self) -> list[ReplicaView]:
        """Return the tuners of this database, by id, also those that told nothing for a while."""
        now = self.loop.now()
        return [
            ReplicaView(replica=one, told_s=(now - one.seen_at).total_seconds())
            for one in self.loop.store.replicas.list()
        ]

    def forget(self, device: str, change: Change) -> None:
        """Forget a device that will not come back; studies and trials on it stay.

        Raises:
            NotFound: it is not registered.
            Conflict: it is online, and would only register anew.
            DeviceBusy: an active study has it.
        """
        found, owner = registered(self.loop.store, device), self.loop.store.studies.of(device)
        if owner is None and self.loop.presence.online(found, None):
            raise Conflict(f"device {device} is online", hint="stop its agent first")
        self.loop.store.devices.forget(device)
        self.loop.presence.forget(device)
        self.loop.store.bus.publish(Notice(Topic.ORDERS, devices=(device,)))
        self.loop.changes.note("forgotten", f"forgotten by {change.who}", device=device)

    def stop_all(self, change: Change) -> StopView:
        """Put every device back to its original setting until it is lifted; no study changes."""
        stops.stop_all(self.loop, change)
        return self.stop_state()

    def lift(self, change: Change) -> StopView:
        """Let the studies go on as they were before everything was stopped."""
        stops.lift(self.loop, change)
        return self.stop_state()

    def stop_state(self) -> StopView:
        """Return whether everything is stopped, and which devices are back."""
        return stops.stop_view(self.loop)

    def events(
        self,
        study: str | None = None,
        device: str | None = None,
        last: int | None = None,
        after: int | None = None,
    ) -> list[Event]:
        """Return the (last) events, oldest first; with `after` the first that came later than that."""
        study = self.full_id(study) if study else study
        if after is not None:
            return list(self.loop.store.events.after(after, last, study, device))
        return list(self.loop.store.events.list(study, device, last))

    def follow(
        self, study: str | None = None, device: str | None = None, after: int | None = None
    ) -> Iterator[Event]:
        """Yield events as they are stored, by this process or another: from now on, or after one."""
        study = self.full_id(study) if study else study
        store, new = self.loop.store, threading.Event()
        end = store.bus.subscribe(lambda _: new.set())
        store.bus.listen()
        last = store.events.newest() if after is None else after
        try:
            while True:
                for event in store.events.after(last, None, study, device):
                    last = event.id
                    yield event
                new.wait()
                new.clear()
        finally:
            end()

    def _found(self, study: str) -> Study:
        return begun_with(self.loop.store.studies, study)

    def _revise(self, study: Study, who: str, why: str, kind: str = "") -> None:
        self.loop.changes.revise(study, who, why)
        self.loop.changes.note(kind or str(study.phase), why, study.id)

    def _tuning_on(self, study: Study, *, granting: bool = True) -> Study:
        """Return the study tuning again: what it tried counts.

        Where its trials are used, half of its first number is granted anew. A paused one stays paused, to
        tune when it is resumed.
        """
        spent = trials_spent(counted(study, self.loop.store.trials.list(study.id)))
        terms = study.terms
        if granting and spent >= terms.trials:
            given = self.loop.store.studies.revisions(study.id)[0].study.terms.trials
            terms = replace(terms, trials=spent + -(-given // 2))
        tuning = self.loop.changes.entering(replace(study.moved(Phase.TUNING), terms=terms))
        return tuning.moved(Phase.PAUSED) if study.phase is Phase.PAUSED else tuning

    def _entitled(self, study: Study, *, loosened: bool = False) -> bool:
        """Return whether a study may stay in its phase: its plan is what its history would choose.

        The baseline is held where nothing was proven to beat it: under a loosened limit something may.
        """
        if study.plan is None or study.phase not in PLANNED:
            return True
        if loosened and all(study.rests(row.setting) for row in study.plan.rows):
            return False
        past = Past(study=study, trials=tuple(self.loop.store.trials.list(study.id)))
        evidence, plan = past.evidence, study.plan
        best = incumbent(study, evidence)
        if best is None or setting_key(best.setting) not in {
            setting_key(row.setting) for row in plan.rows
        }:
            return False
        rows = [row for row in plan.rows if not study.rests(row.setting)]
        if evidence.broken is not None:
            kept = len(rows) == len(plan.rows)
        else:
            base, own = (study.objective.score(x) for x in (evidence.baseline, best.estimates))
            kept = not (base and own and study.objective.better(base.mean, own.mean))
        known = [past.behind(plan, row).of(row.setting) for row in rows]
        return kept and all(c and c.verdict is Verdict.FEASIBLE for c in known)

    def _with_held_violations(self, study: Study, trials: Sequence[Trial]) -> StudyView:
        """Return a study's view, in which the windows of its holds that broke a limit are counted."""
        view = self._views.one(self.loop, study, trials)
        held = self.loop.store.observations.broken(study.id, view.limits)
        counts = view.violations.model_copy(update={"held": held})
        return view.model_copy(update={"violations": counts})

    def _held_samples(self, study: Study, trials: Sequence[Trial]) -> Sequence[MetricSample]:
        """Return the held windows that the study's baseline can be compared with.

        Of several devices a window is one device's, the baseline all of theirs; and what was held
        before the evidence started anew has no baseline any more.
        """
        since = min((t.started_at for t in counted(study, trials)), default=None)
        if since is None or len(study.devices) > 1:
            return ()
        energy = called(ENERGY, study.quantities)
        return self.loop.store.observations.samples(study.id, energy, since)


def _goes_on(now: Study, then: Study) -> bool:
    """Return whether a study under other constraints searches for nothing else."""
    return (then.phase, then.plan, then.terms) == (now.phase, now.plan, now.terms)


def _opens(
    before: Sequence[Constraint], after: Sequence[Constraint], baseline: Mapping[str, Estimate]
) -> bool:
    """Return whether other constraints allow anything that those before did not.

    Each that was there has to be there still, as tight at least; what cannot be compared opens.
    """

    def as_tight(old: Constraint) -> bool:
        bound = old.limit(baseline)
        return any(
            (new.metric, new.op) == (old.metric, old.op)
            and (value := new.limit(baseline)) is not None
            and bound is not None
            and (value <= bound if old.op == "<=" else value >= bound)
            for new in after
        )

    return not all(map(as_tight, before))


def _changed_to(constraints: Sequence[str]) -> str:
    """Return a change of constraints in words."""
    return (
        f"constraints changed to {', '.join(constraints)}" if constraints else "constraints removed"
    )


def _shifted(
    objective: Objective, baseline: SettingView, shift: BaselineShift | None
) -> SettingView:
    """Return the baseline as it is now: with the objective's metric where control windows put it."""
    metric, metrics = objective.metric, baseline.metrics
    if shift is None or metric not in metrics:
        return baseline
    return baseline.model_copy(update={"metrics": {**metrics, metric: shift.now(metrics[metric])}})


def _improvement(
    objective: Objective, baseline: SettingView, best: SettingView | None
) -> Improvement | None:
    before = objective.score(baseline.metrics)
    after = objective.score(best.metrics) if best else None
    if before is None or after is None:
        return None
    return improvement(before, after, objective.sign)
