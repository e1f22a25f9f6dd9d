"""The policy, its splits and its shadow, as set while serving: one row per edit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "policy_revisions",
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("policy", sa.String(length=200), nullable=True),
        sa.Column("partitions", sa.Text(), nullable=True),
        sa.Column("shadow", sa.String(length=200), nullable=True),
        sa.Column("settings_version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("version", name="pk_policy_revisions"),
    )


def downgrade() -> None:
    op.drop_table("policy_revisions")
