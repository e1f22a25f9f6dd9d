"""The history of what was served: by minute, hour and day; marks; alarms from beginning to end."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_COUNTS = (
    *("arrivals", "ended", "good", "ttft_judged", "ttft_missed"),
    *("tbt_requests", "gaps", "gaps_missed", "engine_ttft_judged", "engine_ttft_missed"),
    *("engine_gaps", "engine_gaps_missed", "prompt_tokens", "cached_tokens", "output_tokens"),
    *("refused", "prefill_sm_ms", "decode_sm_ms", "total_sm_ms", "worst_wait_ms"),
    *("worst_ttft_ms", "worst_gap_ms", "waiting", "late", "in_flight"),
)


def upgrade() -> None:
    op.create_table(
        "history_series",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("tenant", sa.String(length=63), nullable=False),
        sa.Column("tenant_since", sa.BigInteger(), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_history_series")),
        sa.UniqueConstraint("tenant", "tenant_since", "model", name=op.f("uq_history_series_tenant")),
    )
    op.create_table(
        "history",
        sa.Column("step_s", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("series_id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("at", sa.BigInteger(), nullable=False, autoincrement=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _COUNTS),
        sa.PrimaryKeyConstraint("step_s", "series_id", "at", name=op.f("pk_history")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "history_refusals",
        sa.Column("step_s", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("series_id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("at", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("cause", sa.String(length=40), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("step_s", "series_id", "at", "cause", name=op.f("pk_history_refusals")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "history_decisions",
        sa.Column("step_s", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("at", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("mode", sa.String(length=20), nullable=False),
        sa.Column("reason", sa.String(length=40), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("time_ms", sa.BigInteger(), nullable=False),
        sa.Column("prefill_tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("step_s", "at", "mode", "reason", name=op.f("pk_history_decisions")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "history_marks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("tenant", sa.String(length=63), nullable=True),
        sa.Column("text", sa.String(length=500), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_history_marks")),
    )
    op.create_index(op.f("ix_history_marks_at"), "history_marks", ["at"])
    op.create_table(
        "alarms",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("tenant", sa.String(length=63), nullable=True),
        sa.Column("severity", sa.String(length=20), nullable=False),
        sa.Column("began_at", sa.DateTime(), nullable=False),
        sa.Column("raised_at", sa.DateTime(), nullable=False),
        sa.Column("ended_at", sa.DateTime(), nullable=True),
        sa.Column("ended_by", sa.String(length=20), nullable=True),
        sa.Column("text", sa.String(length=500), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alarms")),
    )
    op.create_index(op.f("ix_alarms_raised_at"), "alarms", ["raised_at"])
    op.create_index(op.f("ix_alarms_tenant"), "alarms", ["tenant"])


def downgrade() -> None:
    op.drop_index(op.f("ix_alarms_tenant"), table_name="alarms")
    op.drop_index(op.f("ix_alarms_raised_at"), table_name="alarms")
    op.drop_table("alarms")
    op.drop_index(op.f("ix_history_marks_at"), table_name="history_marks")
    op.drop_table("history_marks")
    op.drop_table("history_decisions")
    op.drop_table("history_refusals")
    op.drop_table("history")
    op.drop_table("history_series")
