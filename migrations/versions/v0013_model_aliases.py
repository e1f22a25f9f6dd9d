"""Other names of the served model in a tenant's requests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tenants", sa.Column("model_aliases", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("tenants", "model_aliases")
