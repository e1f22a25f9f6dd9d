"""What the use of tokens has cost, for budgets of money."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # What was used before has cost nothing: the prices of its time are not known.
    op.add_column("token_use", sa.Column("cost_nanos", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("token_use", "cost_nanos")
