"""The first schema: problems, trajectories, chunks, prefixes, rollouts, judges, judgments, reviews, runs, metrics."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Trigrams find Chinese, which has no spaces, and parts of words. The index reads the text from `problems`;
# triggers keep it in step. PostgreSQL searches with ILIKE instead.
FULL_TEXT = (
    "CREATE VIRTUAL TABLE problem_fts USING fts5"
    "(text, content='problems', content_rowid='id', tokenize='trigram')",
    """CREATE TRIGGER problem_fts_insert AFTER INSERT ON problems BEGIN
        INSERT INTO problem_fts (rowid, text) VALUES (new.id, new.text);
    END""",
    """CREATE TRIGGER problem_fts_delete AFTER DELETE ON problems BEGIN
        INSERT INTO problem_fts (problem_fts, rowid, text) VALUES ('delete', old.id, old.text);
    END""",
    """CREATE TRIGGER problem_fts_update AFTER UPDATE OF text ON problems BEGIN
        INSERT INTO problem_fts (problem_fts, rowid, text) VALUES ('delete', old.id, old.text);
        INSERT INTO problem_fts (rowid, text) VALUES (new.id, new.text);
    END""",
)


def upgrade() -> None:
    op.create_table('grades',
    sa.Column('key', sa.String(length=64), nullable=False),
    sa.Column('outcome', sa.String(length=16), nullable=False),
    sa.PrimaryKeyConstraint('key', name=op.f('pk_grades'))
    )
    op.create_table('runs',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('uid', sa.String(length=32), nullable=False),
    sa.Column('kind', sa.String(length=32), nullable=False),
    sa.Column('status', sa.String(length=16), nullable=False),
    sa.Column('actor', sa.String(length=200), nullable=False),
    sa.Column('recipe', sa.JSON(), nullable=False),
    sa.Column('versions', sa.JSON(), nullable=False),
    sa.Column('prompt_hashes', sa.JSON(), nullable=False),
    sa.Column('done', sa.Integer(), nullable=False),
    sa.Column('done_at_start', sa.Integer(), nullable=False),
    sa.Column('total', sa.Integer(), nullable=True),
    sa.Column('unit', sa.String(length=32), nullable=False),
    sa.Column('message', sa.Text(), nullable=False),
    sa.Column('waiting_for', sa.Text(), nullable=False),
    sa.Column('error', sa.Text(), nullable=True),
    sa.Column('result', sa.JSON(), nullable=False),
    sa.Column('stop_requested', sa.Boolean(), nullable=False),
    sa.Column('attempt', sa.Integer(), nullable=False),
    sa.Column('pid', sa.Integer(), nullable=True),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('started_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('heartbeat_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('ended_at', sa.DateTime(timezone=True), nullable=True),
    sa.CheckConstraint("status IN ('queued', 'running', 'done', 'failed', 'stopped', 'stalled')", name=op.f('ck_runs_status')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_runs')),
    sa.UniqueConstraint('uid', name=op.f('uq_runs_uid'))
    )
    op.create_index(op.f('ix_runs_status'), 'runs', ['status'], unique=False)
    op.create_table('totals',
    sa.Column('name', sa.String(length=64), nullable=False),
    sa.Column('key', sa.String(length=200), nullable=False),
    sa.Column('n', sa.BigInteger(), nullable=False),
    sa.Column('amount', sa.Double(), nullable=False),
    sa.PrimaryKeyConstraint('name', 'key', name=op.f('pk_totals'))
    )
    op.create_table('workers',
    sa.Column('name', sa.String(length=32), nullable=False),
    sa.Column('pid', sa.Integer(), nullable=False),
    sa.Column('host', sa.String(length=200), nullable=False),
    sa.Column('started_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('heartbeat_at', sa.DateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_workers'))
    )
    op.create_table('judges',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('name', sa.String(length=200), nullable=False),
    sa.Column('kind', sa.String(length=32), nullable=False),
    sa.Column('checkpoint', sa.Text(), nullable=False),
    sa.Column('checkpoint_hash', sa.String(length=64), nullable=False),
    sa.Column('prompt_name', sa.String(length=200), nullable=False),
    sa.Column('prompt_hash', sa.String(length=64), nullable=False),
    sa.Column('sampling', sa.JSON(), nullable=False),
    sa.Column('run_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('sampling_digest', sa.String(length=16), nullable=False),
    sa.ForeignKeyConstraint(['run_id'], ['runs.id'], name=op.f('fk_judges_run_id')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_judges')),
    sa.UniqueConstraint('checkpoint_hash', 'prompt_hash', 'sampling_digest', name=op.f('uq_judges_checkpoint_hash_prompt_hash_sampling_digest')),
    sa.UniqueConstraint('name', name=op.f('uq_judges_name'))
    )
    op.create_table('metrics',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('run_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('name', sa.String(length=120), nullable=False),
    sa.Column('step', sa.Integer(), nullable=False),
    sa.Column('value', sa.Double(), nullable=True),
    sa.Column('at', sa.DateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['run_id'], ['runs.id'], name=op.f('fk_metrics_run_id')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_metrics')),
    sa.UniqueConstraint('run_id', 'name', 'step', name=op.f('uq_metrics_run_id_name_step'))
    )
    op.create_table('problems',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('dataset', sa.String(length=200), nullable=False),
    sa.Column('key', sa.String(length=200), nullable=False),
    sa.Column('text', sa.Text(), nullable=False),
    sa.Column('answer', sa.Text(), nullable=False),
    sa.Column('meta', sa.JSON(), nullable=False),
    sa.Column('actor', sa.String(length=200), nullable=False),
    sa.Column('run_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['run_id'], ['runs.id'], name=op.f('fk_problems_run_id')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_problems')),
    sa.UniqueConstraint('dataset', 'key', name=op.f('uq_problems_dataset_key'))
    )
    op.create_table('prefixes',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('key', sa.String(length=64), nullable=False),
    sa.Column('problem_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('policy', sa.String(length=200), nullable=False),
    sa.Column('checkpoint_hash', sa.String(length=64), nullable=False),
    sa.Column('sampling', sa.JSON(), nullable=False),
    sa.Column('token_ids', sa.LargeBinary(), nullable=False),
    sa.Column('base_seed', sa.BigInteger(), nullable=False),
    sa.Column('error', sa.Text(), nullable=True),
    sa.Column('run_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
    sa.ForeignKeyConstraint(['problem_id'], ['problems.id'], name=op.f('fk_prefixes_problem_id')),
    sa.ForeignKeyConstraint(['run_id'], ['runs.id'], name=op.f('fk_prefixes_run_id')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_prefixes')),
    sa.UniqueConstraint('key', name=op.f('uq_prefixes_key'))
    )
    op.create_index(op.f('ix_prefixes_problem_id'), 'prefixes', ['problem_id'], unique=False)
    op.create_table('rollouts',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('prefix_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('draw', sa.Integer(), nullable=False),
    sa.Column('outcome', sa.String(length=16), nullable=False),
    sa.Column('n_tokens', sa.Integer(), nullable=False),
    sa.Column('run_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.CheckConstraint("outcome IN ('correct', 'wrong', 'unparsed', 'truncated', 'error')", name=op.f('ck_rollouts_outcome')),
    sa.CheckConstraint('draw >= 0', name=op.f('ck_rollouts_draw')),
    sa.ForeignKeyConstraint(['prefix_id'], ['prefixes.id'], name=op.f('fk_rollouts_prefix_id')),
    sa.ForeignKeyConstraint(['run_id'], ['runs.id'], name=op.f('fk_rollouts_run_id')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_rollouts')),
    sa.UniqueConstraint('prefix_id', 'draw', name=op.f('uq_rollouts_prefix_id_draw'))
    )
    op.create_index(op.f('ix_rollouts_run_id'), 'rollouts', ['run_id'], unique=False)
    op.create_table('trajectories',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('problem_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('policy', sa.String(length=200), nullable=False),
    sa.Column('checkpoint_hash', sa.String(length=64), nullable=True),
    sa.Column('prefix_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
    sa.Column('value_prefix_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
    sa.Column('draw', sa.Integer(), nullable=True),
    sa.Column('import_key', sa.String(length=64), nullable=True),
    sa.Column('seed', sa.BigInteger(), nullable=True),
    sa.Column('finish_reason', sa.String(length=16), nullable=True),
    sa.Column('outcome', sa.String(length=16), nullable=False),
    sa.Column('answer', sa.Text(), nullable=True),
    sa.Column('cutter', sa.String(length=32), nullable=False),
    sa.Column('note', sa.Text(), nullable=True),
    sa.Column('n_chunks', sa.Integer(), nullable=False),
    sa.Column('n_tokens', sa.Integer(), nullable=True),
    sa.Column('biggest_drop', sa.Double(), nullable=True),
    sa.Column('least_confidence', sa.Double(), nullable=True),
    sa.Column('n_negative', sa.Integer(), nullable=True),
    sa.Column('n_disagree', sa.Integer(), nullable=True),
    sa.Column('n_reviewed', sa.Integer(), nullable=False),
    sa.Column('actor', sa.String(length=200), nullable=False),
    sa.Column('run_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.CheckConstraint("outcome IN ('correct', 'wrong', 'unparsed', 'truncated', 'error')", name=op.f('ck_trajectories_outcome')),
    sa.CheckConstraint('draw >= 0', name=op.f('ck_trajectories_draw')),
    sa.ForeignKeyConstraint(['prefix_id'], ['prefixes.id'], name=op.f('fk_trajectories_prefix_id')),
    sa.ForeignKeyConstraint(['problem_id'], ['problems.id'], name=op.f('fk_trajectories_problem_id')),
    sa.ForeignKeyConstraint(['run_id'], ['runs.id'], name=op.f('fk_trajectories_run_id')),
    sa.ForeignKeyConstraint(['value_prefix_id'], ['prefixes.id'], name=op.f('fk_trajectories_value_prefix_id')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_trajectories')),
    sa.UniqueConstraint('prefix_id', 'draw', name=op.f('uq_trajectories_prefix_id_draw')),
    sa.UniqueConstraint('problem_id', 'import_key', name=op.f('uq_trajectories_problem_id_import_key'))
    )
    op.create_index('ix_trajectories_by_confidence', 'trajectories', ['least_confidence', 'id', 'problem_id', 'policy', 'outcome', 'run_id', 'n_reviewed'], unique=False)
    op.create_index('ix_trajectories_by_disagreement', 'trajectories', ['n_disagree', 'id', 'problem_id', 'policy', 'outcome', 'run_id', 'n_reviewed'], unique=False)
    op.create_index('ix_trajectories_by_drop', 'trajectories', ['biggest_drop', 'id', 'problem_id', 'policy', 'outcome', 'run_id', 'n_reviewed'], unique=False)
    op.create_index('ix_trajectories_by_reviews', 'trajectories', ['n_reviewed', 'id', 'problem_id', 'policy', 'outcome', 'run_id'], unique=False)
    op.create_index(op.f('ix_trajectories_prefix_id'), 'trajectories', ['prefix_id'], unique=False)
    op.create_index('ix_trajectories_problem_id_id', 'trajectories', ['problem_id', 'id'], unique=False)
    op.create_index('ix_trajectories_run_id_id', 'trajectories', ['run_id', 'id'], unique=False)
    op.create_index(op.f('ix_trajectories_value_prefix_id'), 'trajectories', ['value_prefix_id'], unique=False)
    op.create_table('chunks',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('trajectory_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('idx', sa.Integer(), nullable=False),
    sa.Column('lead', sa.Text(), nullable=False),
    sa.Column('text', sa.Text(), nullable=False),
    sa.Column('close', sa.Text(), nullable=False),
    sa.Column('token_end', sa.Integer(), nullable=True),
    sa.Column('prefix_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
    sa.ForeignKeyConstraint(['prefix_id'], ['prefixes.id'], name=op.f('fk_chunks_prefix_id')),
    sa.ForeignKeyConstraint(['trajectory_id'], ['trajectories.id'], name=op.f('fk_chunks_trajectory_id')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_chunks')),
    sa.UniqueConstraint('trajectory_id', 'idx', name=op.f('uq_chunks_trajectory_id_idx'))
    )
    op.create_index(op.f('ix_chunks_prefix_id'), 'chunks', ['prefix_id'], unique=False)
    op.create_table('rollout_texts',
    sa.Column('rollout_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('text', sa.Text(), nullable=False),
    sa.Column('answer', sa.Text(), nullable=True),
    sa.Column('finish_reason', sa.String(length=16), nullable=False),
    sa.Column('seed', sa.BigInteger(), nullable=False),
    sa.Column('note', sa.Text(), nullable=True),
    sa.ForeignKeyConstraint(['rollout_id'], ['rollouts.id'], name=op.f('fk_rollout_texts_rollout_id')),
    sa.PrimaryKeyConstraint('rollout_id', name=op.f('pk_rollout_texts'))
    )
    op.create_table('trajectory_texts',
    sa.Column('trajectory_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('text', sa.Text(), nullable=False),
    sa.Column('tail', sa.Text(), nullable=False),
    sa.Column('token_ids', sa.LargeBinary(), nullable=True),
    sa.ForeignKeyConstraint(['trajectory_id'], ['trajectories.id'], name=op.f('fk_trajectory_texts_trajectory_id')),
    sa.PrimaryKeyConstraint('trajectory_id', name=op.f('pk_trajectory_texts'))
    )
    op.create_table('chunk_labels',
    sa.Column('chunk_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('before_k', sa.Integer(), nullable=True),
    sa.Column('before_n', sa.Integer(), nullable=True),
    sa.Column('after_k', sa.Integer(), nullable=True),
    sa.Column('after_n', sa.Integer(), nullable=True),
    sa.Column('after_exact', sa.Integer(), nullable=True),
    sa.Column('q_before', sa.Double(), nullable=True),
    sa.Column('q_after', sa.Double(), nullable=True),
    sa.Column('drop', sa.Double(), nullable=True),
    sa.Column('gamma_flip', sa.Double(), nullable=True),
    sa.Column('abs_q', sa.String(length=1), nullable=True),
    sa.Column('abs_q_conf', sa.Double(), nullable=True),
    sa.Column('rel_effective', sa.String(length=1), nullable=True),
    sa.Column('rel_effective_conf', sa.Double(), nullable=True),
    sa.Column('rel_ratio', sa.String(length=1), nullable=True),
    sa.Column('rel_ratio_conf', sa.Double(), nullable=True),
    sa.ForeignKeyConstraint(['chunk_id'], ['chunks.id'], name=op.f('fk_chunk_labels_chunk_id')),
    sa.PrimaryKeyConstraint('chunk_id', name=op.f('pk_chunk_labels'))
    )
    op.create_table('drafts',
    sa.Column('actor', sa.String(length=200), nullable=False),
    sa.Column('chunk_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('text', sa.Text(), nullable=False),
    sa.Column('updated_at', sa.DateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['chunk_id'], ['chunks.id'], name=op.f('fk_drafts_chunk_id')),
    sa.PrimaryKeyConstraint('actor', 'chunk_id', name=op.f('pk_drafts'))
    )
    op.create_table('judgments',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('judge_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('chunk_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('draw', sa.Integer(), nullable=False),
    sa.Column('verdict', sa.String(length=8), nullable=True),
    sa.Column('rationale', sa.Text(), nullable=False),
    sa.Column('n_tokens', sa.Integer(), nullable=False),
    sa.Column('finish_reason', sa.String(length=16), nullable=False),
    sa.Column('seed', sa.BigInteger(), nullable=False),
    sa.Column('run_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.CheckConstraint("verdict IN ('positive', 'negative')", name=op.f('ck_judgments_verdict')),
    sa.ForeignKeyConstraint(['chunk_id'], ['chunks.id'], name=op.f('fk_judgments_chunk_id')),
    sa.ForeignKeyConstraint(['judge_id'], ['judges.id'], name=op.f('fk_judgments_judge_id')),
    sa.ForeignKeyConstraint(['run_id'], ['runs.id'], name=op.f('fk_judgments_run_id')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_judgments')),
    sa.UniqueConstraint('judge_id', 'chunk_id', 'draw', name=op.f('uq_judgments_judge_id_chunk_id_draw'))
    )
    op.create_index(op.f('ix_judgments_chunk_id'), 'judgments', ['chunk_id'], unique=False)
    op.create_index(op.f('ix_judgments_run_id'), 'judgments', ['run_id'], unique=False)
    op.create_table('reviews',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('chunk_id', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
    sa.Column('action_id', sa.String(length=64), nullable=False),
    sa.Column('kind', sa.String(length=16), nullable=False),
    sa.Column('verdict', sa.Integer(), nullable=True),
    sa.Column('comment', sa.Text(), nullable=False),
    sa.Column('actor', sa.String(length=200), nullable=False),
    sa.Column('supersedes', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
    sa.Column('restores', sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.CheckConstraint("kind IN ('review', 'undo', 'adjudication')", name=op.f('ck_reviews_kind')),
    sa.CheckConstraint('verdict IN (-1, 0, 1)', name=op.f('ck_reviews_verdict')),
    sa.ForeignKeyConstraint(['chunk_id'], ['chunks.id'], name=op.f('fk_reviews_chunk_id')),
    sa.ForeignKeyConstraint(['restores'], ['reviews.id'], name=op.f('fk_reviews_restores')),
    sa.ForeignKeyConstraint(['supersedes'], ['reviews.id'], name=op.f('fk_reviews_supersedes')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_reviews')),
    sa.UniqueConstraint('action_id', name=op.f('uq_reviews_action_id')),
    sa.UniqueConstraint('supersedes', name=op.f('uq_reviews_supersedes'))
    )
    op.create_index('ix_reviews_actor_id', 'reviews', ['actor', 'id'], unique=False)
    op.create_index(op.f('ix_reviews_chunk_id'), 'reviews', ['chunk_id'], unique=False)

    if op.get_bind().dialect.name == "sqlite":
        for statement in FULL_TEXT:
            op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("the store is only upgraded; keep a copy of the file to go back")
