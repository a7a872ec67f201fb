"""Trials that one of a study's devices runs alone.

Additive: a tuner of the schema before continues beside it, and has such a trial run by all devices.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("device_id", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("trials", "device_id")
