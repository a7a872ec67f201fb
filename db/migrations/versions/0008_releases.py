"""Orders to restore one device.

Additive: a tuner of the schema before continues beside it, and knows no such order.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "releases",
        sa.Column("device_id", sa.String(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("who", sa.String(), nullable=False),
        sa.Column("why", sa.String(), nullable=False),
        sa.Column("restored", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("device_id", name="pk_releases"),
    )


def downgrade() -> None:
    op.drop_table("releases")
