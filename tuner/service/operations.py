"""The operators' verbs: create, watch, change and stop studies; read their trials and savings."""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from db.history import HistoryQuestion, HistoryRow, history, pareto, recent
from tuner.core import (
    AuditEntry,
    Event,
    Limit,
    NotFound,
    Past,
    Phase,
    Study,
    Trial,
    Unreadable,
    UnreadableStudy,
)
from tuner.rows import StoredRows
from tuner.service import study_changes
from tuner.service.access import Access
from tuner.service.budgets.operations import BudgetOperations
from tuner.service.creation import create
from tuner.service.declared import apply as declared
from tuner.service.declared.export import exported
from tuner.service.energy_price import EnergyPrice, in_energy
from tuner.service.evidence import archive
from tuner.service.explanations import explained
from tuner.service.inventory import DeviceOperations
from tuner.service.reports import StudyLook, StudyRecord, constraint_changes, look
from tuner.service.views import StudyViews, begun_with, candidate_view, trial_view
from tuner.study.changes import looking_again
from tuner.study.loop import Loop
from tuner.wire import (
    Change,
    ConstraintChange,
    ConstraintPreview,
    ConstraintRevision,
    Decision,
    EvidenceArchive,
    ExplanationView,
    ExplorationChange,
    FleetDiff,
    FleetDraft,
    FleetText,
    Message,
    Receipt,
    ReplicaView,
    Reverted,
    RevisionView,
    SettingView,
    StudyDraft,
    StudyReport,
    StudyView,
    TrialView,
)

M = TypeVar("M", bound=Message)


