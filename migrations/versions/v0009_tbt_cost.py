"""The share of the prefill time that a tenant's TBT target may cost all."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tenants", sa.Column("max_tbt_cost_ratio", sa.Float(), nullable=True))


def downgrade() -> None:
    op.drop_column("tenants", "max_tbt_cost_ratio")
