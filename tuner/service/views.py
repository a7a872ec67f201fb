"""Views of studies, settings, trials and plans for operators: derived from stored studies and trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import db
from tuner.core import (
    ACTIVE,
    ANYWHERE,
    ENERGY,
    FOREIGN_LOAD,
    POWER,
    Candidate,
    Device,
    Estimate,
    Evidence,
    Improvement,
    InvalidInput,
    Limit,
    Measurement,
    NotFound,
    Past,
    Phase,
    Plan,
    Row,
    Setting,
    Study,
    StudyStamp,
    Trial,
    TrialState,
    UnreadableStudy,
    Verdict,
    called,
    improvement,
    incumbent,
    not_compared,
    setting_key,
)
from tuner.service.inventory import device_of
from tuner.study.confirm import confirmation_load, duel_windows, row_duel
from tuner.study.exploring import waits_to_explore
from tuner.study.loop import Loop
from tuner.wire import PlanRowView, SettingView, StudyView, TrialView, Violations

MOST_LISTED = 8


def chosen(study: Study, evidence: Evidence) -> Candidate | None:
    """Return the held or proposed setting if it was measured, else the best feasible candidate."""
    plan = study.held or study.proposed
    if plan is not None:
        candidate = evidence.of(plan.chief(study.baseline))
        if candidate is not None:
            return candidate
    return incumbent(study, evidence)


def alternating(past: Past, winner: Setting) -> tuple[list[Trial], list[Trial]] | None:
    """Return the alternating windows of baseline and winner, at the load of the winner's last row.

    None if there are no such windows.
    """
    plan, at = past.study.plan, ANYWHERE
    rows = [r for r in plan.rows if setting_key(r.setting) == setting_key(winner)] if plan else []
    if plan is not None and rows:
        at = confirmation_load(past.study, plan, rows[-1])
    return duel_windows(past.study, past.trials, winner, at)


def study_view(study: Study, trials: Sequence[Trial], why: str) -> StudyView:
    """Return the view of a study, with its best setting and its number of trials in each state."""
    past = Past(study=study, trials=tuple(trials))
    evidence = past.evidence
    states = [t.state for t in trials]
    best = chosen(study, evidence)
    return stored_view(
        study,
        limits=evidence.limits or (),
        phase_why=study.reason or why,
        trials={str(s): states.count(s) for s in TrialState if s in states},
        baseline=setting_view(evidence, study.baseline),
        best=candidate_view(best) if best else None,
        violations=violations(past),
        unmet=unmet(past),
    )


def faulty_view(study: Study, why: str) -> StudyView:
    """Return the view of a study whose full view failed, with the reason and the stored values."""
    shown = f"it cannot be shown: {why}; see the tuner's log"
    return stored_view(study, phase_why=shown, error=why)


def stored_view(study: Study, **more: Any) -> StudyView:  # noqa: ANN401
    """Return the view of a study without its trials, with `more` fields."""
    stored = {
        **study.written,
        "settings": study.space.size,
        "conditions": tuple(str(k) for k in study.space.knobs if k.condition),
        "quantities": dict(study.quantities),
        "baseline": SettingView(setting=study.baseline, metrics={}),
        "trials": {},
    }
    return StudyView.of(study, **stored | more)


def unreadable_view(study: UnreadableStudy) -> StudyView:
    """Return the view of a study that cannot be read, with the reason."""
    empty: dict[str, Any] = {
        "policy": "",
        "objective": "",
        "constraints": (),
        "settings": 0,
        "trials": {},
    }
    baseline = SettingView(setting={}, metrics={})
    return StudyView.of(study, **empty, baseline=baseline, phase_why=study.error)


def unmet(past: Past) -> Limit | None:
    """Return the limit that the held setting is proven to break; None if it breaks no limit."""
    plan = past.study.plan
    if past.study.phase is not Phase.HOLDING or plan is None:
        return None
    for row in plan.rows:
        evidence = past.behind(plan, row)
        held = evidence.of(row.setting)
        if held is None:
            continue
        for limit in evidence.limits or ():
            if limit.verdict(held.estimates.get(limit.metric)) is Verdict.INFEASIBLE:
                return limit
    return None


def violations(past: Past) -> Violations:
    """Return how often, and for how many seconds, trials broke today's limits.

    Trials of the baseline are left out, and those that no longer count: they had another baseline.
    """
    away = [t for t in past.trials if not past.study.rests(t.setting)]
    judged = [(t, past.at(t.context).verdict(t)) for t in away]
    tried = [(t, verdict) for t, verdict in judged if verdict is not None]
    windows = [t.measurement for t, verdict in tried if verdict is Verdict.INFEASIBLE]
    return Violations(
        tried=len(tried),
        broken=len(windows),
        rate=len(windows) / len(tried) if tried else None,
        seconds=math.fsum(w.seconds for w in windows if w is not None),
    )


def setting_view(evidence: Evidence, setting: Setting) -> SettingView:
    """Return a setting with its pooled metrics, which are empty if it was not measured."""
    candidate = evidence.of(setting)
    return candidate_view(candidate) if candidate else SettingView(setting=setting, metrics={})


def candidate_view(candidate: Candidate) -> SettingView:
    """Return a measured setting with its pooled metrics."""
    return SettingView(
        setting=candidate.setting,
        metrics=dict(candidate.estimates),
        verdict=candidate.verdict,
        windows=len(candidate.trials),
    )


def trial_view(past: Past, trial: Trial) -> TrialView:
    """Return a trial with its verdict by the present evidence."""
    window = trial.measurement
    return TrialView.of(
        trial,
        study=past.study.id,
        verdict=past.at(trial.context).verdict(trial),
        metrics=dict(window.estimates) if window else {},
        foreign=_foreign(window),
        notes=_notes(window),
        throttled=window.throttled if window else (),
    )


def _foreign(window: Measurement | None) -> float | None:
    """Return the share of the machine that other processes used; None if it is unknown."""
    if window is None:
        return 0.0
    unknown = FOREIGN_LOAD in window.sources and window.foreign == 0.0
    return None if unknown else window.foreign


def _notes(window: Measurement | None) -> dict[str, str]:
    """Return a window's notes: the entries of its sources that belong to no metric."""
    if window is None:
        return {}
    return {name: text for name, text in window.sources.items() if name not in window.estimates}


