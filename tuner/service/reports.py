"""The report of a study: its gain and its bill, from its trials and from the windows of its holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from db.history import front
from tuner.core import (
    ENERGY,
    BaselineCourse,
    BaselineShift,
    Improvement,
    MetricSample,
    Objective,
    Past,
    Revision,
    Study,
    TimeSeries,
    Trial,
    TrialState,
    called,
    counted,
    draw_up,
    held_since,
    improvement,
    pool_windows,
    setting_key,
)
from tuner.moments import when
from tuner.service.plan_views import row_views
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
from tuner.wire import SettingView, StudyReport, StudyView, TrialView

PERIODS = {
    "last 24 h": timedelta(hours=24),
    "last 7 d": timedelta(days=7),
    "last 30 d": timedelta(days=30),
}
"""The periods whose saving is reported separately, beside that of the present hold."""


@dataclass(frozen=True, slots=True)
class StudyLook:
    """A study's report, trials and Pareto front, from one reading of its trials.

    `front` are the settings that no other beats in the objective and the limits.
    """

    report: StudyReport
    trials: tuple[TrialView, ...]
    front: tuple[SettingView, ...]


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """A study with its trials, revisions and held windows, each read once.

    A report and its evidence are made of the same record: a window that is stored meanwhile is in neither.
    """

    study: Study
    trials: Sequence[Trial]
    revisions: Sequence[Revision]
    held: Sequence[MetricSample]

    @classmethod
    def read(cls, loop: Loop, study: Study) -> StudyRecord:
        """Return the present record of a study; revisions are as new as the trials or newer."""
        trials = loop.store.trials.list(study.id)
        held = held_samples(loop, study, trials)
        return cls(study, trials, loop.store.studies.revisions(study.id), held)


def look(
    loop: Loop,
    record: StudyRecord,
    view: StudyView,
    prices: Mapping[str, TimeSeries],
    currency: str,
    since: datetime | None = None,
) -> StudyLook:
    """Return a study's report with all its trials.

    With `since`, the saving since that time replaces those of the usual periods.
    """
    study, trials, revisions = record.study, record.trials, record.revisions
    past = Past(study=study, trials=tuple(trials))
    best = chosen(study, past.evidence)
    baseline = setting_view(past.evidence, study.baseline)
    shown = candidate_view(best) if best else None
    winner = best if best and not study.rests(best.setting) else None
    windows = alternating(past, winner.setting) if winner else None
    if windows is not None and shown is not None:
        before, after = (pool_windows([t.shown for t in own], study.quantities) for own in windows)
        baseline = baseline.model_copy(update={"metrics": before})
        shown = shown.model_copy(update={"metrics": after})
    views = [trial_view(past, trial) for trial in trials]
    shift = next(reversed(baseline_shifts(study, trials)), None)
    present = _shifted(study.objective, baseline, shift)
    gain = _improvement(study.objective, present, shown) if winner else None
    ended = (TrialState.COMPLETED, TrialState.RUNNING)
    report = StudyReport(
        study=view,
        baseline=baseline,
        best=shown,
        alternating=windows is not None,
        saving=gain.share if gain else None,
        difference=gain.amount if gain and not gain.relative else None,
        baseline_shift=shift,
        limit_kept=limit_kept(best),
        bill=replace(
            draw_up(
                trials,
                present.metrics,
                shown.metrics if shown and winner else {},
                record.held,
                revisions,
                study.quantities,
                BaselineCourse.of(study, trials),
                len(study.devices),
                setting_key(study.baseline),
                prices,
                _periods(revisions, loop.now(), since),
            ).ascribed(study.terms.energy_share or 1.0),
            currency=currency,
        ),
        origins=origins(study, trials),
        failures=tuple(v for v in views if v.state not in ended),
        rows=row_views(past),
    )
    unbeaten = tuple(candidate_view(c) for c in front(study, past.evidence))
    return StudyLook(report=report, trials=tuple(views), front=unbeaten)


def _periods(
    revisions: Sequence[Revision], now: datetime, since: datetime | None
) -> dict[str, datetime]:
    """Return the start of each period whose saving is reported separately, by name."""
    if since is not None:
        return {f"since {when(since)}": since}
    begun = held_since(revisions)
    ago = {name: now - length for name, length in PERIODS.items()}
    return ago if begun is None else {**ago, "this hold": begun}


def held_samples(loop: Loop, study: Study, trials: Sequence[Trial]) -> Sequence[MetricSample]:
    """Return the held windows that can be compared with the study's baseline.

    A study of several devices has no such window: a window measures one device, the baseline all of them.
    Windows before the evidence started again have lost their baseline, and are left out.
    """
    since = min((t.started_at for t in counted(study, trials)), default=None)
    if since is None or len(study.devices) > 1:
        return ()
    energy = called(ENERGY, study.quantities)
    return loop.store.observations.samples(study.id, energy, since)


def _shifted(
    objective: Objective, baseline: SettingView, shift: BaselineShift | None
) -> SettingView:
    """Return the baseline with the objective's metric moved to its level in the control windows."""
    metric, metrics = objective.metric, baseline.metrics
    if shift is None or metric not in metrics:
        return baseline
    return baseline.model_copy(update={"metrics": {**metrics, metric: shift.now(metrics[metric])}})


def _improvement(
    objective: Objective, baseline: SettingView, best: SettingView | None
) -> Improvement | None:
    """Return the improvement of the objective over the baseline; None if one of them lacks the metric."""
    before = objective.score(baseline.metrics)
    after = objective.score(best.metrics) if best else None
    if before is None or after is None:
        return None
    return improvement(before, after, objective.sign)
