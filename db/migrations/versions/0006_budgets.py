"""Groups of devices that share watts, and their members.

Additive: a tuner of the schema before continues beside it, and divides no watts.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "budget_groups",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_budget_groups"),
    )
    op.create_table(
        "budget_members",
        sa.Column("device_id", sa.String(), nullable=False),
        sa.Column("group_name", sa.String(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("device_id", name="pk_budget_members"),
    )


def downgrade() -> None:
    op.drop_table("budget_members")
    op.drop_table("budget_groups")
