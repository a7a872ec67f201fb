"""What operators ask of the past, over the ports and so the same for every database.

Verdicts are derived here from what is stored, with the study's limits of today.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from tuner.core import (
    Better,
    Candidate,
    Estimate,
    Evidence,
    MetricUnavailable,
    Past,
    Phase,
    Setting,
    Store,
    Study,
    Trial,
    TrialState,
    TuningError,
    UnreadableStudy,
    Verdict,
    quantity_of,
    weigh,
)

MOST_JUDGED = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuestion:
    """Which trials are requested; what is None does not narrow. `until` itself is not included."""

    device: str | None = None
    workload: str | None = None
    study: str | None = None
    group: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    verdict: Verdict | None = None
    state: TrialState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One trial with its study's circumstances.

    `verdict` is None where the trial is no evidence, where its limits are relative to a baseline not
    yet measured, and where it was made before driver or workload changed: then it no longer counts.
    `load` is that of its window, as far as it was reported. `censored` trials were cut short for
    breaking a limit: `metrics` has that one open at its far end.
    """

    study: str
    number: int
    attempt: int
    devices: tuple[str, ...]
    workload: str
    phase: Phase
    state: TrialState
    verdict: Verdict | None
    setting: Setting
    load: dict[str, float]
    metrics: dict[str, Estimate]
    started_at: datetime
    ended_at: datetime | None
    censored: bool
    reason: str
    why: str


def history(store: Store, question: HistoryQuestion) -> tuple[HistoryRow, ...]:
    """Return the trials asked for, by start.

    Raises:
        NotFound: the question names a study that is not there.
    """
    if question.study is not None:
        studies: Sequence[Study | UnreadableStudy] = (store.studies.get(question.study),)
    else:
        studies = store.studies.stored(device=question.device)
    rows = [
        row
        for study in studies
        if _of(study, question)
        for row in _rows(study, store.trials.list(study.id))
        if _matches(row, question)
    ]
    return tuple(sorted(rows, key=lambda row: (row.started_at, row.study, row.number)))


def recent(
    store: Store,
    question: HistoryQuestion,
    last: int,
    skip: int = 0,
    past_of: Callable[[Study], Past | None] | None = None,
) -> tuple[HistoryRow, ...]:
    """Return the latest of the trials asked for, latest start first, but for `skip` of them.

    `past_of` gives what a study's verdicts are derived from, where it is cached: all that counts
    is its baseline; None leaves them out. With a verdict asked for, of the latest `MOST_JUDGED` trials
    at most.

    Raises:
        NotFound: the question names a study that is not there.
    """
    among: Sequence[str] | None = None
    if question.study is not None:
        named = store.studies.get(question.study)
        among = (named.id,) if _of(named, question) else ()
    elif question.device or question.workload or question.group:
        among = store.studies.ids(question.device, question.workload, group=question.group)
    pasts: dict[str, Past | None] = {}
    of: Callable[[Study], Past | None] = past_of or (lambda study: judging(store, study))
    page, offset = (last, skip) if question.verdict is None else (MOST_JUDGED, 0)
    latest = store.trials.latest(
        page, offset, among, question.since, question.until, question.state, question.device
    )
    studies = {s.id: s for s in store.studies.stored(among={study for study, _ in latest})}
    rows = []
    for study_id, trial in latest:
        study = studies.get(study_id)
        if study is None:  # made or deleted since
            continue
        if study_id not in pasts:
            pasts[study_id] = of(study) if isinstance(study, Study) else None
        row = _row(study, pasts[study_id], trial)
        if question.verdict in (None, row.verdict):
            rows.append(row)
    return tuple(rows if question.verdict is None else rows[skip : skip + last])


def judging(store: Store, study: Study) -> Past:
    """Return what is needed of a study's past to judge its trials: those of its baseline."""
    return Past(study=study, trials=tuple(store.trials.tried(study.id, study.baseline)))


