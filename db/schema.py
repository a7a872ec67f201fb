"""The tables, the same on SQLite and PostgreSQL; a field of the core has the same name here.

JSON columns are textual on both: PostgreSQL's binary type rewrites numbers (1e20 comes back as an
integer) and refuses some text. Deleting a study deletes its dependent rows, by foreign key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from db.columns import (
    CountsByNumber,
    LimitText,
    Named,
    OpenEnd,
    PlanDocument,
    TextList,
    TextOrNull,
    UtcDateTime,
)
from tuner.core import (
    AccessRole,
    Context,
    Level,
    Limit,
    Origin,
    Phase,
    Plan,
    Scope,
    Setting,
    TrialState,
)

# SQLite autoincrements only a column declared as exactly INTEGER PRIMARY KEY.
Serial = Annotated[
    int, mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
]
JsonObject = dict[str, Any]


NAMED = AccessRole, Level, Origin, Phase, Scope, TrialState


class Base(DeclarativeBase):
    """Base of all tables: the naming of constraints and the column type of each Python type."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: dict[Any, Any] = {  # noqa: RUF012  read by SQLAlchemy from the class
        int: BigInteger,
        float: Double,
        str: String,
        datetime: UtcDateTime,
        JsonObject: JSON,
        Setting: JSON,
        Context: JSON,
        Mapping[str, str]: JSON,
        Mapping[int, int]: CountsByNumber,
        tuple[str, ...]: TextList,
        Limit: LimitText,
        Plan: PlanDocument,
        **{kind: Named(kind) for kind in NAMED},
    }


class WorkloadVersionRow(Base):
    """A version of a workload, and when a device first registered with it."""

    __tablename__ = "workload_versions"

    workload: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[str] = mapped_column(primary_key=True)
    first_seen_at: Mapped[datetime]


class DeviceRow(Base):
    """A device as last registered; `description` contains its space, metrics and versions.

    `unable` is the reason why it accepts no orders; empty if it accepts them.
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
    """The present state of a study: its phase, its revision and the number of its last trial."""

    __tablename__ = "studies"

    id: Mapped[str] = mapped_column(primary_key=True)
    workload: Mapped[str]
    phase: Mapped[str]
    revision: Mapped[int]
    last_trial: Mapped[int]
    created_at: Mapped[datetime]


class RevisionRow(Base):
    """One revision of a study as a complete document, with its author, reason and time."""

    __tablename__ = "study_revisions"

    study: Mapped[str] = mapped_column(
        "study_id", ForeignKey("studies.id", ondelete="CASCADE"), key="study", primary_key=True
    )
    revision: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    document: Mapped[JsonObject]
    who: Mapped[str]
    why: Mapped[str]
    at: Mapped[datetime]


class StudyDeviceRow(Base):
    """A study's claim on a device. The index allows one active claim per device."""

    __tablename__ = "study_devices"
    __table_args__ = (
        Index(
            "uq_study_devices_active",
            "device",
            unique=True,
            sqlite_where=text("active"),
            postgresql_where=text("active"),
        ),
        Index("ix_study_devices_device_id", "device"),
    )

    study: Mapped[str] = mapped_column(
        "study_id", ForeignKey("studies.id", ondelete="CASCADE"), key="study", primary_key=True
    )
    device: Mapped[str] = mapped_column("device_id", key="device", primary_key=True)
    active: Mapped[bool]


