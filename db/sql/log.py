"""Observations and events over SQLAlchemy: what comes in by itself and is pruned by age."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Select, Text, and_, cast, delete, func, insert, or_, select, text
from sqlalchemy.orm import joinedload

from db import refusals
from db.codec import Json
from db.schema import EstimateRow, EventRow, MeasurementRow, ObservationRow, StudyRow
from db.sql.bus import SqlBus
from db.sql.database import Database, Refused, insert_into
from db.sql.rows import keep_windows, observation_values, to_observation
from tuner.core import (
    Event,
    Limit,
    MetricSample,
    Notice,
    Observation,
    SettingKey,
    Topic,
    setting_key,
)

AT_ONCE = 2_000
"""So many old rows are deleted in one transaction."""


KEY = ObservationRow.study_id, ObservationRow.device_id, ObservationRow.started_at


class SqlObservations:
    """Observations in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_all(self, observations: Sequence[Observation]) -> Sequence[bool]:
        """Keep observations in one transaction; say of each whether it is new. Raises NotFound."""
        own = {_key(o): o for o in reversed(observations)}
        new = dict[tuple[str, str, datetime], int]()
        try:
            with self._database.write() as session:
                if own:
                    added = session.connection().execute(
                        insert_into(session, ObservationRow)
                        .on_conflict_do_nothing()
                        .returning(ObservationRow.id, *KEY),
                        [observation_values(o) for o in own.values()],
                    )
                    new = {(row.study_id, row.device_id, row.started_at): row.id for row in added}
                windows = [(own[key].measurement, {"observation_id": i}) for key, i in new.items()]
                keep_windows(session, windows)
        except Refused as error:
            self._refuse_unknown({o.study for o in observations}, error)
            raise
        return [own[_key(o)] is o and _key(o) in new for o in observations]

    def _refuse_unknown(self, studies: Collection[str], error: Refused) -> None:
        with self._database.look() as connection:
            known = connection.scalars(select(StudyRow.id).where(StudyRow.id.in_(studies))).all()
        for name in sorted({*studies} - {*known}):
            raise refusals.no_study(name) from error

    def list(self, study: str, last: int | None = None) -> Sequence[Observation]:
        """Return the (last) observations of a study, oldest first."""
        with self._database.read() as session:
            rows = session.scalars(
                select(ObservationRow)
                .where(ObservationRow.study_id == study)
                .order_by(ObservationRow.at.desc(), ObservationRow.id.desc())
                .limit(last)
                .options(
                    joinedload(ObservationRow.measurement).selectinload(MeasurementRow.estimates)
                )
            ).all()
            return tuple(to_observation(row) for row in reversed(rows))

    def oldest(self) -> datetime | None:
        """Return when the first of all was made, None where there is none."""
        with self._database.read() as session:
            return session.scalar(select(func.min(ObservationRow.at)))

    def samples(
        self, study: str, metric: str, since: datetime, last: int | None = None
    ) -> Sequence[MetricSample]:
        """Return the (last) windows begun since a time that show a metric, by their start."""
        begun = ObservationRow.started_at
        asked = (
            select(
                begun,
                ObservationRow.at,
                MeasurementRow.seconds,
                # As text: months of windows have few settings, and each is decoded once.
                cast(ObservationRow.setting, Text).label("setting"),
                MeasurementRow.context,
                MeasurementRow.completed,
                EstimateRow.mean,
                EstimateRow.stderr,
            )
            .join(MeasurementRow, MeasurementRow.observation_id == ObservationRow.id)
            .join(EstimateRow, EstimateRow.measurement_id == MeasurementRow.id)
            .where(ObservationRow.study_id == study, EstimateRow.metric == metric, begun >= since)
            .order_by(begun.desc(), ObservationRow.id.desc())
            .limit(last)
        )
        keys: dict[str, SettingKey] = {}
        with self._database.read() as session:
            found = [_sample(keys, *row) for row in session.execute(asked)]
        return tuple(reversed(found))

    def broken(self, study: str, limits: Sequence[Limit]) -> int:
        """Return how many windows of a study prove by themselves that they broke a limit."""
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
        asked = (
            select(func.count(func.distinct(ObservationRow.id)))
            .join(MeasurementRow, MeasurementRow.observation_id == ObservationRow.id)
            .join(EstimateRow, EstimateRow.measurement_id == MeasurementRow.id)
            .where(ObservationRow.study_id == study, or_(*beyond))
        )
        with self._database.read() as session:
            return session.scalar(asked) or 0

    def prune(self, before: datetime) -> int:
        """Delete those made before a time and return how many."""
        old = select(ObservationRow.id).where(ObservationRow.at < before)
        return _pruned(self._database, ObservationRow, old.order_by(ObservationRow.at))


