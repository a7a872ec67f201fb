"""Trials of a whole plan: its table follows a load that goes up and down.

Additive: a tuner of the schema before continues beside it, and has such a trial run at the first row.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("plan", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("trials", "plan")
