"""A tenant's priority class and weight, its longest wait, and what becomes of its late requests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for column in (
        sa.Column("priority_class", sa.String(length=20), nullable=False, server_default="standard"),
        sa.Column("weight", sa.Float(), nullable=False, server_default="1.0"),
        sa.Column("max_wait_ms", sa.Integer(), nullable=True),
        sa.Column("late_action", sa.String(length=20), nullable=False, server_default="serve"),
    ):
        op.add_column("tenants", column)


def downgrade() -> None:
    for column in ("priority_class", "weight", "max_wait_ms", "late_action"):
        op.drop_column("tenants", column)
