"""Keeps with whom a tenant shares the prefix cache."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tenants", sa.Column("cache_group", sa.String(length=63), nullable=True))


def downgrade() -> None:
    op.drop_column("tenants", "cache_group")
