"""The tables, the same on SQLite and PostgreSQL.

JSON columns are of the textual kind on both: PostgreSQL's binary one rewrites numbers (1e20 comes
back as an integer) and refuses some text. Deleting a study deletes what hangs on it, by foreign key.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    TypeDecorator,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC. SQLite keeps no zone, so it is taken off on the way in and put on again."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the moment in UTC. Raises ValueError for a time without a zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"the time {value.isoformat()} has no zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the moment in UTC, with its zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


# SQLite counts up only a column that is exactly INTEGER PRIMARY KEY.
Serial = Annotated[
    int, mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
]
JsonObject = dict[str, Any]
JsonArray = list[Any]


class Base(DeclarativeBase):
    """Base of all tables: names of constraints and types of columns in one place."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012  read by SQLAlchemy from the class
        int: BigInteger,
        float: Double,
        str: String,
        datetime: UtcDateTime,
        JsonObject: JSON,
        JsonArray: JSON,
    }


class WorkloadVersionRow(Base):
    """A version of a workload that some device ran, and when it was first seen."""

    __tablename__ = "workload_versions"

    workload: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[str] = mapped_column(primary_key=True)
    first_seen_at: Mapped[datetime]


class DeviceRow(Base):
    """A device as last registered; `description` has its space, metrics and versions.

    `unable` is why it takes no orders; empty: it does.
    """

    __tablename__ = "devices"
    __table_args__ = (
        ForeignKeyConstraint(
            ["workload", "workload_version"],
            ["workload_versions.workload", "workload_versions.version"],
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    board: Mapped[str]
    driver: Mapped[str]
    agent: Mapped[str]
    workload: Mapped[str]
    workload_version: Mapped[str]
    seen_at: Mapped[datetime]
    description: Mapped[JsonObject]
    unable: Mapped[str] = mapped_column(server_default="")


class StudyRow(Base):
    """A study as it is now: which revision, and how many trials it has."""

    __tablename__ = "studies"

    id: Mapped[str] = mapped_column(primary_key=True)
    workload: Mapped[str]
    phase: Mapped[str]
    revision: Mapped[int]
    last_trial: Mapped[int]
    created_at: Mapped[datetime]


class RevisionRow(Base):
    """One revision of a study as a whole: who made it, when and why."""

    __tablename__ = "study_revisions"

    study_id: Mapped[str] = mapped_column(
        ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True
    )
    revision: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    document: Mapped[JsonObject]
    who: Mapped[str]
    why: Mapped[str]
    at: Mapped[datetime]


class StudyDeviceRow(Base):
    """A study's claim on a device. At most one active claim per device, by the index."""

    __tablename__ = "study_devices"
    __table_args__ = (
        Index(
            "uq_study_devices_active",
            "device_id",
            unique=True,
            sqlite_where=text("active"),
            postgresql_where=text("active"),
        ),
        Index("ix_study_devices_device_id", "device_id"),
    )

    study_id: Mapped[str] = mapped_column(
        ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True
    )
    device_id: Mapped[str] = mapped_column(primary_key=True)
    active: Mapped[bool]


class TrialRow(Base):
    """A trial as it is now. Few of millions run: an index has them alone.

    `device_id` is the device that tries it alone, null where all of the study's do.
    """

    __tablename__ = "trials"
    __table_args__ = (
        Index(
            "ix_trials_running",
            "study_id",
            sqlite_where=text("state = 'running'"),
            postgresql_where=text("state = 'running'"),
        ),
    )

    study_id: Mapped[str] = mapped_column(
        ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    setting: Mapped[JsonObject]
    phase: Mapped[str]
    context: Mapped[JsonObject]
    state: Mapped[str]
    attempt: Mapped[int]
    started_at: Mapped[datetime] = mapped_column(index=True)
    ended_at: Mapped[datetime | None]
    why: Mapped[str]
    broke: Mapped[str | None]
    reason: Mapped[str]
    device_id: Mapped[str | None]


class TrialStateRow(Base):
    """A state a trial came to, in which attempt and when."""

    __tablename__ = "trial_states"
    __table_args__ = (
        ForeignKeyConstraint(
            ["study_id", "trial_number"],
            ["trials.study_id", "trials.number"],
            ondelete="CASCADE",
        ),
        Index(None, "study_id", "trial_number"),
    )

    id: Mapped[Serial]
    study_id: Mapped[str]
    trial_number: Mapped[int]
    state: Mapped[str]
    attempt: Mapped[int]
    at: Mapped[datetime]


class ReportRow(Base):
    """One device's outcome of one attempt as it arrived. The id is the order of arrival."""

    __tablename__ = "reports"
    __table_args__ = (
        ForeignKeyConstraint(
            ["study_id", "trial_number"],
            ["trials.study_id", "trials.number"],
            ondelete="CASCADE",
        ),
        UniqueConstraint("study_id", "trial_number", "device_id", "token", "nonce"),
    )

    id: Mapped[Serial]
    study_id: Mapped[str]
    trial_number: Mapped[int]
    device_id: Mapped[str]
    attempt: Mapped[int]
    token: Mapped[int]
    nonce: Mapped[str]
    state: Mapped[str]
    broke: Mapped[str | None]
    reason: Mapped[str]
    received_at: Mapped[datetime]
    late: Mapped[bool]


class ObservationRow(Base):
    """A window measured while holding; `started_at` is the window's, and makes it unique."""

    __tablename__ = "observations"
    __table_args__ = (UniqueConstraint("study_id", "device_id", "started_at"),)

    id: Mapped[Serial]
    study_id: Mapped[str] = mapped_column(ForeignKey("studies.id", ondelete="CASCADE"))
    device_id: Mapped[str]
    started_at: Mapped[datetime]
    setting: Mapped[JsonObject]
    at: Mapped[datetime] = mapped_column(index=True)
    measurement: Mapped[MeasurementRow] = relationship()


class MeasurementRow(Base):
    """What one window showed. It belongs to exactly one trial, report or observation."""

    __tablename__ = "measurements"
    __table_args__ = (
        ForeignKeyConstraint(
            ["study_id", "trial_number"],
            ["trials.study_id", "trials.number"],
            ondelete="CASCADE",
        ),
        UniqueConstraint("study_id", "trial_number"),
        CheckConstraint("(study_id IS NULL) = (trial_number IS NULL)", name="trial_named"),
        CheckConstraint(
            "CASE WHEN trial_number IS NULL THEN 0 ELSE 1 END"
            " + CASE WHEN report_id IS NULL THEN 0 ELSE 1 END"
            " + CASE WHEN observation_id IS NULL THEN 0 ELSE 1 END = 1",
            name="one_owner",
        ),
    )

    id: Mapped[Serial]
    study_id: Mapped[str | None]
    trial_number: Mapped[int | None]
    report_id: Mapped[int | None] = mapped_column(
        ForeignKey("reports.id", ondelete="CASCADE"), unique=True
    )
    observation_id: Mapped[int | None] = mapped_column(
        ForeignKey("observations.id", ondelete="CASCADE"), unique=True
    )
    started_at: Mapped[datetime]
    seconds: Mapped[float]
    overhead_s: Mapped[float]
    completed: Mapped[int]
    failed: Mapped[int]
    utilisation: Mapped[float | None]
    context: Mapped[JsonObject]
    throttled: Mapped[JsonArray]
    foreign_share: Mapped[float]
    sources: Mapped[JsonObject]
    estimates: Mapped[list[EstimateRow]] = relationship(order_by="EstimateRow.position")


class EstimateRow(Base):
    """One metric of one window. No `low` or `high`: that side is not bounded."""

    __tablename__ = "estimates"

    measurement_id: Mapped[int] = mapped_column(
        ForeignKey("measurements.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    metric: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int]
    mean: Mapped[float]
    stderr: Mapped[float]
    n: Mapped[int]
    low: Mapped[float | None]
    high: Mapped[float | None]
    origin: Mapped[str]
    scope: Mapped[str]


class LeaseRow(Base):
    """A device's token, which only grows, and the lease it fences where one is in force."""

    __tablename__ = "leases"
    __table_args__ = (
        ForeignKeyConstraint(
            ["study_id", "trial_number"],
            ["trials.study_id", "trials.number"],
            ondelete="SET NULL",
        ),
        Index(None, "study_id", "trial_number"),
    )

    device_id: Mapped[str] = mapped_column(primary_key=True)
    token: Mapped[int]
    nonce: Mapped[str]
    study_id: Mapped[str | None]
    trial_number: Mapped[int | None]
    attempt: Mapped[int]
    agent: Mapped[str]
    expires_at: Mapped[datetime]


class AppliedRow(Base):
    """What a device was set to from a moment on. The id is the order of arrival."""

    __tablename__ = "applied_settings"

    id: Mapped[Serial]
    device_id: Mapped[str] = mapped_column(index=True)
    setting: Mapped[JsonObject]
    level: Mapped[str]
    at: Mapped[datetime]
    study_id: Mapped[str]
    revision: Mapped[int]


class TokenRow(Base):
    """Who may ask, by the digest of the token shown. A revoked one stays until its name is given anew."""

    __tablename__ = "tokens"

    name: Mapped[str] = mapped_column(primary_key=True)
    role: Mapped[str]
    digest: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class WriteCheckRow(Base):
    """One row that is changed to see whether the database takes a change; SQLite skips what is none."""

    __tablename__ = "write_checks"

    id: Mapped[Serial]
    times: Mapped[int]


class ReplicaRow(Base):
    """A tuner's process at work on this database, by its own word."""

    __tablename__ = "replicas"

    id: Mapped[str] = mapped_column(primary_key=True)
    host: Mapped[str]
    version: Mapped[str]
    started_at: Mapped[datetime]
    seen_at: Mapped[datetime]
    leads: Mapped[bool]
    bus_lag_s: Mapped[float | None]
    agents: Mapped[JsonObject]
    token_mark: Mapped[str]
    cpu_s: Mapped[float]
    memory_bytes: Mapped[int]


class StopRow(Base):
    """The order to stop the whole fleet, in force while its one row is there."""

    __tablename__ = "stops"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    who: Mapped[str]
    why: Mapped[str]


class StopBackRow(Base):
    """A device that has said since the order that it is at its original setting."""

    __tablename__ = "stop_back"

    device_id: Mapped[str] = mapped_column(primary_key=True)


class DeliveryRow(Base):
    """How far a destination of notifications has been told of the events."""

    __tablename__ = "deliveries"

    destination: Mapped[str] = mapped_column(primary_key=True)
    event: Mapped[int]
    attempts: Mapped[int]
    next_at: Mapped[datetime | None]
    why: Mapped[str]
    given_up: Mapped[int]


class AuditRow(Base):
    """A change that somebody asked for, or a request that was refused."""

    __tablename__ = "audit"

    id: Mapped[Serial]
    at: Mapped[datetime] = mapped_column(index=True)
    who: Mapped[str]
    role: Mapped[str]
    address: Mapped[str]
    method: Mapped[str]
    path: Mapped[str]
    status: Mapped[int]


class EventRow(Base):
    """An entry of the operator's log. It outlives the study and the device it names."""

    __tablename__ = "events"

    id: Mapped[Serial]
    at: Mapped[datetime] = mapped_column(index=True)
    kind: Mapped[str]
    text: Mapped[str]
    study_id: Mapped[str] = mapped_column(index=True)
    device_id: Mapped[str] = mapped_column(index=True)
