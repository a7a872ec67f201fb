"""Observations and events over SQLAlchemy: rows that accumulate and are pruned by age."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Select, Text, and_, cast, func, insert, or_, select, text

from db import refusals
from db.codec import Json
from db.schema import EstimateRow, EventRow, MeasurementRow, ObservationRow, ObservedRow, StudyRow
from db.sql.bus import Bus
from db.sql.courses import course, metric_courses, points, recent
from db.sql.database import Database, Refused, insert_into
from db.sql.observed import keep_observed, observed, recently_observed
from db.sql.rows import EVENTS, OBSERVATIONS, readable, without_id
from db.sql.tables import pruned
from db.sql.windows import OF_WINDOWS, keep_windows, shown
from tuner.core import (
    Event,
    Limit,
    Measurement,
    MetricCourse,
    MetricSample,
    Notice,
    Observation,
    SettingKey,
    Topic,
    WindowPoint,
    setting_key,
)

WINDOW_ROWS = ObservationRow, ObservedRow
"""The tables of windows outside trials; both are pruned."""
KEY = ObservationRow.study, ObservationRow.device, ObservationRow.started_at


class Observations:
    """Observations in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_all(self, observations: Sequence[Observation]) -> Sequence[bool]:
        """Store observations in one transaction; return for each whether it is new. Raises NotFound.

        One without a study is of a device that is only observed.
        """
        own = {_key(o): o for o in reversed(observations) if o.study}
        alone = {_key(o): o for o in reversed(observations) if not o.study}
        new = dict[tuple[str, str, datetime], int]()
        try:
            with self._database.write() as connection:
                if own:
                    added = connection.execute(
                        insert_into(connection, ObservationRow)
                        .on_conflict_do_nothing()
                        .returning(ObservationRow.id, *KEY),
                        [
                            OBSERVATIONS.values(o) | {"started_at": o.measurement.started_at}
                            for o in own.values()
                        ],
                    )
                    new = {(study, device, at): number for number, study, device, at in added}
                windows = [(own[key].measurement, {"observation_id": i}) for key, i in new.items()]
                keep_windows(connection, windows)
                observed = keep_observed(connection, [*alone.values()]) if alone else set()
        except Refused as error:
            self._refuse_unknown({study for study, _, _ in own}, error)
            raise
        return [
            (own | alone)[_key(o)] is o and _key(o) in new.keys() | observed for o in observations
        ]

    def _refuse_unknown(self, studies: Collection[str], error: Refused) -> None:
        """Raise NotFound for the first of these studies that does not exist."""
        with self._database.look() as connection:
            existing = connection.scalars(select(StudyRow.id).where(StudyRow.id.in_(studies))).all()
        for name in sorted({*studies} - {*existing}):
            raise refusals.no_study(name) from error

    def list(self, study: str, last: int | None = None) -> Sequence[Observation]:
        """Return the `last` observations of a study, oldest first; all of them if it is None."""
        of_study = (
            select(ObservationRow.id)
            .where(ObservationRow.study == study)
            .order_by(ObservationRow.at.desc(), ObservationRow.id.desc())
            .limit(last)
        )
        with self._database.read() as connection:
            query = OBSERVATIONS.all.add_columns(ObservationRow.id)
            rows = connection.execute(query.where(ObservationRow.id.in_(of_study))).all()
            windows = shown(
                connection, OF_WINDOWS.where(MeasurementRow.observation_id.in_(of_study))
            )
        rows = sorted(rows, key=lambda row: (row.at, row.id))
        return tuple(OBSERVATIONS.read(row, measurement=windows[row.id]) for row in rows)

    def oldest(self) -> datetime | None:
        """Return the time of the oldest observation, None if there are none."""
        with self._database.look() as connection:
            times = [connection.scalar(select(func.min(of.at))) for of in WINDOW_ROWS]
        return min((at for at in times if at is not None), default=None)

    def samples(
        self, study: str, metric: str, since: datetime, last: int | None = None
    ) -> Sequence[MetricSample]:
        """Return the `last` windows with a metric that began since a time, by start; all if it is None."""
        started_at = ObservationRow.started_at
        # Subqueries by key: for a join PostgreSQL reads the estimates of all studies.
        mean, stderr = (
            select(of_metric)
            .where(
                EstimateRow.measurement_id == MeasurementRow.id,
                EstimateRow.metric == metric,
            )
            .scalar_subquery()
            for of_metric in (EstimateRow.mean, EstimateRow.stderr)
        )
        query = (
            select(
                started_at,
                ObservationRow.at,
                MeasurementRow.seconds,
                # As text: months of windows have few distinct settings, and each is decoded once.
                cast(ObservationRow.setting, Text).label("setting"),
                MeasurementRow.context,
                MeasurementRow.completed,
                mean.label("mean"),
                stderr.label("stderr"),
                ObservationRow.speaks_s,
            )
            .join(MeasurementRow, MeasurementRow.observation_id == ObservationRow.id)
            .where(ObservationRow.study == study, started_at >= since, mean.is_not(None))
            .order_by(started_at.desc(), ObservationRow.id.desc())
            .limit(last)
        )
        keys: dict[str, SettingKey] = {}
        with self._database.look() as connection:
            rows: Sequence[Any] = connection.execute(query).all()
        samples = [_sample(keys, *row) for row in rows]
        return tuple(reversed(samples))

    def broken(self, study: str, limits: Sequence[Limit]) -> int:
        """Return the number of windows of a study whose interval lies wholly beyond a limit."""
        if not limits:
            return 0
        beyond = [
            and_(
                EstimateRow.metric == limit.metric,
                EstimateRow.low > limit.value
                if limit.op == "<="
                else EstimateRow.high < limit.value,
            )
            for limit in limits
        ]
        query = (
            select(func.count(func.distinct(ObservationRow.id)))
            .join(MeasurementRow, MeasurementRow.observation_id == ObservationRow.id)
            .join(EstimateRow, EstimateRow.measurement_id == MeasurementRow.id)
            .where(ObservationRow.study == study, or_(*beyond))
        )
        with self._database.look() as connection:
            return connection.scalar(query) or 0

    def recent(
        self,
        studies: Collection[str],
        metrics: Collection[str],
        since: datetime,
        last: int,
        devices: Collection[str] = (),
    ) -> Sequence[MetricCourse]:
        """Return metrics over each device's `last` windows in some studies, and of observed `devices`."""
        courses: list[MetricCourse] = []
        with self._database.look() as connection:
            if studies and metrics:
                query = recent(studies, metrics, since, last, connection.dialect)
                courses += metric_courses(connection, query)
            if devices and metrics:
                courses += recently_observed(connection, devices, metrics, since, last)
        return tuple(courses)

    def observed(self, device: str, since: datetime, last: int) -> Sequence[Measurement]:
        """Return the `last` windows since a time in which a device was only observed, by start."""
        with (
            self._database.look() as connection,
            self._database.reading(f"the windows of {device!r}"),
        ):
            return observed(connection, device, since, last)

    def course(
        self,
        device: str,
        studies: Collection[str],
        metrics: Collection[str],
        since: datetime,
        step_s: float,
    ) -> Sequence[WindowPoint]:
        """Return metrics of a device's windows since a time, one point per `step_s` seconds, by start."""
        with self._database.look() as connection:
            return points(connection, course(device, studies, metrics, since, step_s))

    def prune(self, before: datetime) -> int:
        """Delete the observations made before a time and return their number."""
        return sum(pruned(self._database, of, of.at < before) for of in WINDOW_ROWS)