@dataclass(frozen=True)
class Operations(BudgetOperations, DeviceOperations):
    """The operators' verbs, over one loop and its store. A refused request changes nothing.

    A study may be given by a prefix of its id that no other id has; `delete` needs the whole id.
    """

    loop: Loop
    price: EnergyPrice = field(default_factory=EnergyPrice)
    _views: StudyViews = field(default_factory=StudyViews, init=False, repr=False, compare=False)

    @property
    def access(self) -> Access:
        """Return the tokens of the same store, by which callers are authorised."""
        return Access(self.loop.store, self.loop.now)

    def create(self, draft: StudyDraft) -> StudyView:
        """Create a study and assign its devices to it; values that the draft leaves open are chosen here.

        Raises:
            NotFound: a device is not registered.
            InvalidInput and its subclasses: knobs, constraints, metrics or policy do not fit the devices.
            DeviceBusy: a device belongs to another active study.
        """
        devices = self.loop.store.devices.list() if draft.objective else ()
        measured = {m.name for d in devices if d.id in draft.devices for m in d.metrics}
        return self.study(create(self.loop, in_energy(draft, self.price, measured)))

    def studies(self) -> list[StudyView]:
        """Return all studies, oldest first."""
        return [self.under_budget(view) for view in self._views.every(self.loop)]

    def briefs(
        self, studies: Sequence[tuple[Study | UnreadableStudy, Limit | None]]
    ) -> list[StudyView]:
        """Return present views, each with its unmet limit, without the trials."""
        return [self.under_budget(view) for view in self._views.briefs(self.loop, studies)]

    def study(self, study: str) -> StudyView:
        """Return one study in its present state; an unreadable one with its error. Raises NotFound."""
        try:
            return self.under_budget(self._views.one(self.loop, self._stored(study)))
        except Unreadable:
            stored = self.loop.store.studies.stored(among=[self.full_id(study)])
            (view,) = self.briefs([(one, None) for one in stored])
            return view

    def full_id(self, study: str) -> str:
        """Return the id of the study with this prefix of an id; the given text if there is none.

        Raises:
            InvalidInput: several ids have this prefix.
        """
        try:
            return self._stored(study).id
        except NotFound:
            return study
        except Unreadable:
            return next(n for n in self.loop.store.studies.ids() if n.startswith(study))

    def pause(self, study: str, change: Change) -> StudyView:
        """End a study's trials; its devices return to their original settings until it is resumed.

        Pausing it twice changes nothing.
        """
        return self._after(partial(study_changes.halt, phase=Phase.PAUSED), study, change)

    @looking_again
    def reverted(self, message: Reverted) -> Receipt:
        """Pause the study of a device that an operator reverted on its host; a repeat changes nothing."""
        study = self.loop.store.studies.of(message.device)
        if study is None:
            return Receipt(result="late")
        with self.loop.changes.lock(study.id):
            repeated = any(r.why == message.why for r in self.revisions(study.id))
            if repeated or self.loop.store.studies.get(study.id).phase is Phase.PAUSED:
                return Receipt(result="duplicate")
            self.pause(study.id, Change(why=message.why))
        return Receipt(result="closed")

    def resume(self, study: str, change: Change) -> StudyView:
        """Continue a paused study in its former phase; trials counted by phase are counted from 0 again.

        An active study that is not paused does not change.
        """
        return self._after(study_changes.resume, study, change)

    def stop(self, study: str, change: Change) -> StudyView:
        """End a study permanently; its devices return to their original settings and are free.

        Ending it twice changes nothing.
        """
        return self._after(study_changes.halt, study, change)

    def approve(self, study: str, decision: Decision) -> StudyView:
        """Hold the proposal of a study; see `tuner.service.study_changes`."""
        return self._after(study_changes.approve, study, decision)

    def reject(self, study: str, decision: Decision) -> StudyView:
        """End a study whose proposal the operator rejects; see `tuner.service.study_changes`."""
        return self._after(study_changes.reject, study, decision)

    def _after(self, change: Callable[[Loop, str, M], None], study: str, message: M) -> StudyView:
        """Make a change of a study, and return its view then."""
        study = self.full_id(study)
        change(self.loop, study, message)
        return self.study(study)

    def delete(self, study: str, change: Change) -> None:
        """Remove a stopped study and all its measurements. Raises NotFound, Conflict."""
        self.loop.store.studies.delete(study)
        self.loop.changes.note("deleted", f"study {study} deleted by {change.who}")

    def set_constraints(self, study: str, change: ConstraintChange) -> StudyView:
        """Replace the constraints: all history is judged again, and the study tunes only if needed.

        A held plan that is still proven best stays. Otherwise, and if a plan is proposed, the study returns
        to tuning: a plan confirmed under other limits cannot be approved. If it has used its trials, it is
        granted half of its first number again. Equal constraints change nothing.

        Raises:
            NotFound: no study has this id.
            InvalidInput and its subclasses: one cannot be read or measured, or two contradict each other.
            IllegalTransition: the study is stopped.
        """
        return self._after(study_changes.constrain, study, change)

    def set_exploration(self, study: str, change: ExplorationChange) -> StudyView:
        """Replace when and how much a study may explore; equal limits change nothing.

        Raises:
            NotFound: no study has this id.
            InvalidInput and its subclasses: a window cannot open, or a share cannot be measured.
            IllegalTransition: the study is stopped.
        """
        return self._after(study_changes.set_exploration, study, change)

    def freeze(self, study: str, change: Change) -> StudyView:
        """Start no trials until the study is thawed; a hold stays. Raises as `set_exploration` does."""
        return self._after(study_changes.freeze, study, change)

    def thaw(self, study: str, change: Change) -> StudyView:
        """Let a frozen study start trials again. Raises as `set_exploration` does."""
        return self._after(study_changes.thaw, study, change)

    def preview(self, study: str, change: ConstraintChange) -> ConstraintPreview:
        """Return the effect of other constraints, and change nothing.

        Raises:
            NotFound, InvalidInput and its subclasses, IllegalTransition: as `set_constraints` does.
        """
        return study_changes.preview(self.loop, self._stored(study), change)

    def revisions(self, study: str) -> list[RevisionView]:
        """Return a study's revisions with author, reason and time, oldest first. Raises NotFound."""
        return [
            RevisionView.of(
                r.study, who=r.who, why=r.why, at=r.at, constraints=r.study.written["constraints"]
            )
            for r in self.loop.store.studies.revisions(self.full_id(study))
        ]

    def constraint_changes(self, study: str) -> list[ConstraintRevision]:
        """Return the changes of a study's constraints and the effect of each. Raises NotFound."""
        stored, store = self._stored(study), self.loop.store
        return constraint_changes(
            stored, store.studies.revisions(stored.id), store.trials.list(stored.id)
        )

    def trials(self, study: str) -> list[TrialView]:
        """Return every trial of a study with its present verdict. Raises NotFound."""
        stored = self._stored(study)
        trials = self.loop.store.trials.list(stored.id)
        past = Past(study=stored, trials=tuple(trials))
        return [trial_view(past, trial) for trial in trials]

    def best(self, study: str) -> SettingView:
        """Return the held or proposed setting, or else the best feasible one. Raises NotFound."""
        view = self.study(study)
        if view.best is None:
            raise NotFound(
                f"study {view.id} has no feasible setting yet",
                hint="list its trials with `trial list`",
            )
        return view.best

    def pareto(self, study: str) -> list[SettingView]:
        """Return the Pareto front of the two objectives, or of objective and limits. Raises NotFound."""
        return [candidate_view(c) for c in pareto(self.loop.store, self.full_id(study))]

    def history(
        self, question: HistoryQuestion, last: int | None = None, skip: int = 0
    ) -> StoredRows[HistoryRow]:
        """Return the trials that match a question, across studies, by start.

        With `last`, return that number of the latest, latest first, after `skip` of them. Raises NotFound.
        """
        if question.study is not None:
            question = replace(question, study=self.full_id(question.study))
        store = self.loop.store
        rows = history(store, question) if last is None else recent(store, question, last, skip)
        self.note_unread(rows)
        return rows

    def note_unread(self, rows: StoredRows[HistoryRow]) -> None:
        """Write an event for each trial of a history that cannot be read."""
        self.loop.changes.rows("the history").unread(rows, lambda *_: None)

    def report(self, study: str, since: datetime | None = None) -> StudyReport:
        """Return a study's gain and cost, and its saving since a time if one is given. Raises NotFound."""
        return self.look(study, since).report

    def evidence(self, study: str) -> EvidenceArchive:
        """Return the archive of a study's evidence, and log its digest. Raises NotFound."""
        stored, now = self._stored(study), self.loop.now()
        record = StudyRecord.read(self.loop, stored)
        content = archive(self.loop, record, self._look(record).report)
        digest = hashlib.sha256(content).hexdigest()
        path = f"/v1/studies/{stored.id}/evidence#sha256={digest}"
        entry = AuditEntry(at=now, who="", role="", address="", method="GET", path=path, status=200)
        self.loop.store.audit.add(entry)
        text = base64.b64encode(content).decode()
        return EvidenceArchive(study=stored.id, sha256=digest, content=text)

    def look(self, study: str, since: datetime | None = None) -> StudyLook:
        """Return a study's gain and cost, with all its trials. Raises NotFound."""
        return self._look(StudyRecord.read(self.loop, self._stored(study)), since)

    def _look(self, record: StudyRecord, since: datetime | None = None) -> StudyLook:
        """Return a study's gain and cost, with all its trials, from a record."""
        view = self._with_held_violations(record.study, record.trials)
        return look(self.loop, record, view, self.price.series, self.price.currency, since)

    def explain(self, study: str, setting: str | None = None) -> ExplanationView:
        """Return a study's explanation by its policy; why `setting` (`knob=value …`) was not chosen.

        Raises NotFound; InvalidInput, UnknownKnob, OutOfRange: the setting is not one of the study.
        """
        return explained(self.loop, self.full_id(study), setting or "")

    def diff_fleet(self, draft: FleetDraft) -> FleetDiff:
        """Return the changes that a fleet file would make, and change nothing.

        Raises:
            ConfigError: the file is not valid; the message names line and key.
        """
        return declared.diff(self.divider, draft)

    def apply_fleet(self, draft: FleetDraft) -> FleetDiff:
        """Make the changes of a fleet file and return them. After an error half-way, apply it again.

        Raises:
            ConfigError: the file is not valid; nothing was changed.
            Conflict: the changes are not the expected ones; nothing was changed.
            DeviceBusy: another request created a study of a device meanwhile.
        """
        return declared.apply(self.divider, draft)

    def export_fleet(self) -> FleetText:
        """Return the active studies and the budgets as a fleet file."""
        return FleetText(text=exported(self.loop))

    def replicas(self) -> list[ReplicaView]:
        """Return the tuners of this database by id, also those without a recent report."""
        now = self.loop.now()
        return [
            ReplicaView(replica=one, told_s=(now - one.seen_at).total_seconds())
            for one in self.loop.store.replicas.list()
        ]

    def events(
        self,
        study: str | None = None,
        device: str | None = None,
        last: int | None = None,
        after: int | None = None,
    ) -> list[Event]:
        """Return the (last) events, oldest first; with `after`, the first ones with a later id."""
        study = self.full_id(study) if study else study
        if after is not None:
            return list(self.loop.store.events.after(after, last, study, device))
        return list(self.loop.store.events.list(study, device, last))

    def follow(
        self, study: str | None = None, device: str | None = None, after: int | None = None
    ) -> Iterator[Event]:
        """Yield events as this or another process stores them: from now on, or after an id."""
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

    def _stored(self, study: str) -> Study:
        """Return the study with this id, or with this prefix of an id."""
        return begun_with(self.loop.store.studies, study)

    def _with_held_violations(self, study: Study, trials: Sequence[Trial]) -> StudyView:
        """Return a study's view with the number of windows of its holds that broke a limit."""
        view = self.under_budget(self._views.one(self.loop, study, trials))
        held = self.loop.store.observations.broken(study.id, view.limits)
        counts = view.violations.model_copy(update={"held": held})
        return view.model_copy(update={"violations": counts})