def pareto(store: Store, study: str, metrics: Sequence[str] = ()) -> tuple[Candidate, ...]:
    """Return the measured settings that no other beats in every one of the metrics.

    By default both objectives, or the only one against every constrained metric; whether the limits are
    kept or not.
    The objective and the constraints say which way is better, of other metrics what they mean; less is
    where unknown. Only settings with a completed, uncensored window and all the metrics take part;
    they come best first by the first metric.

    Raises:
        NotFound: there is no such study.
        MetricUnavailable: no trial of the study showed a metric that is named.
    """
    stored = store.studies.get(study)
    return front(stored, weigh(stored, store.trials.list(study)), metrics)


def front(study: Study, evidence: Evidence, metrics: Sequence[str] = ()) -> tuple[Candidate, ...]:
    """Return what `pareto` does, of evidence that was read before. Raises MetricUnavailable."""
    candidates = [c for c in evidence.candidates if c.deployable]
    second = study.second_objective
    others = [second.metric] if second else [c.metric for c in study.constraints]
    chosen = metrics or (study.objective.metric, *others)
    names = tuple(dict.fromkeys(chosen))
    measured = dict.fromkeys(name for c in candidates for name in c.estimates)
    missing = [name for name in metrics if name not in measured]
    if missing:
        raise MetricUnavailable(
            f"no completed trial of study {study.id!r} has {', '.join(missing)}",
            hint=f"available metrics: {', '.join(measured) or 'none yet'}",
        )
    signs = [_sign(study, name) for name in names]
    points = [
        (tuple(s * c.estimates[n].mean for s, n in zip(signs, names, strict=True)), c)
        for c in candidates
        if all(name in c.estimates for name in names)
    ]
    kept: list[tuple[tuple[float, ...], Candidate]] = []
    for point, c in sorted(points, key=lambda item: item[0]):
        # One that is beaten at all is beaten by one of the front, and that comes before it.
        if not any(_beats(other, point) for other, _ in kept):
            kept.append((point, c))
    return tuple(c for _, c in kept)


def _rows(study: Study | UnreadableStudy, trials: Sequence[Trial]) -> Iterator[HistoryRow]:
    past = Past(study=study, trials=tuple(trials)) if isinstance(study, Study) else None
    for trial in trials:
        yield _row(study, past, trial)


def _row(study: Study | UnreadableStudy, past: Past | None, trial: Trial) -> HistoryRow:
    """Return a trial's row; where it cannot be judged its reason says so, and the other rows stay."""
    verdict, reason = None, trial.reason
    fault = study.error if isinstance(study, UnreadableStudy) else ""
    try:
        verdict = past.at(trial.context).verdict(trial) if past is not None else None
    except (ArithmeticError, ValueError, TuningError) as error:
        fault = str(error)
    if fault:
        reason = "; ".join(filter(None, (reason, f"cannot be judged: {fault}")))
    return HistoryRow(
        study=study.id,
        number=trial.number,
        attempt=trial.attempt,
        devices=trial.on(study.devices),
        workload=study.workload,
        phase=trial.phase,
        state=trial.state,
        verdict=verdict,
        setting=trial.setting,
        load=dict(trial.ran_at),
        metrics=dict(trial.shown),
        started_at=trial.started_at,
        ended_at=trial.ended_at,
        censored=trial.censored,
        reason=reason,
        why=trial.why,
    )


def _of(study: Study | UnreadableStudy, question: HistoryQuestion) -> bool:
    group = study.group if isinstance(study, Study) else None
    return (
        question.device in (None, *study.devices)
        and question.workload in (None, study.workload)
        and question.group in (None, group)
    )


def _matches(row: HistoryRow, question: HistoryQuestion) -> bool:
    return (
        question.device in (None, *row.devices)
        and (question.since is None or row.started_at >= question.since)
        and (question.until is None or row.started_at < question.until)
        and question.verdict in (None, row.verdict)
        and question.state in (None, row.state)
    )


def _sign(study: Study, metric: str) -> float:
    """Return +1 where less of the metric is better, -1 where more is."""
    if metric == study.objective.metric:
        return study.objective.sign
    for constraint in study.constraints:
        if constraint.metric == metric:
            return 1.0 if constraint.op == "<=" else -1.0
    return -1.0 if quantity_of(metric, study.quantities).better is Better.MORE else 1.0


def _beats(other: tuple[float, ...], point: tuple[float, ...]) -> bool:
    return other != point and all(a <= b for a, b in zip(other, point, strict=True))
