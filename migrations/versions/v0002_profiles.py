"""Profiles, which of them is in force, and what was learned since."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "profiles",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("origin", sa.String(length=20), nullable=False),
        sa.Column("device", sa.String(length=200), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("worst_p90", sa.Float(), nullable=False),
        sa.Column("samples_count", sa.Integer(), nullable=False),
        sa.Column("frozen", sa.Boolean(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("samples", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_profiles")),
    )
    op.create_index(op.f("ix_profiles_name"), "profiles", ["name"])
    op.create_table(
        "profile_activations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("profile_id", sa.Integer(), nullable=True),
        sa.Column("forced", sa.Boolean(), nullable=False),
        sa.Column("settings_version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        _of_profile("profile_activations"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_profile_activations")),
    )
    op.create_table(
        "learned_cells",
        sa.Column("profile_id", sa.Integer(), nullable=False),
        sa.Column("cell", sa.String(length=40), nullable=False),
        sa.Column("ratio", sa.Float(), nullable=False),
        sa.Column("changed_at", sa.DateTime(), nullable=False),
        sa.CheckConstraint("ratio >= 1", name=op.f("ck_learned_cells_ratio")),
        _of_profile("learned_cells"),
        sa.PrimaryKeyConstraint("profile_id", "cell", name=op.f("pk_learned_cells")),
    )
    op.create_table(
        "learned_corrections",
        sa.Column("profile_id", sa.Integer(), nullable=False),
        sa.Column("predictor", sa.String(length=20), nullable=False),
        sa.Column("sms", sa.Integer(), nullable=False),
        sa.Column("ratio", sa.Float(), nullable=False),
        sa.Column("changed_at", sa.DateTime(), nullable=False),
        sa.CheckConstraint("ratio > 0", name=op.f("ck_learned_corrections_ratio")),
        _of_profile("learned_corrections"),
        sa.PrimaryKeyConstraint("profile_id", "predictor", "sms", name=op.f("pk_learned_corrections")),
    )
    op.create_table(
        "profile_changes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("profile_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("subject", sa.String(length=60), nullable=False),
        sa.Column("before", sa.Float(), nullable=False),
        sa.Column("after", sa.Float(), nullable=False),
        sa.Column("evidence", sa.String(length=200), nullable=False),
        sa.Column("at_bound", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        _of_profile("profile_changes"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_profile_changes")),
    )
    op.create_index(op.f("ix_profile_changes_profile_id"), "profile_changes", ["profile_id"])


def downgrade() -> None:
    op.drop_index(op.f("ix_profile_changes_profile_id"), table_name="profile_changes")
    for table in ("profile_changes", "learned_corrections", "learned_cells", "profile_activations"):
        op.drop_table(table)
    op.drop_index(op.f("ix_profiles_name"), table_name="profiles")
    op.drop_table("profiles")


def _of_profile(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["profile_id"], ["profiles.id"], name=op.f(f"fk_{table}_profile_id_profiles"), ondelete="CASCADE"
    )
