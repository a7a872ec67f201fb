"""The report of a study, its gain and its bill; the effect of constraints on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from db.history import front
from tuner.core import (
    ENERGY,
    BaselineCourse,
    BaselineShift,
    MetricSample,
    Objective,
    Past,
    Phase,
    Plan,
    Revision,
    Study,
    TimeSeries,
    Trial,
    TrialState,
    Verdict,
    called,
    counted,
    draw_up,
    held_since,
    pool_windows,
    setting_key,
    weigh,
)
from tuner.moments import when
from tuner.service.views import (
    alternating,
    candidate_view,
    chosen,
    improved,
    limit_kept,
    origins,
    row_views,
    setting_view,
    trial_view,
)
from tuner.study.control import baseline_shifts
from tuner.study.loop import Loop
from tuner.wire import (
    ConstraintEffect,
    ConstraintPreview,
    ConstraintRevision,
    HeldUnder,
    SettingView,
    StudyReport,
    StudyView,
    TrialView,
)

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
    gain = improved(study, present.metrics, shown.metrics) if winner and shown else None
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


def constraint_changes(
    study: Study, revisions: Sequence[Revision], trials: Sequence[Trial]
) -> list[ConstraintRevision]:
    """Return the revisions that changed a study's constraints, oldest first, with the effect of each.

    The first revision is always included, without an effect. A setting's metrics are those of its trials
    that count today; its limits are those of the revision.
    """
    starts = [
        n
        for n, one in enumerate(revisions)
        if n == 0 or one.study.constraints != revisions[n - 1].study.constraints
    ]
    changes, past = [], Past(study=study, trials=tuple(trials))
    for start, end in zip(starts, [*starts[1:], len(revisions)], strict=True):
        own = revisions[start]
        before = revisions[start - 1] if start else None
        earlier = () if before is None else before.study.constraints
        changes.append(
            ConstraintRevision.of(
                own,
                revision=own.study.revision,
                constraints=tuple(map(str, own.study.constraints)),
                added=tuple(str(c) for c in own.study.constraints if c not in earlier),
                removed=tuple(str(c) for c in earlier if c not in own.study.constraints),
                effect=None if before is None else _effect(past, before, revisions[start:end]),
            )
        )
    return changes


def _effect(past: Past, before: Revision, under: Sequence[Revision]) -> ConstraintEffect:
    """Return the effect of a change of the constraints.

    `before` is the revision before the change; `under` are the revisions with the new constraints, the
    change itself first.
    """
    then, now = before.study.held, under[0].study.held
    old = None if then is None else _held(past, before.study, then)
    if then is not None and _same(then, now):
        return ConstraintEffect(result="kept", before=old, after=_held(past, under[0].study, then))
    later = next((r for r in under if r.study.held is not None), None)
    if later is not None and later.study.held is not None:
        after = _held(past, later.study, later.study.held)
        same = _same(later.study.held, then)
        return ConstraintEffect(
            result="same" if same else "other", before=old, after=after, held_at=later.at
        )
    last = under[-1].study
    ended = last.revision < past.study.revision or last.phase is Phase.STOPPED
    return ConstraintEffect(result="ended" if ended else "searching", before=old)


def _same(one: Plan, other: Plan | None) -> bool:
    """Return whether two plans hold the same settings."""
    if other is None:
        return False
    ours, theirs = ({setting_key(row.setting) for row in plan.rows} for plan in (one, other))
    return ours == theirs


def _held(past: Past, study: Study, plan: Plan) -> HeldUnder:
    """Return a held setting with its metrics, limits and saving under a revision's constraints."""
    chief = plan.chief(study.baseline)
    shown = setting_view(past.evidence, chief)
    gain = None if study.rests(chief) else improved(study, past.evidence.baseline, shown.metrics)
    return HeldUnder(
        setting=shown,
        limits=tuple(weigh(study, past.trials).limits or ()),
        saving=gain.share if gain else None,
    )


def preview(now: Study, then: Study, trials: Sequence[Trial], more: int) -> ConstraintPreview:
    """Return the differences between two revisions of a study, judged by the same trials.

    `more` is the number of trials that the second revision adds.
    """
    before, after = _verdicts(now, trials), _verdicts(then, trials)
    best = [chosen(s, Past(study=s, trials=tuple(trials)).evidence) for s in (now, then)]
    views = [candidate_view(candidate) if candidate else None for candidate in best]
    return ConstraintPreview(
        study=now.id,
        constraints=tuple(str(c) for c in then.constraints),
        judged=len(after),
        before=_counted(before),
        after=_counted(after),
        flipped=tuple(n for n in after if before.get(n) is not after[n]),
        best_before=views[0],
        best_after=views[1],
        phase=then.phase,
        stays=then.phase is now.phase and then.plan == now.plan,
        more_trials=more,
    )


def _verdicts(study: Study, trials: Sequence[Trial]) -> dict[int, Verdict]:
    """Return the verdicts by trial number under a study's limits; trials that do not count are left out."""
    past = Past(study=study, trials=tuple(trials))
    judged = {t.number: past.at(t.context).verdict(t) for t in trials}
    return {number: verdict for number, verdict in judged.items() if verdict is not None}


def _counted(verdicts: dict[int, Verdict]) -> dict[str, int]:
    """Return the number of trials with each verdict, also if it is 0."""
    counts = Counter(verdicts.values())
    return {str(verdict): counts[verdict] for verdict in Verdict}