class TrialRow(Base):
    """The present state of a trial. Few of millions are running, so that those have an index.

    `device` is the only device that runs it, null if all devices of the study do.
    """

    __tablename__ = "trials"
    __table_args__ = (
        Index(
            "ix_trials_running",
            "study",
            sqlite_where=text("state = 'running'"),
            postgresql_where=text("state = 'running'"),
        ),
    )

    study: Mapped[str] = mapped_column(
        "study_id", ForeignKey("studies.id", ondelete="CASCADE"), key="study", primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    setting: Mapped[Setting]
    phase: Mapped[Phase]
    context: Mapped[Context]
    state: Mapped[TrialState]
    attempt: Mapped[int]
    started_at: Mapped[datetime] = mapped_column(index=True)
    ended_at: Mapped[datetime | None]
    why: Mapped[str]
    broke: Mapped[Limit | None]
    reason: Mapped[str]
    device: Mapped[str] = mapped_column("device_id", TextOrNull, key="device", nullable=True)
    plan: Mapped[Plan | None]


class TrialStateRow(Base):
    """A state that a trial entered, with the attempt and the time."""

    __tablename__ = "trial_states"
    __table_args__ = (
        ForeignKeyConstraint(
            ["study", "trial"],
            ["trials.study", "trials.number"],
            ondelete="CASCADE",
        ),
        Index(None, "study", "trial"),
    )

    id: Mapped[Serial]
    study: Mapped[str] = mapped_column("study_id", key="study")
    trial: Mapped[int] = mapped_column("trial_number", key="trial")
    state: Mapped[TrialState]
    attempt: Mapped[int]
    at: Mapped[datetime]


class ReportRow(Base):
    """One device's outcome of one attempt, as received. The id is the order of arrival."""

    __tablename__ = "reports"
    __table_args__ = (
        ForeignKeyConstraint(
            ["study", "trial"],
            ["trials.study", "trials.number"],
            ondelete="CASCADE",
        ),
        UniqueConstraint("study", "trial", "device", "token", "nonce"),
    )

    id: Mapped[Serial]
    study: Mapped[str] = mapped_column("study_id", key="study")
    trial: Mapped[int] = mapped_column("trial_number", key="trial")
    device: Mapped[str] = mapped_column("device_id", key="device")
    attempt: Mapped[int]
    token: Mapped[int]
    nonce: Mapped[str]
    state: Mapped[TrialState]
    broke: Mapped[Limit | None]
    reason: Mapped[str]
    received_at: Mapped[datetime]
    late: Mapped[bool]


class ObservationRow(Base):
    """A window measured while holding; the window's `started_at` makes it unique."""

    __tablename__ = "observations"
    __table_args__ = (UniqueConstraint("study", "device", "started_at"),)

    id: Mapped[Serial]
    study: Mapped[str] = mapped_column(
        "study_id", ForeignKey("studies.id", ondelete="CASCADE"), key="study"
    )
    device: Mapped[str] = mapped_column("device_id", key="device")
    started_at: Mapped[datetime]
    setting: Mapped[Setting]
    at: Mapped[datetime] = mapped_column(index=True)
    speaks_s: Mapped[float | None]


class MeasurementRow(Base):
    """The values of one window. It belongs to exactly one trial, report or observation."""

    __tablename__ = "measurements"
    __table_args__ = (
        ForeignKeyConstraint(
            ["study", "trial"],
            ["trials.study", "trials.number"],
            ondelete="CASCADE",
        ),
        UniqueConstraint("study", "trial"),
        CheckConstraint("(study_id IS NULL) = (trial_number IS NULL)", name="trial_named"),
        CheckConstraint(
            "CASE WHEN trial_number IS NULL THEN 0 ELSE 1 END"
            " + CASE WHEN report_id IS NULL THEN 0 ELSE 1 END"
            " + CASE WHEN observation_id IS NULL THEN 0 ELSE 1 END = 1",
            name="one_owner",
        ),
    )

    id: Mapped[Serial]
    study: Mapped[str | None] = mapped_column("study_id", key="study")
    trial: Mapped[int | None] = mapped_column("trial_number", key="trial")
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
    context: Mapped[Context]
    throttled: Mapped[tuple[str, ...]]
    foreign: Mapped[float] = mapped_column("foreign_share", key="foreign")
    sources: Mapped[Mapping[str, str]]


class EstimateRow(Base):
    """One metric of one window. A null `low` or `high` means that this side is unbounded."""

    __tablename__ = "estimates"

    measurement_id: Mapped[int] = mapped_column(
        ForeignKey("measurements.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    metric: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int]
    mean: Mapped[float]
    stderr: Mapped[float]
    n: Mapped[int]
    low: Mapped[float] = mapped_column(OpenEnd(-math.inf), nullable=True)
    high: Mapped[float] = mapped_column(OpenEnd(math.inf), nullable=True)
    origin: Mapped[Origin]
    scope: Mapped[Scope]


class SamplesRow(Base):
    """The raw values of one window: JSON, compressed by zlib. Read for evidence only."""

    __tablename__ = "window_samples"

    measurement_id: Mapped[int] = mapped_column(
        ForeignKey("measurements.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    document: Mapped[bytes]


class ObservedRow(Base):
    """A window of a device that is only observed; `document` has the window without its raw values."""

    __tablename__ = "observed_windows"
    __table_args__ = (UniqueConstraint("device", "started_at"),)

    id: Mapped[Serial]
    device: Mapped[str] = mapped_column(
        "device_id", ForeignKey("devices.id", ondelete="CASCADE"), key="device"
    )
    started_at: Mapped[datetime]
    at: Mapped[datetime] = mapped_column(index=True)
    document: Mapped[JsonObject]


class LeaseRow(Base):
    """A device's fencing token, which only grows, and its lease; `study` is null without a lease."""

    __tablename__ = "leases"
    __table_args__ = (
        ForeignKeyConstraint(
            ["study", "trial"],
            ["trials.study", "trials.number"],
            ondelete="SET NULL",
        ),
        Index(None, "study", "trial"),
    )

    device: Mapped[str] = mapped_column("device_id", key="device", primary_key=True)
    token: Mapped[int]
    nonce: Mapped[str]
    study: Mapped[str | None] = mapped_column("study_id", key="study")
    trial: Mapped[int | None] = mapped_column("trial_number", key="trial")
    attempt: Mapped[int]
    agent: Mapped[str]
    expires_at: Mapped[datetime]


class AppliedRow(Base):
    """A setting applied to a device at a moment. The id is the order of arrival."""

    __tablename__ = "applied_settings"

    id: Mapped[Serial]
    device: Mapped[str] = mapped_column("device_id", key="device", index=True)
    setting: Mapped[Setting]
    level: Mapped[Level]
    at: Mapped[datetime]
    study: Mapped[str] = mapped_column("study_id", key="study")
    revision: Mapped[int]


class TokenRow(Base):
    """An access token, by its digest. A revoked one stays until a new token gets its name."""

    __tablename__ = "tokens"

    name: Mapped[str] = mapped_column(primary_key=True)
    role: Mapped[AccessRole]
    digest: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class WriteCheckRow(Base):
    """A row that each write check changes: `times` counts, as SQLite skips a change to equal values."""

    __tablename__ = "write_checks"

    id: Mapped[Serial]
    times: Mapped[int]


class ReplicaRow(Base):
    """A running tuner process on this database, as it reports itself."""

    __tablename__ = "replicas"

    id: Mapped[str] = mapped_column(primary_key=True)
    host: Mapped[str]
    version: Mapped[str]
    started_at: Mapped[datetime]
    seen_at: Mapped[datetime]
    leads: Mapped[bool]
    bus_lag_s: Mapped[float | None]
    agents: Mapped[Mapping[int, int]]
    token_mark: Mapped[str]
    cpu_s: Mapped[float]
    memory_bytes: Mapped[int]


class StopRow(Base):
    """The order to stop the whole fleet; in force while its only row exists."""

    __tablename__ = "stops"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    who: Mapped[str]
    why: Mapped[str]


class StopBackRow(Base):
    """A device that has confirmed the stop: it reported afterwards that it is at its original setting."""

    __tablename__ = "stop_back"

    device: Mapped[str] = mapped_column("device_id", key="device", primary_key=True)


class ReleaseRow(Base):
    """The order to restore one device; `restored` is whether it has reported its original setting since."""

    __tablename__ = "releases"

    device: Mapped[str] = mapped_column("device_id", key="device", primary_key=True)
    at: Mapped[datetime]
    who: Mapped[str]
    why: Mapped[str]
    restored: Mapped[bool]


class BudgetGroupRow(Base):
    """A group of devices that share a power budget in watts, at its latest revision."""

    __tablename__ = "budget_groups"

    name: Mapped[str] = mapped_column(primary_key=True)
    revision: Mapped[int]
    document: Mapped[JsonObject]


class BudgetMemberRow(Base):
    """A device of such a group and the power caps that it may have in force, stored before sending."""

    __tablename__ = "budget_members"

    device: Mapped[str] = mapped_column("device_id", key="device", primary_key=True)
    group: Mapped[str] = mapped_column("group_name", key="group")
    revision: Mapped[int]
    document: Mapped[JsonObject]


class DeliveryRow(Base):
    """The last event that a destination of notifications has received."""

    __tablename__ = "deliveries"

    destination: Mapped[str] = mapped_column(primary_key=True)
    event: Mapped[int]
    attempts: Mapped[int]
    next_at: Mapped[datetime | None]
    why: Mapped[str]
    given_up: Mapped[int]


class AuditRow(Base):
    """A requested change, or a refused request."""

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
    """An entry of the operator's log. It outlives its study and its device."""

    __tablename__ = "events"

    id: Mapped[Serial]
    at: Mapped[datetime] = mapped_column(index=True)
    kind: Mapped[str]
    text: Mapped[str]
    study: Mapped[str] = mapped_column("study_id", key="study", index=True)
    device: Mapped[str] = mapped_column("device_id", key="device", index=True)
