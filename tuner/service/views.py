"""Views of studies, settings and trials for operators: derived at every look, never stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tuner.core import (
    ANYWHERE,
    ENERGY,
    FOREIGN_LOAD,
    POWER,
    Candidate,
    Evidence,
    Limit,
    Measurement,
    Past,
    Phase,
    Setting,
    Study,
    Trial,
    TrialState,
    UnreadableStudy,
    Verdict,
    called,
    incumbent,
    not_compared,
    setting_key,
)
from tuner.study.confirm import confirmation_load, duel_windows
from tuner.wire import SettingView, StudyView, TrialView, Violations


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
    return StudyView(
        **_stored(study)
        | {
            "limits": evidence.limits or (),
            "phase_why": study.reason or why,
            "trials": {str(s): states.count(s) for s in TrialState if s in states},
            "baseline": setting_view(evidence, study.baseline),
            "best": candidate_view(best) if best else None,
            "violations": violations(past),
            "unmet": unmet(past),
        }
    )


def faulty_view(study: Study, why: str) -> StudyView:
    """Return the view of a study whose full view failed, with the reason and the stored values."""
    shown = f"it cannot be shown: {why}; see the tuner's log"
    return stored_view(study, phase_why=shown, error=why)


def stored_view(study: Study, **more: Any) -> StudyView:  # noqa: ANN401
    """Return the view of a study without its trials, with `more` fields."""
    return StudyView(**_stored(study), trials={}, **more)


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
    return StudyView(**_alike(study), **empty, baseline=baseline, phase_why=study.error)


def _stored(study: Study) -> dict[str, Any]:
    """Return the fields of a view that a study has without its trials."""
    return {
        **_alike(study),
        **study.written,
        "settings": study.space.size,
        "conditions": tuple(str(k) for k in study.space.knobs if k.condition),
        "quantities": dict(study.quantities),
        "baseline": SettingView(setting=study.baseline, metrics={}),
    }


def _alike(study: Study | UnreadableStudy) -> dict[str, Any]:
    """Return the fields that a study and its view have alike."""
    return {n: getattr(study, n) for n in StudyView.model_fields if hasattr(study, n)}


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
    window, load = trial.measurement, trial.context
    return TrialView(
        study=past.study.id,
        number=trial.number,
        attempt=trial.attempt,
        device=trial.device,
        phase=trial.phase,
        state=trial.state,
        setting=trial.setting,
        context=dict(load),
        verdict=past.at(load).verdict(trial),
        metrics=dict(window.estimates) if window else {},
        started_at=trial.started_at,
        ended_at=trial.ended_at,
        censored=trial.censored,
        foreign=_foreign(window),
        notes=_notes(window),
        throttled=window.throttled if window else (),
        why=trial.why,
        reason=trial.reason,
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