class SqlEvents:
    """Events in a database."""

    def __init__(self, database: Database, bus: SqlBus) -> None:
        self._database = database
        self._bus = bus

    def add(self, event: Event) -> Event:
        """Keep an event, publish that there is one, and return it with its id."""
        return self.add_all([event])[0]

    def add_all(self, events: Sequence[Event]) -> Sequence[Event]:
        """Keep events in one transaction, publish that there are, and return them with their ids."""
        if not events:
            return ()
        with self._database.write() as session:
            if session.get_bind().dialect.name == "postgresql":
                # Ids must become visible in their order: who follows never looks back.
                session.execute(text("SELECT pg_advisory_xact_lock(hashtext('jouletune events'))"))
            ids = session.connection().scalars(
                insert(EventRow).returning(EventRow.id, sort_by_parameter_order=True),
                [
                    {
                        "at": event.at,
                        "kind": event.kind,
                        "text": event.text,
                        "study_id": event.study,
                        "device_id": event.device,
                    }
                    for event in events
                ],
            )
            stored = tuple(replace(e, id=i) for e, i in zip(events, ids, strict=True))
            self._bus.announce(session, _notice(stored))
        for event in stored:
            self._bus.stored(event)
        return stored

    def after(
        self, event: int, most: int | None, study: str | None = None, device: str | None = None
    ) -> Sequence[Event]:
        """Return at most so many (None: all) of the events with a greater id, by id."""
        asked = select(EventRow).where(EventRow.id > event).order_by(EventRow.id).limit(most)
        if study is not None:
            asked = asked.where(EventRow.study_id == study)
        if device is not None:
            asked = asked.where(EventRow.device_id == device)
        with self._database.read() as session:
            return tuple(_to_event(row) for row in session.scalars(asked).all())

    def newest(self) -> int:
        """Return the greatest id there is, 0 where there is no event."""
        with self._database.read() as session:
            return session.scalar(select(func.max(EventRow.id))) or 0

    def list(
        self, study: str | None = None, device: str | None = None, last: int | None = None
    ) -> Sequence[Event]:
        """Return the (last) events, oldest first, of one study or device where asked."""
        asked = select(EventRow).order_by(EventRow.at.desc(), EventRow.id.desc()).limit(last)
        if study is not None:
            asked = asked.where(EventRow.study_id == study)
        if device is not None:
            asked = asked.where(EventRow.device_id == device)
        with self._database.read() as session:
            return tuple(_to_event(row) for row in reversed(session.scalars(asked).all()))

    def oldest(self) -> datetime | None:
        """Return when the first of all was, None where there is none."""
        with self._database.read() as session:
            return session.scalar(select(func.min(EventRow.at)))

    def prune(self, before: datetime) -> int:
        """Delete those before a time but the newest, after which ids count on; return how many."""
        newest = select(func.max(EventRow.id)).scalar_subquery()
        old = select(EventRow.id).where(EventRow.at < before, EventRow.id < newest)
        return _pruned(self._database, EventRow, old.order_by(EventRow.at))


def _key(observation: Observation) -> tuple[str, str, datetime]:
    return observation.study, observation.device, observation.measurement.started_at


def _notice(events: Sequence[Event]) -> Notice:
    """Return the one notice that some events were stored."""
    if len(events) == 1:
        return Notice.of(events[0])
    devices = [event.device for event in events if event.device and not event.study]
    return Notice(Topic.EVENTS, devices=tuple(devices) if len(devices) == len(events) else ())


def _pruned(database: Database, table: type[ObservationRow | EventRow], old: Select[int]) -> int:
    """Delete old rows in pieces: a day of a large fleet has millions, and a statement may take 30 s."""
    gone, piece = 0, old.limit(AT_ONCE)
    while True:
        with database.write() as session:
            ids = session.scalars(piece).all()
            session.execute(delete(table).where(table.id.in_(ids)))
        gone += len(ids)
        if len(ids) < AT_ONCE:
            return gone


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
) -> MetricSample:
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
    )


def _to_event(row: EventRow) -> Event:
    return Event(
        id=row.id,
        at=row.at,
        kind=row.kind,
        text=row.text,
        study=row.study_id,
        device=row.device_id,
    )
