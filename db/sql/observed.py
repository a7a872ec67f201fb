"""Windows of devices that are only observed: each one document, without a study."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict
from sqlalchemy import ColumnElement, Connection, Select, extract, func, literal, select, union_all

from db import refusals
from db.codec import Json
from db.schema import DeviceRow, ObservedRow
from db.sql.database import insert_into
from tuner.core import Measurement, MetricCourse, Observation


class WindowDocument(BaseModel):
    """The stored form of a window. JSON has no infinities: they are stored as text."""

    model_config = ConfigDict(ser_json_inf_nan="strings")
    window: Measurement


def keep_observed(
    connection: Connection, observations: Sequence[Observation]
) -> set[tuple[str, str, datetime]]:
    """Store windows; return study, device and start of the new ones. Raises NotFound: no such device."""
    devices = {o.device for o in observations}
    registered = connection.scalars(select(DeviceRow.id).where(DeviceRow.id.in_(devices))).all()
    for name in sorted(devices - {*registered}):
        raise refusals.no_device(name)
    added = connection.execute(
        insert_into(connection, ObservedRow)
        .on_conflict_do_nothing()
        .returning(ObservedRow.device, ObservedRow.started_at),
        [
            {
                "device": o.device,
                "started_at": o.measurement.started_at,
                "at": o.at,
                "document": _document(o.measurement),
            }
            for o in observations
        ],
    )
    return {("", device, at) for device, at in added}


def observed(connection: Connection, device: str, since: datetime, last: int) -> list[Measurement]:
    """Return the `last` windows of a device that began since a time, by start."""
    started_at = ObservedRow.started_at
    query = select(ObservedRow.document).where(ObservedRow.device == device, started_at >= since)
    documents = connection.scalars(query.order_by(started_at.desc()).limit(last)).all()
    return [WindowDocument.model_validate({"window": d}).window for d in reversed(documents)]


def of_metrics(device: str, metrics: Collection[str], since: datetime) -> Select[Any]:
    """Return the statement of a device's windows since a time: each start, metric and mean."""
    parts = [
        select(
            ObservedRow.started_at.label("at"),
            literal(metric).label("metric"),
            _mean(metric).label("mean"),
        ).where(ObservedRow.device == device, ObservedRow.started_at >= since)
        for metric in sorted(metrics)
    ]
    return select(union_all(*parts).subquery())


def recently_observed(
    connection: Connection,
    devices: Collection[str],
    metrics: Collection[str],
    since: datetime,
    last: int,
) -> list[MetricCourse]:
    """Return metrics over the `last` windows of some devices."""
    names, started_at = sorted(metrics), ObservedRow.started_at
    place = func.row_number().over(partition_by=ObservedRow.device, order_by=started_at.desc())
    ranked = (
        select(ObservedRow.id, place.label("place"))
        .where(ObservedRow.device.in_(devices), started_at >= since)
        .subquery()
    )
    query = (
        select(ObservedRow.device, extract("epoch", started_at), *map(_mean, names))
        .join(ranked, ranked.c.id == ObservedRow.id)
        .where(ranked.c.place <= last)
        .order_by(started_at)
    )
    points: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for device, at_s, *means in connection.execute(query):
        for metric, mean in zip(names, means, strict=True):
            if mean is not None:
                points[device, metric].append((float(at_s), mean))
    return [
        MetricCourse(study="", device=device, metric=metric, points=tuple(each))
        for (device, metric), each in points.items()
    ]


def _mean(metric: str) -> ColumnElement[float]:
    """Return the column of a metric's mean, null in a window without it."""
    mean: ColumnElement[float] = ObservedRow.document["estimates", metric, "mean"].as_float()
    return mean


def _document(window: Measurement) -> Json:
    """Return a window as a JSON object, without its raw values."""
    text = WindowDocument(window=window).model_dump_json(exclude={"window": {"samples"}})
    document: Json = json.loads(text)["window"]
    return document