def limit_kept(best: Candidate | None) -> bool | None:
    """Return whether the best setting keeps the limits; None if this is unknown."""
    if best is None or best.verdict is Verdict.UNSURE:
        return None
    return best.verdict is Verdict.FEASIBLE


def improved(
    study: Study, before: Mapping[str, Estimate], after: Mapping[str, Estimate]
) -> Improvement | None:
    """Return the improvement of a study's objective between metrics; None if one lacks the metric."""
    base, own = study.objective.score(before), study.objective.score(after)
    return None if base is None or own is None else improvement(base, own, study.objective.sign)


def origins(study: Study, trials: Sequence[Trial]) -> dict[str, str]:
    """Return, by metric, the origin of its values, in words.

    If the latest window allows no check of the energy against the power, the energy's text gives the
    reason.
    """
    labels: dict[str, str] = {}
    for trial in trials:
        if trial.measurement is None:
            continue
        for name, estimate in trial.measurement.estimates.items():
            source = trial.measurement.sources.get(name, "")
            labels[name] = f"{estimate.origin}: {source}" if source else str(estimate.origin)
    latest = next((w for t in reversed(trials) if (w := t.measurement) is not None), None)
    why = "" if latest is None else not_compared(latest, study.quantities)
    if why:
        energy, power = (called(name, study.quantities) for name in (ENERGY, POWER))
        labels[energy] = f"{labels[energy]}; not checked against {power}: {why}"
    return labels


def row_views(past: Past) -> tuple[PlanRowView, ...]:
    """Return the rows of a study's plan; empty if it has one setting for all loads."""
    plan = past.study.plan
    if plan is None or len(plan.rows) < 2:
        return ()
    return tuple(_view(past, plan, row) for row in plan.rows)


def _view(past: Past, plan: Plan, row: Row) -> PlanRowView:
    """Return a row with its metrics: those of its alternating windows, or else of all its windows."""
    behind = past.behind(plan, row)
    candidate = past.at(plan.context(row)).of(row.setting)  # windows at other loads do not count
    confirmed = row_duel(past, plan, row)
    baseline, shown = confirmed or (behind.baseline, candidate.estimates if candidate else {})
    compared = confirmed is not None and not past.study.rests(row.setting)
    gain = improved(past.study, baseline, shown) if compared else None
    return PlanRowView.of(
        row,
        windows=len(candidate.trials) if candidate else 0,
        limits=behind.limits or (),
        metrics=dict(shown),
        baseline=dict(baseline),
        saving=gain.share if gain else None,
    )


