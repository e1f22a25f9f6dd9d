"""Limits of tenants and keys, the use of tokens by day, and whether cached tokens count."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "tenants",
        sa.Column("count_cached_tokens", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    for table, owner, kind, refers in (
        ("tenant_limits", "tenant_id", sa.Integer(), "tenants.id"),
        ("key_limits", "key_id", sa.String(length=20), "api_keys.key_id"),
    ):
        op.create_table(
            table,
            sa.Column(owner, kind, nullable=False),
            sa.Column("name", sa.String(length=30), nullable=False),
            sa.Column("value", sa.BigInteger(), nullable=False),
            sa.Column("action", sa.String(length=10), nullable=False),
            sa.ForeignKeyConstraint(
                [owner],
                [refers],
                name=op.f(f"fk_{table}_{owner}_{refers.split('.')[0]}"),
                ondelete="CASCADE",
            ),
            sa.PrimaryKeyConstraint(owner, "name", name=op.f(f"pk_{table}")),
        )
    op.create_table(
        "token_use",
        sa.Column("tenant_id", sa.Integer(), nullable=False),
        sa.Column("key_id", sa.String(length=20), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_token_use_tenant_id_tenants"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("tenant_id", "key_id", "day", name=op.f("pk_token_use")),
    )
    op.create_index(op.f("ix_token_use_day"), "token_use", ["day"])


def downgrade() -> None:
    op.drop_index(op.f("ix_token_use_day"), table_name="token_use")
    op.drop_table("token_use")
    op.drop_table("key_limits")
    op.drop_table("tenant_limits")
    op.drop_column("tenants", "count_cached_tokens")
