"""Metrics over time, of windows of holds and trials in one statement: for charts, not for judgement."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    CTE,
    ColumnElement,
    Connection,
    Dialect,
    Integer,
    ScalarSelect,
    Select,
    Subquery,
    Text,
    and_,
    cast,
    column,
    extract,
    func,
    literal,
    null,
    or_,
    select,
    true,
    union_all,
    values,
)

from db.schema import EstimateRow, MeasurementRow, ObservationRow, StudyRow, TrialRow
from db.sql.observed import of_metrics
from tuner.core import MetricCourse, WindowPoint


def points(connection: Connection, query: Select[Any]) -> Sequence[WindowPoint]:
    """Return the points that the statement of `course` selects, by time."""
    return tuple(
        WindowPoint(
            study=row.study,
            device=row.device or "",
            metric=row.metric,
            at=datetime.fromtimestamp(float(row.at_s), UTC),
            mean=row.mean,
            least=row.least,
            most=row.most,
        )
        for row in connection.execute(query)
    )


def metric_courses(connection: Connection, query: Select[Any]) -> Sequence[MetricCourse]:
    """Return the courses that the statement of `recent` selects, each by time."""
    courses = []
    for row in connection.execute(query):
        points = sorted((at_s, mean) for at_s, mean in json.loads(row.pairs) if mean is not None)
        if points:
            courses.append(
                MetricCourse(
                    study=row.study,
                    device=row.device or "",
                    metric=row.metric,
                    points=tuple(points),
                )
            )
    return tuple(courses)


def recent(
    studies: Collection[str],
    metrics: Collection[str],
    since: datetime,
    last: int,
    dialect: Dialect,
) -> Select[Any]:
    """Return the statement that selects each device's last windows in some studies, one row per metric."""
    begun = _begun(studies, since, last)
    place = func.row_number().over(
        partition_by=(begun.c.study, begun.c.device), order_by=begun.c.at.desc()
    )
    ranked = select(begun, place.label("place")).subquery()
    of_hold = MeasurementRow.observation_id == ranked.c.observation
    of_trial = and_(MeasurementRow.study == ranked.c.study, MeasurementRow.trial == ranked.c.number)
    window = func.coalesce(*(_window_of(which) for which in (of_hold, of_trial)))
    windows = (
        select(ranked.c.study, ranked.c.device, ranked.c.at, window.label("window"))
        .where(ranked.c.place <= last)
        .cte("windows")
    )
    shown = union_all(*(_of_metric(windows, metric) for metric in sorted(metrics))).subquery()
    # Aggregated as JSON: to fetch one row per window takes ten times as long as the query itself.
    postgres = dialect.name == "postgresql"
    pair = func.json_build_array if postgres else func.json_array
    every = func.json_agg if postgres else func.json_group_array
    pairs = cast(every(pair(extract("epoch", shown.c.at), shown.c.mean)), Text)
    return select(shown.c.study, shown.c.device, shown.c.metric, pairs.label("pairs")).group_by(
        shown.c.study, shown.c.device, shown.c.metric
    )


def _begun(studies: Collection[str], since: datetime, last: int) -> Subquery:
    """Return the windows of holds that began since a time, and of the last trials of each study."""
    held = select(
        ObservationRow.study,
        ObservationRow.device,
        ObservationRow.started_at.label("at"),
        ObservationRow.id.label("observation"),
        cast(null(), Integer).label("number"),
    ).where(ObservationRow.study.in_(studies), ObservationRow.started_at >= since)
    # Trials are numbered without gaps. Listed by number, the last of millions are found by key. For a range
    # PostgreSQL expects a third of all rows, and reads the whole tables.
    back = values(column("n", Integer), name="back").data([(n,) for n in range(last)]).cte()
    numbered = (
        select(StudyRow.id, (StudyRow.last_trial - back.c.n).label("number"))
        .join(back, true())
        .where(StudyRow.id.in_(studies))
        .subquery()
    )
    own = and_(TrialRow.study == numbered.c.id, TrialRow.number == numbered.c.number)
    tried = (
        select(
            TrialRow.study,
            TrialRow.device,
            TrialRow.started_at,
            cast(null(), Integer),
            TrialRow.number,
        )
        .join(numbered, own)
        .where(TrialRow.started_at >= since)
    )
    return union_all(held, tried).subquery()


def course(
    device: str,
    studies: Collection[str],
    metrics: Collection[str],
    since: datetime,
    step_s: float,
) -> Select[Any]:
    """Return the statement that selects a device's windows since a time, averaged per step of `step_s`."""
    held = _held().where(
        ObservationRow.study.in_(studies),
        ObservationRow.device == device,
        ObservationRow.started_at >= since,
    )
    tried = _tried().where(
        TrialRow.study.in_(studies),
        TrialRow.started_at >= since,
        or_(TrialRow.device.is_(None), TrialRow.device == device),
    )
    windows = union_all(held, tried).cte("windows")
    # One look-up by key per window and metric: for a join PostgreSQL expects a tenth of all windows, and
    # reads every estimate.
    each = union_all(*(_of_metric(windows, metric) for metric in sorted(metrics))).subquery()
    in_studies = select(each.c.at, each.c.metric, each.c.mean)
    shown = union_all(in_studies, of_metrics(device, metrics, since)).subquery()
    at_s = extract("epoch", shown.c.at)
    step = cast(at_s / step_s, Integer)
    mean_at = func.avg(at_s)
    return (
        select(
            literal("").label("study"),
            literal(device).label("device"),
            shown.c.metric,
            mean_at.label("at_s"),
            func.avg(shown.c.mean).label("mean"),
            func.min(shown.c.mean).label("least"),
            func.max(shown.c.mean).label("most"),
        )
        .where(shown.c.mean.is_not(None))
        .group_by(shown.c.metric, step)
        .order_by(mean_at)
    )


def _window_of(which: ColumnElement[bool]) -> ScalarSelect[int]:
    """Return the subquery of the id of the window that matches a condition."""
    return select(MeasurementRow.id).where(which).scalar_subquery()


def _of_metric(windows: CTE, metric: str) -> Select[Any]:
    """Return the statement that adds a metric's mean to each window, null if the window lacks it."""
    mean = (
        select(EstimateRow.mean)
        .where(EstimateRow.measurement_id == windows.c.window, EstimateRow.metric == metric)
        .scalar_subquery()
    )
    query: Any = select(windows, literal(metric).label("metric"), mean.label("mean"))
    return query  # type: ignore[no-any-return]


def _held() -> Select[Any]:
    """Return the statement of all windows of holds."""
    return _windows(ObservationRow, MeasurementRow.observation_id == ObservationRow.id)


def _tried() -> Select[Any]:
    """Return the statement of all windows of trials."""
    own = and_(MeasurementRow.study == TrialRow.study, MeasurementRow.trial == TrialRow.number)
    return _windows(TrialRow, own)


def _windows(of: type[ObservationRow | TrialRow], own: ColumnElement[bool]) -> Select[Any]:
    """Return the statement of all windows of one table, joined by a condition."""
    windows: Any = select(
        of.study, of.device, of.started_at.label("at"), MeasurementRow.id.label("window")
    )
    query: Select[Any] = windows.join(MeasurementRow, own)
    return query
