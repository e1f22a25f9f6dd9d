"""Times in which a tenant did not get what it is promised."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "incidents",
        sa.Column("incident_id", sa.String(length=100), nullable=False),
        sa.Column("tenant", sa.String(length=63), nullable=False),
        sa.Column("cause", sa.String(length=40), nullable=False),
        sa.Column("began_at", sa.DateTime(), nullable=False),
        sa.Column("over_at", sa.DateTime(), nullable=True),
        sa.Column("ended_by", sa.String(length=20), nullable=True),
        sa.Column("told", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("incident_id", name=op.f("pk_incidents")),
    )
    op.create_index(op.f("ix_incidents_began_at"), "incidents", ["began_at"])
    op.create_index(op.f("ix_incidents_tenant"), "incidents", ["tenant"])


def downgrade() -> None:
    op.drop_index(op.f("ix_incidents_tenant"), table_name="incidents")
    op.drop_index(op.f("ix_incidents_began_at"), table_name="incidents")
    op.drop_table("incidents")