class Events:
    """Events in a database."""

    def __init__(self, database: Database, bus: Bus) -> None:
        self._database = database
        self._bus = bus

    def add(self, event: Event) -> Event:
        """Store an event, announce it on the bus, and return it with its id."""
        return self.add_all([event])[0]

    def add_all(self, events: Sequence[Event]) -> Sequence[Event]:
        """Store events in one transaction, announce them on the bus, and return them with their ids."""
        if not events:
            return ()
        with self._database.write() as connection:
            if connection.dialect.name == "postgresql":
                # Ids must become visible in ascending order: a follower reads only greater ones.
                connection.execute(
                    text("SELECT pg_advisory_xact_lock(hashtext('jouletune events'))")
                )
            ids = connection.scalars(
                insert(EventRow).returning(EventRow.id, sort_by_parameter_order=True),
                [without_id(EVENTS.values(event)) for event in events],
            )
            stored = tuple(replace(e, id=i) for e, i in zip(events, ids, strict=True))
            self._bus.announce(connection, _notice(stored))
        for event in stored:
            self._bus.stored(event)
        return stored

    def after(
        self, event: int, most: int | None, study: str | None = None, device: str | None = None
    ) -> Sequence[Event]:
        """Return the events with a greater id, by id; at most `most` of them unless it is None."""
        query = _narrowed(study, device).where(EventRow.id > event)
        query = query.order_by(EventRow.id).limit(most)
        return readable(self._database, query, EventRow.id, EVENTS.read)

    def newest(self) -> int:
        """Return the greatest id, 0 if there are no events."""
        with self._database.look() as connection:
            return connection.scalar(select(func.max(EventRow.id))) or 0

    def list(
        self, study: str | None = None, device: str | None = None, last: int | None = None
    ) -> Sequence[Event]:
        """Return the `last` events, of a study or device if given, oldest first; all if it is None."""
        query = _narrowed(study, device).order_by(EventRow.at.desc(), EventRow.id.desc())
        query = query.limit(last)
        return tuple(reversed(readable(self._database, query, EventRow.id, EVENTS.read)))

    def oldest(self) -> datetime | None:
        """Return the time of the oldest event, None if there are none."""
        with self._database.look() as connection:
            return connection.scalar(select(func.min(EventRow.at)))

    def prune(self, before: datetime) -> int:
        """Delete events before a time, except the newest, so that ids never repeat; return their number."""
        newest = select(func.max(EventRow.id)).scalar_subquery()
        return pruned(self._database, EventRow, EventRow.at < before, EventRow.id < newest)


def _key(observation: Observation) -> tuple[str, str, datetime]:
    """Return the columns that make an observation unique."""
    return observation.study, observation.device, observation.measurement.started_at


def _notice(events: Sequence[Event]) -> Notice:
    """Return one notice for events that were stored together."""
    if len(events) == 1:
        return Notice.of(events[0])
    devices = [event.device for event in events if event.device and not event.study]
    return Notice(Topic.EVENTS, devices=tuple(devices) if len(devices) == len(events) else ())


def _narrowed(study: str | None, device: str | None) -> Select[Any]:
    """Return the query of all events, or those of a study and device that are not None."""
    query = EVENTS.all
    if study is not None:
        query = query.where(EventRow.study == study)
    if device is not None:
        query = query.where(EventRow.device == device)
    return query


def _sample(
    keys: dict[str, SettingKey],
    started_at: datetime,
    at: datetime,
    seconds: float,
    text: str,
    context: Json,
    completed: int,
    mean: float,
    stderr: float,
    speaks_s: float | None,
) -> MetricSample:
    """Return the sample of a row; `keys` caches the key of each setting by its text."""
    if text not in keys:
        keys[text] = setting_key(json.loads(text))
    return MetricSample(
        started_at=started_at,
        seconds=seconds,
        setting=keys[text],
        context=context,
        completed=completed,
        mean=mean,
        stderr=stderr,
        at=at,
        speaks_s=speaks_s,
    )
