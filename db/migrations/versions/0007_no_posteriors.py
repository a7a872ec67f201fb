"""No posteriors: a study reads the holds of like ones instead.

Not additive: a tuner of the schema before answers an error to a study that begins to tune, until it
is replaced. Holds go on.
"""

from __future__ import annotations

from importlib import import_module

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_table("posteriors")


def downgrade() -> None:
    import_module("db.migrations.versions.0005_posteriors").upgrade()
