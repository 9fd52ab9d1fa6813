"""Thrifty rollouts: prefixes that are drawn only until the labels asked for are decided."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    id_type = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "prefix_stops",
        sa.Column("prefix_id", id_type, nullable=False),
        sa.Column("m", sa.Integer(), nullable=False),
        sa.Column("rules", sa.JSON(), nullable=False),
        sa.Column("run_id", id_type, nullable=True),
        sa.ForeignKeyConstraint(["prefix_id"], ["prefixes.id"], name=op.f("fk_prefix_stops_prefix_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_prefix_stops_run_id")),
        sa.PrimaryKeyConstraint("prefix_id", name=op.f("pk_prefix_stops")),
    )


def downgrade() -> None:
    raise NotImplementedError("the store is only upgraded; keep a copy of the file to go back")
