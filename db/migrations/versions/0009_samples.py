"""The raw values of windows.

Additive: a tuner of the schema before continues beside it, and keeps none.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "window_samples",
        sa.Column(
            "measurement_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["measurement_id"],
            ["measurements.id"],
            name="fk_window_samples_measurement_id",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("measurement_id", name="pk_window_samples"),
    )


def downgrade() -> None:
    op.drop_table("window_samples")
