"""First schema: devices, studies with revisions, trials, measurements, leases, settings, log, tokens."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_devices()
    _create_studies()
    _create_trials()
    _create_reports()
    _create_measurements()
    _create_leases()
    _create_log()
    _create_audit()
    _create_deliveries()
    _create_tokens()
    _create_stops()


def downgrade() -> None:
    for table in (
        "tokens",
        "audit",
        "deliveries",
        "stop_back",
        "stops",
        "events",
        "write_checks",
        "applied_settings",
        "leases",
        "estimates",
        "measurements",
        "observations",
        "reports",
        "trial_states",
        "trials",
        "study_devices",
        "study_revisions",
        "studies",
        "devices",
        "workload_versions",
    ):
        op.drop_table(table)


def _serial() -> sa.types.TypeEngine[int]:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _text(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.String(), nullable=nullable)


def _number(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger(), nullable=nullable, autoincrement=False)


def _real(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Double(), nullable=nullable)


def _moment(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def _json(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.JSON(), nullable=False)


def _flag(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Boolean(), nullable=False)


def _id(table: str) -> tuple[sa.Column[Any], sa.PrimaryKeyConstraint]:
    return (
        sa.Column("id", _serial(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=f"pk_{table}"),
    )


def _of_study(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["study_id"], ["studies.id"], name=f"fk_{table}_study_id", ondelete="CASCADE"
    )


def _of_trial(table: str, ondelete: str = "CASCADE") -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["study_id", "trial_number"],
        ["trials.study_id", "trials.number"],
        name=f"fk_{table}_study_id_trial_number",
        ondelete=ondelete,
    )


def _create_devices() -> None:
    op.create_table(
        "workload_versions",
        _text("workload"),
        _text("version"),
        _moment("first_seen_at"),
        sa.PrimaryKeyConstraint("workload", "version", name="pk_workload_versions"),
    )
    op.create_table(
        "devices",
        _text("id"),
        _text("kind"),
        _text("board"),
        _text("driver"),
        _text("agent"),
        _text("workload"),
        _text("workload_version"),
        _moment("seen_at"),
        _json("description"),
        sa.PrimaryKeyConstraint("id", name="pk_devices"),
        sa.ForeignKeyConstraint(
            ["workload", "workload_version"],
            ["workload_versions.workload", "workload_versions.version"],
            name="fk_devices_workload_workload_version",
        ),
    )


def _create_studies() -> None:
    op.create_table(
        "studies",
        _text("id"),
        _text("workload"),
        _text("phase"),
        _number("revision"),
        _number("last_trial"),
        _moment("created_at"),
        sa.PrimaryKeyConstraint("id", name="pk_studies"),
    )
    op.create_table(
        "study_revisions",
        _text("study_id"),
        _number("revision"),
        _json("document"),
        _text("who"),
        _text("why"),
        _moment("at"),
        sa.PrimaryKeyConstraint("study_id", "revision", name="pk_study_revisions"),
        _of_study("study_revisions"),
    )
    op.create_table(
        "study_devices",
        _text("study_id"),
        _text("device_id"),
        _flag("active"),
        sa.PrimaryKeyConstraint("study_id", "device_id", name="pk_study_devices"),
        _of_study("study_devices"),
    )
    op.create_index(
        "uq_study_devices_active",
        "study_devices",
        ["device_id"],
        unique=True,
        sqlite_where=sa.text("active"),
        postgresql_where=sa.text("active"),
    )


def _create_trials() -> None:
    op.create_table(
        "trials",
        _text("study_id"),
        _number("number"),
        _json("setting"),
        _text("phase"),
        _json("context"),
        _text("state"),
        _number("attempt"),
        _moment("started_at"),
        _moment("ended_at", nullable=True),
        _text("why"),
        _text("broke", nullable=True),
        _text("reason"),
        sa.PrimaryKeyConstraint("study_id", "number", name="pk_trials"),
        _of_study("trials"),
    )
    op.create_index("ix_trials_started_at", "trials", ["started_at"])
    op.create_table(
        "trial_states",
        *_id("trial_states"),
        _text("study_id"),
        _number("trial_number"),
        _text("state"),
        _number("attempt"),
        _moment("at"),
        _of_trial("trial_states"),
    )
    op.create_index(
        "ix_trial_states_study_id_trial_number", "trial_states", ["study_id", "trial_number"]
    )


def _create_reports() -> None:
    op.create_table(
        "reports",
        *_id("reports"),
        _text("study_id"),
        _number("trial_number"),
        _text("device_id"),
        _number("attempt"),
        _number("token"),
        _text("nonce"),
        _text("state"),
        _text("broke", nullable=True),
        _text("reason"),
        _moment("received_at"),
        _flag("late"),
        _of_trial("reports"),
        sa.UniqueConstraint(
            "study_id",
            "trial_number",
            "device_id",
            "token",
            "nonce",
            name="uq_reports_study_id_trial_number_device_id_token_nonce",
        ),
    )
    op.create_table(
        "observations",
        *_id("observations"),
        _text("study_id"),
        _text("device_id"),
        _moment("started_at"),
        _json("setting"),
        _moment("at"),
        _of_study("observations"),
        sa.UniqueConstraint(
            "study_id",
            "device_id",
            "started_at",
            name="uq_observations_study_id_device_id_started_at",
        ),
    )
    op.create_index("ix_observations_at", "observations", ["at"])


def _create_measurements() -> None:
    owners = ("trial_number", "report_id", "observation_id")
    owned = " + ".join(f"CASE WHEN {owner} IS NULL THEN 0 ELSE 1 END" for owner in owners)
    op.create_table(
        "measurements",
        *_id("measurements"),
        _text("study_id", nullable=True),
        _number("trial_number", nullable=True),
        sa.Column("report_id", _serial()),
        sa.Column("observation_id", _serial()),
        _moment("started_at"),
        _real("seconds"),
        _real("overhead_s"),
        _number("completed"),
        _number("failed"),
        _real("utilisation", nullable=True),
        _json("context"),
        _json("throttled"),
        _real("foreign_share"),
        _json("sources"),
        _of_trial("measurements"),
        *_owned_by("report_id", "reports.id"),
        *_owned_by("observation_id", "observations.id"),
        sa.UniqueConstraint(
            "study_id", "trial_number", name="uq_measurements_study_id_trial_number"
        ),
        sa.CheckConstraint(
            "(study_id IS NULL) = (trial_number IS NULL)", name=op.f("ck_measurements_trial_named")
        ),
        sa.CheckConstraint(f"{owned} = 1", name=op.f("ck_measurements_one_owner")),
    )
    _create_estimates()


def _owned_by(column: str, owner: str) -> tuple[sa.Constraint, sa.Constraint]:
    return (
        sa.ForeignKeyConstraint(
            [column], [owner], name=f"fk_measurements_{column}", ondelete="CASCADE"
        ),
        sa.UniqueConstraint(column, name=f"uq_measurements_{column}"),
    )


def _create_estimates() -> None:
    op.create_table(
        "estimates",
        sa.Column("measurement_id", _serial(), nullable=False, autoincrement=False),
        _text("metric"),
        _number("position"),
        _real("mean"),
        _real("stderr"),
        _number("n"),
        _real("low", nullable=True),
        _real("high", nullable=True),
        _text("origin"),
        _text("scope"),
        sa.PrimaryKeyConstraint("measurement_id", "metric", name="pk_estimates"),
        sa.ForeignKeyConstraint(
            ["measurement_id"],
            ["measurements.id"],
            name="fk_estimates_measurement_id",
            ondelete="CASCADE",
        ),
    )


def _create_leases() -> None:
    op.create_table(
        "leases",
        _text("device_id"),
        _number("token"),
        _text("nonce"),
        _text("study_id", nullable=True),
        _number("trial_number", nullable=True),
        _number("attempt"),
        _text("agent"),
        _moment("expires_at"),
        sa.PrimaryKeyConstraint("device_id", name="pk_leases"),
        _of_trial("leases", ondelete="SET NULL"),
    )
    op.create_index("ix_leases_study_id_trial_number", "leases", ["study_id", "trial_number"])


def _create_log() -> None:
    op.create_table(
        "applied_settings",
        *_id("applied_settings"),
        _text("device_id"),
        _json("setting"),
        _text("level"),
        _moment("at"),
        _text("study_id"),
        _number("revision"),
    )
    op.create_index("ix_applied_settings_device_id", "applied_settings", ["device_id"])
    op.create_table("write_checks", *_id("write_checks"), _number("times"))
    op.create_table(
        "events",
        *_id("events"),
        _moment("at"),
        _text("kind"),
        _text("text"),
        _text("study_id"),
        _text("device_id"),
    )
    for column in ("at", "study_id", "device_id"):
        op.create_index(f"ix_events_{column}", "events", [column])


def _create_deliveries() -> None:
    op.create_table(
        "deliveries",
        _text("destination"),
        _number("event"),
        _number("attempts"),
        _moment("next_at", nullable=True),
        _text("why"),
        _number("given_up"),
        sa.PrimaryKeyConstraint("destination", name="pk_deliveries"),
    )


def _create_audit() -> None:
    op.create_table(
        "audit",
        *_id("audit"),
        _moment("at"),
        _text("who"),
        _text("role"),
        _text("address"),
        _text("method"),
        _text("path"),
        _number("status"),
    )
    op.create_index("ix_audit_at", "audit", ["at"])


def _create_tokens() -> None:
    op.create_table(
        "tokens",
        _text("name"),
        _text("role"),
        _text("digest"),
        _moment("created_at"),
        _moment("expires_at", nullable=True),
        _moment("used_at", nullable=True),
        _moment("revoked_at", nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_tokens"),
        sa.UniqueConstraint("digest", name="uq_tokens_digest"),
    )


def _create_stops() -> None:
    op.create_table(
        "stops",
        _number("id"),
        _moment("at"),
        _text("who"),
        _text("why"),
        sa.PrimaryKeyConstraint("id", name="pk_stops"),
    )
    op.create_table(
        "stop_back", _text("device_id"), sa.PrimaryKeyConstraint("device_id", name="pk_stop_back")
    )
