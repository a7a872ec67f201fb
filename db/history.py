"""Queries of operators about past trials, over the store, so that each database answers alike.

Verdicts are derived from the stored trials with the study's present limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from tuner.core import (
    Better,
    Candidate,
    Estimate,
    Evidence,
    MetricUnavailable,
    Past,
    Phase,
    Setting,
    Study,
    Trial,
    TrialState,
    TuningError,
    UnreadableStudy,
    Verdict,
    quantity_of,
    weigh,
)
from tuner.rows import StoredRows

if TYPE_CHECKING:
    from db.sql.store import Store

MOST_JUDGED = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuestion:
    """A filter of trials; a field that is None does not filter. `until` itself is excluded."""

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
    """One trial with the circumstances of its study.

    `verdict` is None in three cases: the trial is no evidence; its limits are relative to a baseline that
    is not yet measured; it ran before the driver or workload changed and no longer counts. `load` is the
    load of its window, as far as it was reported. A `censored` trial was cut short for breaking a limit:
    the estimate of that metric in `metrics` is unbounded on the far side.
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


def history(store: Store, question: HistoryQuestion) -> StoredRows[HistoryRow]:
    """Return the trials that match, in order of start.

    Raises:
        NotFound: the question names an unknown study.
    """
    if question.study is not None:
        studies: Sequence[Study | UnreadableStudy] = (store.studies.get(question.study),)
    else:
        studies = store.studies.stored(device=question.device)
    rows, unread = list[HistoryRow](), dict[str, str]()
    for study in studies:
        if _of(study, question):
            trials = store.trials.stored(study.id)
            rows += (row for row in _rows(study, trials) if _matches(row, question))
            unread |= trials.unread
    rows.sort(key=lambda row: (row.started_at, row.study, row.number))
    return StoredRows(rows, unread)


def recent(
    store: Store,
    question: HistoryQuestion,
    last: int,
    skip: int = 0,
    past_of: Callable[[Study], Past | None] | None = None,
) -> StoredRows[HistoryRow]:
    """Return the `last` trials that match, latest start first, after the `skip` latest.

    `past_of` returns the trials from which a study's verdicts are derived, for callers that cache them;
    they need to contain only the baseline's. If it returns None, the study's rows have no verdict. A
    question with a verdict searches the latest `MOST_JUDGED` trials only.

    Raises:
        NotFound: the question names an unknown study.
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
        if study is None:  # created or deleted since the trials were read
            continue
        if study_id not in pasts:
            pasts[study_id] = of(study) if isinstance(study, Study) else None
        row = _row(study, pasts[study_id], trial)
        if question.verdict in (None, row.verdict):
            rows.append(row)
    requested = rows if question.verdict is None else rows[skip : skip + last]
    return StoredRows(requested, latest.unread)


def judging(store: Store, study: Study) -> Past:
    """Return the study with the trials of its baseline: those suffice to judge its other trials."""
    return Past(study=study, trials=tuple(store.trials.tried(study.id, study.baseline)))


def pareto(store: Store, study: str, metrics: Sequence[str] = ()) -> tuple[Candidate, ...]:
    """Return the measured settings that no other setting beats in every metric.

    By default the metrics are both objectives, or the only objective and every constrained metric. Limits
    are not applied. The objective and the constraints define which direction is better; for another metric
    its quantity does, and less is better if that is unknown. Only settings with all the metrics and a
    completed, uncensored window take part. The result is sorted by the first metric, best first.

    Raises:
        NotFound: the study is unknown.
        MetricUnavailable: no trial of the study has a named metric.
    """
    stored = store.studies.get(study)
    return front(stored, weigh(stored, store.trials.list(study)), metrics)


def front(study: Study, evidence: Evidence, metrics: Sequence[str] = ()) -> tuple[Candidate, ...]:
    """Return the result of `pareto` for evidence that is already read. Raises MetricUnavailable."""
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
        # A beaten point is beaten by a point of the front, which is sorted before it.
        if not any(_beats(other, point) for other, _ in kept):
            kept.append((point, c))
    return tuple(c for _, c in kept)


def _rows(study: Study | UnreadableStudy, trials: Sequence[Trial]) -> Iterator[HistoryRow]:
    """Yield the rows of a study's trials."""
    past = Past(study=study, trials=tuple(trials)) if isinstance(study, Study) else None
    for trial in trials:
        yield _row(study, past, trial)


def _row(study: Study | UnreadableStudy, past: Past | None, trial: Trial) -> HistoryRow:
    """Return a trial's row; if it cannot be judged, `reason` names the fault and the other rows remain."""
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
    """Return whether a study matches the filters that concern studies."""
    group = study.group if isinstance(study, Study) else None
    return (
        question.device in (None, *study.devices)
        and question.workload in (None, study.workload)
        and question.group in (None, group)
    )


def _matches(row: HistoryRow, question: HistoryQuestion) -> bool:
    """Return whether a trial matches the filters that concern trials."""
    return (
        question.device in (None, *row.devices)
        and (question.since is None or row.started_at >= question.since)
        and (question.until is None or row.started_at < question.until)
        and question.verdict in (None, row.verdict)
        and question.state in (None, row.state)
    )


def _sign(study: Study, metric: str) -> float:
    """Return +1 if less of the metric is better, -1 if more is."""
    if metric == study.objective.metric:
        return study.objective.sign
    for constraint in study.constraints:
        if constraint.metric == metric:
            return 1.0 if constraint.op == "<=" else -1.0
    return -1.0 if quantity_of(metric, study.quantities).better is Better.MORE else 1.0


def _beats(other: tuple[float, ...], point: tuple[float, ...]) -> bool:
    """Return whether a point is no worse in any coordinate and differs; less is better in each."""
    return other != point and all(a <= b for a, b in zip(other, point, strict=True))
