"""Posteriors of finished studies.

Additive: a tuner of the schema before continues beside it, without siblings.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

WORTH = ("board_and_workload", "board", "workload", "kind")


def upgrade() -> None:
    op.create_table(
        "posteriors",
        sa.Column("study_id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("latest", sa.Boolean(), nullable=False),
        sa.Column("study_revision", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("board", sa.String(), nullable=False),
        sa.Column("workload", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("versions", sa.String(), nullable=False),
        sa.Column("settings", sa.BigInteger(), nullable=False),
        *(sa.Column(f"worth_of_{name}", sa.Double(), nullable=True) for name in WORTH),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["study_id"], ["studies.id"], name="fk_posteriors_study_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("study_id", "digest", name="pk_posteriors"),
    )
    for name in ("board", "workload", "kind"):
        op.create_index(f"ix_posteriors_{name}", "posteriors", [name])


def downgrade() -> None:
    op.drop_table("posteriors")
