"""Measured windows: stored with a reference to their owner, read many at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import compress, decompress

from pydantic import TypeAdapter
from sqlalchemy import Connection, Row, Select, bindparam, insert, select

from db.codec import Json
from db.schema import EstimateRow, MeasurementRow, ReportRow, SamplesRow
from db.sql.rows import ESTIMATES, LOADS, WINDOWS
from tuner.core import Estimate, Measurement, WindowSamples

AT_ONCE = 200
"""The most windows that one statement names: its planning takes longer with each."""
MOST_BYTES = 65_536
"""The largest compressed raw values of a window; larger ones are not kept."""
SAMPLES = TypeAdapter(WindowSamples)
OF_WINDOWS = select(
    *WINDOWS.columns,
    *LOADS.columns,
    MeasurementRow.id,
    MeasurementRow.study,
    MeasurementRow.trial,
    MeasurementRow.report_id,
    MeasurementRow.observation_id,
)
"""A query of windows; callers of `shown` restrict it to the windows they need."""
SHOWN = (
    select(*ESTIMATES.columns, EstimateRow.measurement_id, EstimateRow.metric)
    .where(EstimateRow.measurement_id.in_(bindparam("windows", expanding=True)))
    .order_by(EstimateRow.measurement_id, EstimateRow.position)
)


def keep_window(connection: Connection, measurement: Measurement | None, **owner: object) -> None:
    """Store a window unless it is None; `owner` names its trial, report or observation by columns."""
    if measurement is not None:
        keep_windows(connection, [(measurement, owner)])


def keep_windows(connection: Connection, windows: Sequence[tuple[Measurement, Json]]) -> None:
    """Store windows, each with the columns that name its owner; all must have the same columns."""
    if not windows:
        return
    numbers = connection.scalars(
        insert(MeasurementRow).returning(MeasurementRow.id, sort_by_parameter_order=True),
        [WINDOWS.values(m) | LOADS.values(m.load) | owner for m, owner in windows],
    ).all()
    shown = [
        {
            "measurement_id": number,
            "metric": metric,
            "position": place,
            **ESTIMATES.values(estimate),
        }
        for number, (measurement, _) in zip(numbers, windows, strict=True)
        for place, (metric, estimate) in enumerate(measurement.estimates.items())
    ]
    if shown:
        connection.execute(insert(EstimateRow), shown)
    sampled = [
        {"measurement_id": number, "document": document}
        for number, (measurement, _) in zip(numbers, windows, strict=True)
        if measurement.samples is not None
        and len(document := compress(SAMPLES.dump_json(measurement.samples))) <= MOST_BYTES
    ]
    if sampled:
        connection.execute(insert(SamplesRow), sampled)


def sampled(connection: Connection, study: str) -> Mapping[tuple[int, str], bytes]:
    """Return the JSON of the raw values of a study's windows, by trial and device; the last attempt's."""
    own = (
        select(ReportRow.trial, ReportRow.device, SamplesRow.document)
        .join(MeasurementRow, MeasurementRow.report_id == ReportRow.id)
        .join(SamplesRow, SamplesRow.measurement_id == MeasurementRow.id)
        .where(ReportRow.study == study, ReportRow.late.is_(False))
        .order_by(ReportRow.id)
    )
    return {(row.trial, row.device): decompress(row.document) for row in connection.execute(own)}


def shown(
    connection: Connection, query: Select[Any], named: Json | None = None
) -> Mapping[object, Measurement]:
    """Return measurements by owner: the study and number of a trial, or the id of a report or observation.

    The owners of one query must be of one kind.
    """
    windows = connection.execute(query, named).all()
    estimates: dict[int, dict[str, Estimate]] = defaultdict(dict)
    for first in range(0, len(windows), AT_ONCE):
        some = [row.id for row in windows[first : first + AT_ONCE]]
        for row in connection.execute(SHOWN, {"windows": some}):
            estimates[row.measurement_id][row.metric] = ESTIMATES.read(row)
    return {_owner(row): _window(row, estimates[row.id]) for row in windows}


def _owner(row: Row[Any]) -> object:
    """Return the key of a window's owner, as in `shown`."""
    return row.report_id or row.observation_id or (row.study_id, row.trial_number)


def _window(row: Row[Any], estimates: Mapping[str, Estimate]) -> Measurement:
    """Return the measurement that a row and its estimates store."""
    load = LOADS.read(row[len(WINDOWS.names) :])
    return WINDOWS.read(row, load=load, estimates=estimates)
