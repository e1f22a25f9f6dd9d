"""Keeps whose alarm it is, where several nodes use one database."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("alarms", sa.Column("node", sa.String(length=32), nullable=True))


def downgrade() -> None:
    op.drop_column("alarms", "node")
