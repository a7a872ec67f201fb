"""Values of the core and the tables with their fields: written by name, read by position.

Documents are read as text, so that one that is damaged affects no other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Generic, TypeVar

from sqlalchemy import Label, Select, Text, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from db.codec import DESCRIPTIONS, Description, Json
from db.schema import (
    AppliedRow,
    AuditRow,
    Base,
    DeliveryRow,
    DeviceRow,
    EstimateRow,
    EventRow,
    LeaseRow,
    MeasurementRow,
    ObservationRow,
    ReleaseRow,
    ReplicaRow,
    ReportRow,
    StopRow,
    TokenRow,
    TrialRow,
)
from db.sql.database import Database
from tuner.core import (
    AccessToken,
    Applied,
    AuditEntry,
    Delivery,
    Device,
    Estimate,
    Event,
    FleetStop,
    Lease,
    Load,
    Measurement,
    Observation,
    Outcome,
    Report,
    Trial,
    TunerReplica,
    Unreadable,
)
from tuner.rows import StoredRows

Kept = TypeVar("Kept")


class RowsOf(Generic[Kept]):
    """The mapping between a type of value and a table: the fields that are columns of the table."""

    def __init__(self, kind: type[Kept], table: type[Base]) -> None:
        table_columns = table.__table__.c
        self._kind, self.table = kind, table
        self.names = tuple(f.name for f in fields(kind) if f.name in table_columns)  # type: ignore[arg-type]
        self.columns: tuple[Label[Any], ...] = tuple(table_columns[n].label(n) for n in self.names)
        self.all = select(*self.columns)

    def values(self, value: Kept) -> Json:
        """Return a value's fields by column."""
        return {name: getattr(value, name) for name in self.names}

    def read(self, row: Sequence[Any], **others: object) -> Kept:
        """Return the value of a row that begins with these columns; `others` are the other fields."""
        return self._kind(**dict(zip(self.names, row, strict=False)), **others)


def readable(
    database: Database,
    query: Select[*tuple[Any, ...]],
    key: Any,  # noqa: ANN401  a mapped column
    read: Callable[[Any], Kept],
) -> StoredRows[Kept]:
    """Return a query's values, with `key` as its last order and the name of an unreadable row."""
    query = query.order_by(key)  # the names are those of the same order
    values, wrong = list[Kept](), dict[int, str]()
    with database.look() as connection:
        rows = connection.execute(query)
        for at in itertools.count():
            try:
                with database.reading(f"a row of {key.class_.__tablename__}"):
                    if (row := rows.fetchone()) is None:
                        break
                    values.append(read(row))
            except Unreadable as error:
                wrong[at] = str(error)
        names = connection.scalars(query.with_only_columns(key)).all() if wrong else ()
    return StoredRows(values, {str(names[n]): wrong[n] for n in wrong if n < len(names)})


class Unparsed(FunctionElement[str]):
    """A JSON column as stored text; bytes on SQLite, which does not check that text is UTF-8."""

    type = Text()
    inherit_cache = True


@compiles(Unparsed)
def _as_text(element: Unparsed, compiler: SQLCompiler, **about: Any) -> str:  # noqa: ANN401
    """Return the SQL that casts a JSON column to text; to bytes on SQLite."""
    kind = "BLOB" if compiler.dialect.name == "sqlite" else "TEXT"
    return f"CAST({compiler.process(element.clauses, **about)} AS {kind})"


def without_id(values: Json) -> Json:
    """Return the columns of a value without its id, which the database assigns."""
    return {name: value for name, value in values.items() if name != "id"}


APPLIED = RowsOf(Applied, AppliedRow)
AUDIT = RowsOf(AuditEntry, AuditRow)
DELIVERIES = RowsOf(Delivery, DeliveryRow)
DEVICES = RowsOf(Device, DeviceRow)
ESTIMATES = RowsOf(Estimate, EstimateRow)
EVENTS = RowsOf(Event, EventRow)
LEASES = RowsOf(Lease, LeaseRow)
LOADS = RowsOf(Load, MeasurementRow)
OBSERVATIONS = RowsOf(Observation, ObservationRow)
OUTCOMES = RowsOf(Outcome, ReportRow)
REPLICAS = RowsOf(TunerReplica, ReplicaRow)
REPORTS = RowsOf(Report, ReportRow)
RELEASES = RowsOf(FleetStop, ReleaseRow)
STOPS = RowsOf(FleetStop, StopRow)
TOKENS = RowsOf(AccessToken, TokenRow)
TRIALS = RowsOf(Trial, TrialRow)
WINDOWS = RowsOf(Measurement, MeasurementRow)


DESCRIBED = tuple(field.name for field in fields(Description))


def device_values(device: Device) -> Json:
    """Return the columns of a device, with its description as a document."""
    description = Description(**{name: getattr(device, name) for name in DESCRIBED})
    return DEVICES.values(device) | {"description": DESCRIPTIONS.encode(description)}


def described(document: Json) -> Json:
    """Return the fields of a device that its description contains."""
    description = DESCRIPTIONS.decode(document)
    return {name: getattr(description, name) for name in DESCRIBED}
