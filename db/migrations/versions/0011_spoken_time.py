"""The time for which a held window counts.

Additive: a tuner of the schema before continues beside it, and stores windows without that time.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("observations", sa.Column("speaks_s", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("observations", "speaks_s")
