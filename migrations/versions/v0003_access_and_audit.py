"""Scopes, ends and rotations of API keys, admin tokens, the audit, and a version for all that can change."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("tenants", "api_keys", "profiles"):
        # Of what was there before nothing is known but that it was; 0 is older than any change.
        op.add_column(table, sa.Column("settings_version", sa.Integer(), nullable=False, server_default="0"))
    for column in (
        sa.Column("scopes", sa.String(length=40), nullable=False, server_default="serve"),
        sa.Column("expires_at", sa.DateTime(), nullable=True),
        sa.Column("last_used_at", sa.DateTime(), nullable=True),
        sa.Column("replaces", sa.String(length=20), nullable=True),
    ):
        op.add_column("api_keys", column)
    op.create_table(
        "admin_tokens",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("role", sa.String(length=10), nullable=False),
        sa.Column("secret_sha256", sa.String(length=64), nullable=False),
        sa.Column("last4", sa.String(length=4), nullable=False),
        sa.Column("created_by", sa.String(length=100), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("expires_at", sa.DateTime(), nullable=True),
        sa.Column("revoked_at", sa.DateTime(), nullable=True),
        sa.Column("last_used_at", sa.DateTime(), nullable=True),
        sa.Column("settings_version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_admin_tokens")),
        sa.UniqueConstraint("secret_sha256", name=op.f("uq_admin_tokens_secret_sha256")),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.Column("who_kind", sa.String(length=20), nullable=False),
        sa.Column("who", sa.String(length=100), nullable=False),
        sa.Column("why", sa.String(length=500), nullable=True),
        sa.Column("action", sa.String(length=40), nullable=False),
        sa.Column("subject", sa.String(length=100), nullable=False),
        sa.Column("tenant", sa.String(length=63), nullable=True),
        sa.Column("settings_version", sa.Integer(), nullable=False),
        sa.Column("before", sa.Text(), nullable=True),
        sa.Column("after", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index(op.f("ix_audit_at"), "audit", ["at"])
    op.create_index(op.f("ix_audit_tenant"), "audit", ["tenant"])


def downgrade() -> None:
    op.drop_index(op.f("ix_audit_tenant"), table_name="audit")
    op.drop_index(op.f("ix_audit_at"), table_name="audit")
    op.drop_table("audit")
    op.drop_table("admin_tokens")
    # The older schema knows no ends and no scopes: a key that it would let in again must not come back.
    op.execute(
        "UPDATE api_keys SET revoked_at = CURRENT_TIMESTAMP WHERE revoked_at IS NULL "
        "AND (scopes NOT LIKE 'serve%' OR (expires_at IS NOT NULL AND expires_at <= CURRENT_TIMESTAMP))"
    )
    for column in ("scopes", "expires_at", "last_used_at", "replaces"):
        op.drop_column("api_keys", column)
    for table in ("tenants", "api_keys", "profiles"):
        op.drop_column(table, "settings_version")
