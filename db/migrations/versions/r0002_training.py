"""Training from buttons: runs that are parts of runs, scores of discriminative judges, completions drawn in training."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("judgments", sa.Column("score", sa.Double(), nullable=True))
    op.add_column("runs", sa.Column("name", sa.String(length=200), nullable=True))
    # no batch on SQLite: copying the table would drop rows that others refer to
    parent = sa.ForeignKey("runs.id", name=op.f("fk_runs_parent_id"))
    id_type = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.add_column("runs", sa.Column("parent_id", id_type, parent, nullable=True), inline_references=True)
    op.create_index(op.f("ix_runs_parent_id"), "runs", ["parent_id"])
    op.create_table(
        "run_samples",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("completion", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=True),
        sa.Column("reward", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_samples_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_samples")),
        sa.UniqueConstraint("run_id", "step", "idx", name=op.f("uq_run_samples_run_id_step_idx")),
    )


def downgrade() -> None:
    raise NotImplementedError("the store is only upgraded; keep a copy of the file to go back")
