"""Tuners that share a database: who they are, which devices take no orders, which trials run.

Additive: a tuner of the schema before continues beside it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("devices", sa.Column("unable", sa.String(), server_default="", nullable=False))
    op.create_table(
        "replicas",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("leads", sa.Boolean(), nullable=False),
        sa.Column("bus_lag_s", sa.Double(), nullable=True),
        sa.Column("agents", sa.JSON(), nullable=False),
        sa.Column("token_mark", sa.String(), nullable=False),
        sa.Column("cpu_s", sa.Double(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_replicas"),
    )
    op.create_index("ix_study_devices_device_id", "study_devices", ["device_id"])
    running = sa.text("state = 'running'")
    op.create_index(
        "ix_trials_running",
        "trials",
        ["study_id"],
        sqlite_where=running,
        postgresql_where=running,
    )


def downgrade() -> None:
    op.drop_index("ix_trials_running", "trials")
    op.drop_index("ix_study_devices_device_id", "study_devices")
    op.drop_table("replicas")
    op.drop_column("devices", "unable")