class StudyViews:
    """Keeps the view of each study, with the stamp of the state that it shows."""

    def __init__(self) -> None:
        self._cached: dict[str, tuple[StudyStamp, StudyView]] = {}

    def every(self, loop: Loop) -> list[StudyView]:
        """Return all studies, oldest first. A study whose view fails shows the reason and hides none."""
        studies, cached = loop.store.studies, self._cached
        stamps = studies.stamps()
        for outdated in cached.keys() - stamps.keys():
            cached.pop(outdated, None)
        changed = [n for n, stamp in stamps.items() if n not in cached or cached[n][0] != stamp]
        loaded = studies.stored(among=None if len(changed) == len(stamps) else changed)
        fresh = {study.id: study for study in loaded}
        present = _present_on(loop, _devices(loop))
        views = []
        for name in stamps:
            study = fresh.get(name)
            if isinstance(study, UnreadableStudy):
                views.append(unreadable_view(study))
            elif study is not None or name in cached:  # else it was deleted since
                views.append(self._row(loop, name, study, present))
        return views

    def briefs(
        self, loop: Loop, studies: Sequence[tuple[Study | UnreadableStudy, Limit | None]]
    ) -> list[StudyView]:
        """Return present views, each with its unmet limit, without the trials, which are not read."""
        present, rows = _present_on(loop, _devices(loop)), loop.changes.rows("the page of studies")

        def brief(study: Study, unmet: Limit | None) -> StudyView:
            return present(stored_view(study, unmet=unmet))

        return [
            unreadable_view(study)
            if isinstance(study, UnreadableStudy)
            else rows.each(study.id, partial(brief, study, unmet), partial(faulty_view, study))
            for study, unmet in studies
        ]

    def one(self, loop: Loop, study: Study, trials: Sequence[Trial] | None = None) -> StudyView:
        """Return the view of a study; its trials are read if they are not given."""
        return _present_on(loop, {})(self._kept(loop, study, trials))

    def _row(
        self, loop: Loop, name: str, study: Study | None, present: Callable[[StudyView], StudyView]
    ) -> StudyView:
        """Return the view of a study in the list; if that fails, with the reason."""
        return loop.changes.rows("the list of studies").each(
            name,
            lambda: present(self._cached[name][1] if study is None else self._kept(loop, study)),
            lambda why: faulty_view(study or loop.store.studies.get(name), why),
        )

    def _kept(self, loop: Loop, study: Study, trials: Sequence[Trial] | None = None) -> StudyView:
        """Return a study's cached view, computed again if the study or its trials have changed."""
        listed = loop.changes.trials(study.id) if trials is None else trials
        running = sum(not trial.state.final for trial in listed)
        stamp = StudyStamp(study.created_at, study.revision, len(listed), running)
        cached_stamp, view = self._cached.get(study.id, (None, None))
        if view is None or cached_stamp != stamp:  # ended trials do not change
            view = study_view(study, listed, loop.store.studies.latest(study.id).why)
            self._cached[study.id] = stamp, view
        return view


def _devices(loop: Loop) -> Mapping[str, Device]:
    """Return all devices by id, for the views of many studies."""
    return {device.id: device for device in loop.store.devices.list()}


def _present_on(loop: Loop, read: Mapping[str, Device]) -> Callable[[StudyView], StudyView]:
    """Return what adds a view's present obstacles, which change without a change of the study.

    Devices that are not among those `read` are read.
    """
    stopped, here = loop.store.stops.current() is not None, loop.presence

    def present(view: StudyView) -> StudyView:
        active = view.phase in ACTIVE
        devices = [read.get(n) or device_of(loop, n) for n in view.devices] if active else []
        now = {
            "offline": tuple(d.id for d in devices if not here.online(d, view)),
            "unable": here.unable(view.devices) if active else "",
            "stopped": stopped,
            "waits": waits_to_explore(view.exploration, loop.now()) if active else "",
        }
        return view.model_copy(update=now)

    return present


def begun_with(studies: db.Studies, name: str) -> Study:
    """Return the study with this id, or else the only study whose id begins with it.

    Raises:
        NotFound: no id begins with it.
        InvalidInput: several ids begin with it.
        Unreadable: the study cannot be read.
    """
    try:
        return studies.get(name)
    except NotFound:
        matches = [study for study in studies.ids() if name and study.startswith(name)]
        if not matches:
            raise
    if len(matches) == 1:
        return studies.get(matches[0])
    shown = studies.stored(among=matches[:MOST_LISTED])
    listed = ", ".join(f"{study.id} ({study.phase})" for study in shown)
    more = f" and {len(matches) - MOST_LISTED} more" if len(matches) > MOST_LISTED else ""
    raise InvalidInput(
        f"{len(matches)} studies begin with {name!r}: {listed}{more}",
        hint="give more characters of the id",
    )
