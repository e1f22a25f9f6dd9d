"""Requests that were asked and those that were not served, in each period of the history."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_COLUMNS = ("asked", "unserved", "limited")


def upgrade() -> None:
    for name in _COLUMNS:
        op.add_column("history", sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    for name in reversed(_COLUMNS):
        op.drop_column("history", name)
