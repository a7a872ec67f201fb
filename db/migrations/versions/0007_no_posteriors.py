"""Drop the posteriors: a study reads the holds of similar studies instead.

Not additive: a tuner with schema 0006 answers with an error when a study begins to tune, until the tuner is
replaced. Holds continue.
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
