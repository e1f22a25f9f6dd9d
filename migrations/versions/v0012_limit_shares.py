"""What each node may use of a limit that all nodes share."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "limit_shares",
        sa.Column("subject", sa.String(length=80), nullable=False),
        sa.Column("name", sa.String(length=45), nullable=False),
        sa.Column("node", sa.String(length=32), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("subject", "name", "node", name=op.f("pk_limit_shares")),
    )


def downgrade() -> None:
    op.drop_table("limit_shares")
