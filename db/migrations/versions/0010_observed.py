"""The windows of devices that are only observed.

Additive: a tuner of the schema before continues beside it, and refuses such windows.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "observed_windows",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("device_id", sa.String(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["device_id"],
            ["devices.id"],
            name="fk_observed_windows_device_id",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_observed_windows"),
        sa.UniqueConstraint(
            "device_id", "started_at", name="uq_observed_windows_device_id_started_at"
        ),
    )
    op.create_index("ix_observed_windows_at", "observed_windows", ["at"])


def downgrade() -> None:
    op.drop_table("observed_windows")
