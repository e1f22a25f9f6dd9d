"""Targets of whole answers, and how many answers were judged by one in each period of the history."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_COLUMNS = ("e2e_judged", "e2e_missed")


def upgrade() -> None:
    op.add_column("slo_revisions", sa.Column("e2e_s", sa.Float(), nullable=True))
    for name in _COLUMNS:
        op.add_column("history", sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    for name in reversed(_COLUMNS):
        op.drop_column("history", name)
    op.drop_column("slo_revisions", "e2e_s")
