"""Where a change of the audit came from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("audit", sa.Column("source", sa.String(length=60), nullable=True))


def downgrade() -> None:
    op.drop_column("audit", "source")
