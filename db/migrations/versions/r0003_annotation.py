"""Annotation: queues, guidelines, people and the audit list; what reviews and votes amount to; full text of more."""

import sqlalchemy as sa
from alembic import op

revision = '0003'
down_revision = '0002'
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table('audit',
    sa.Column('id', ID, nullable=False),
    sa.Column('at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('actor', sa.String(length=200), nullable=False),
    sa.Column('action', sa.String(length=64), nullable=False),
    sa.Column('target', sa.String(length=200), nullable=False),
    sa.Column('detail', sa.JSON(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_audit'))
    )
    op.create_index('ix_audit_actor_id', 'audit', ['actor', 'id'])

    op.create_table('key_bindings',
    sa.Column('actor', sa.String(length=200), nullable=False),
    sa.Column('action', sa.String(length=64), nullable=False),
    sa.Column('key', sa.String(length=32), nullable=False),
    sa.PrimaryKeyConstraint('actor', 'action', name=op.f('pk_key_bindings'))
    )
    op.create_table('people',
    sa.Column('actor', sa.String(length=200), nullable=False),
    sa.Column('role', sa.String(length=16), nullable=False),
    sa.Column('name', sa.String(length=200), nullable=False),
    sa.Column('set_by', sa.String(length=200), nullable=False),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.CheckConstraint("role IN ('reader', 'annotator', 'owner')", name=op.f('ck_people_role')),
    sa.PrimaryKeyConstraint('actor', name=op.f('pk_people'))
    )
    op.create_table('queues',
    sa.Column('id', ID, nullable=False),
    sa.Column('name', sa.String(length=200), nullable=False),
    sa.Column('mode', sa.String(length=16), nullable=False),
    sa.Column('order', sa.String(length=32), nullable=False),
    sa.Column('recipe', sa.JSON(), nullable=False),
    sa.Column('blind', sa.Boolean(), nullable=False),
    sa.Column('reviews_per_item', sa.Integer(), nullable=False),
    sa.Column('n_items', sa.Integer(), nullable=False),
    sa.Column('n_settled', sa.Integer(), nullable=False),
    sa.Column('actor', sa.String(length=200), nullable=False),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('closed_at', sa.DateTime(timezone=True), nullable=True),
    sa.CheckConstraint("mode IN ('chunk', 'first-error')", name=op.f('ck_queues_mode')),
    sa.CheckConstraint('reviews_per_item >= 1', name=op.f('ck_queues_reviews_per_item')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_queues')),
    sa.UniqueConstraint('name', name=op.f('uq_queues_name'))
    )
    op.create_table('saved_searches',
    sa.Column('id', ID, nullable=False),
    sa.Column('name', sa.String(length=200), nullable=False),
    sa.Column('page', sa.String(length=32), nullable=False),
    sa.Column('query', sa.Text(), nullable=False),
    sa.Column('actor', sa.String(length=200), nullable=False),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_saved_searches')),
    sa.UniqueConstraint('name', name=op.f('uq_saved_searches_name'))
    )
    op.create_table('guidelines',
    sa.Column('id', ID, nullable=False),
    sa.Column('queue_id', ID, nullable=False),
    sa.Column('version', sa.Integer(), nullable=False),
    sa.Column('text', sa.Text(), nullable=False),
    sa.Column('actor', sa.String(length=200), nullable=False),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['queue_id'], ['queues.id'], name=op.f('fk_guidelines_queue_id')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_guidelines')),
    sa.UniqueConstraint('queue_id', 'version', name=op.f('uq_guidelines_queue_id_version'))
    )
    op.create_table('queue_members',
    sa.Column('queue_id', ID, nullable=False),
    sa.Column('actor', sa.String(length=200), nullable=False),
    sa.Column('joined_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('position', sa.Integer(), nullable=False),
    sa.Column('n_done', sa.Integer(), nullable=False),
    sa.ForeignKeyConstraint(['queue_id'], ['queues.id'], name=op.f('fk_queue_members_queue_id')),
    sa.PrimaryKeyConstraint('queue_id', 'actor', name=op.f('pk_queue_members'))
    )
    op.create_index(op.f('ix_queue_members_actor'), 'queue_members', ['actor'])

    op.create_table('chunk_opinions',
    sa.Column('chunk_id', ID, nullable=False),
    sa.Column('plus', sa.Integer(), nullable=False),
    sa.Column('minus', sa.Integer(), nullable=False),
    sa.Column('abstained', sa.Integer(), nullable=False),
    sa.Column('adjudicated', sa.Boolean(), nullable=False),
    sa.Column('disputed', sa.Boolean(), nullable=False),
    sa.Column('flag', sa.String(length=16), nullable=True),
    sa.Column('verdict', sa.String(length=1), nullable=True),
    sa.ForeignKeyConstraint(['chunk_id'], ['chunks.id'], name=op.f('fk_chunk_opinions_chunk_id')),
    sa.PrimaryKeyConstraint('chunk_id', name=op.f('pk_chunk_opinions'))
    )
    op.create_index('ix_chunk_opinions_disputed', 'chunk_opinions', ['disputed', 'chunk_id'])
    op.create_index('ix_chunk_opinions_flag', 'chunk_opinions', ['flag', 'chunk_id'])

    op.create_table('chunk_votes',
    sa.Column('chunk_id', ID, nullable=False),
    sa.Column('judge_id', ID, nullable=False),
    sa.Column('positive', sa.Integer(), nullable=False),
    sa.Column('negative', sa.Integer(), nullable=False),
    sa.Column('total', sa.Integer(), nullable=False),
    sa.Column('verdict', sa.String(length=8), nullable=True),
    sa.ForeignKeyConstraint(['chunk_id'], ['chunks.id'], name=op.f('fk_chunk_votes_chunk_id')),
    sa.ForeignKeyConstraint(['judge_id'], ['judges.id'], name=op.f('fk_chunk_votes_judge_id')),
    sa.PrimaryKeyConstraint('chunk_id', 'judge_id', name=op.f('pk_chunk_votes'))
    )
    op.create_index('ix_chunk_votes_judge_id_verdict_chunk_id', 'chunk_votes', ['judge_id', 'verdict', 'chunk_id'])

    op.create_table('queue_items',
    sa.Column('id', ID, nullable=False),
    sa.Column('queue_id', ID, nullable=False),
    sa.Column('position', sa.Integer(), nullable=False),
    sa.Column('trajectory_id', ID, nullable=False),
    sa.Column('chunk_id', ID, nullable=True),
    sa.Column('known', sa.Integer(), nullable=True),
    sa.Column('n_done', sa.Integer(), nullable=False),
    sa.Column('settled', sa.Boolean(), nullable=False),
    sa.ForeignKeyConstraint(['chunk_id'], ['chunks.id'], name=op.f('fk_queue_items_chunk_id')),
    sa.ForeignKeyConstraint(['queue_id'], ['queues.id'], name=op.f('fk_queue_items_queue_id')),
    sa.ForeignKeyConstraint(['trajectory_id'], ['trajectories.id'], name=op.f('fk_queue_items_trajectory_id')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_queue_items')),
    sa.UniqueConstraint('queue_id', 'position', name=op.f('uq_queue_items_queue_id_position')),
    sa.UniqueConstraint('queue_id', 'trajectory_id', 'chunk_id', name=op.f('uq_queue_items_queue_id_trajectory_id_chunk_id'))
    )
    op.create_index('ix_queue_items_next', 'queue_items', ['queue_id', 'settled', 'position'])
    op.create_index(op.f('ix_queue_items_chunk_id'), 'queue_items', ['chunk_id'])
    op.create_index(op.f('ix_queue_items_trajectory_id'), 'queue_items', ['trajectory_id'])

    op.create_table('assignments',
    sa.Column('id', ID, nullable=False),
    sa.Column('item_id', ID, nullable=False),
    sa.Column('actor', sa.String(length=200), nullable=False),
    sa.Column('status', sa.String(length=16), nullable=False),
    sa.Column('opened_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('seen_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('closed_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('seconds', sa.Double(), nullable=True),
    sa.Column('right', sa.Boolean(), nullable=True),
    sa.CheckConstraint("status IN ('open', 'done', 'skipped')", name=op.f('ck_assignments_status')),
    sa.ForeignKeyConstraint(['item_id'], ['queue_items.id'], name=op.f('fk_assignments_item_id')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_assignments')),
    sa.UniqueConstraint('item_id', 'actor', name=op.f('uq_assignments_item_id_actor'))
    )
    op.create_index('ix_assignments_actor_status', 'assignments', ['actor', 'status', 'item_id'])

    op.create_index('ix_chunk_labels_drop', 'chunk_labels', ['drop', 'chunk_id'])
    op.create_index('ix_chunk_labels_rel_ratio_conf', 'chunk_labels', ['rel_ratio_conf', 'chunk_id'])

    _add_columns()
    _count_what_is_there()
    _count_crossings()
    if op.get_bind().dialect.name == "sqlite":
        for statement in (*_full_text("chunk_fts", "chunks", "text"), *_full_text("rationale_fts", "judgments", "rationale"), *_full_text("comment_fts", "reviews", "comment")):
            op.execute(statement)


def _add_columns() -> None:
    """No batch on SQLite: copying a table would drop rows that others refer to."""
    op.add_column('drafts', sa.Column('data', sa.JSON(), nullable=True))
    op.add_column('reviews', sa.Column('flag', sa.String(length=16), nullable=True))
    op.add_column('reviews', sa.Column('span_start', sa.Integer(), nullable=True))
    op.add_column('reviews', sa.Column('span_end', sa.Integer(), nullable=True))
    op.add_column('reviews', sa.Column('correction', sa.Text(), nullable=True))
    op.add_column('reviews', sa.Column('seconds', sa.Double(), nullable=True))
    for name, table in (('item_id', 'queue_items'), ('guideline_id', 'guidelines')):
        key = sa.ForeignKey(f'{table}.id', name=op.f(f'fk_reviews_{name}'))
        op.add_column('reviews', sa.Column(name, ID, key, nullable=True), inline_references=True)
    op.create_index(op.f('ix_reviews_item_id'), 'reviews', ['item_id'])


def _count_what_is_there() -> None:
    """The caches of votes and opinions from the rows that the store holds already."""
    op.execute(
        """INSERT INTO chunk_votes (chunk_id, judge_id, positive, negative, total, verdict)
        SELECT chunk_id, judge_id, positive, negative, total,
            CASE WHEN positive > negative THEN 'positive' WHEN negative > positive THEN 'negative' END
        FROM (SELECT chunk_id, judge_id, count(*) AS total,
            sum(CASE WHEN verdict = 'positive' THEN 1 ELSE 0 END) AS positive,
            sum(CASE WHEN verdict = 'negative' THEN 1 ELSE 0 END) AS negative
            FROM judgments GROUP BY chunk_id, judge_id) AS votes"""
    )
    op.execute(
        """INSERT INTO chunk_opinions (chunk_id, plus, minus, abstained, adjudicated, disputed, flag, verdict)
        SELECT chunk_id, plus, minus, abstained, decided IS NOT NULL,
            decided IS NULL AND plus > 0 AND minus > 0, NULL,
            CASE WHEN decided IS NOT NULL THEN CASE decided WHEN 1 THEN '+' WHEN -1 THEN '-' END
                WHEN plus > 0 AND minus = 0 THEN '+' WHEN minus > 0 AND plus = 0 THEN '-' END
        FROM (SELECT said.chunk_id AS chunk_id,
                sum(CASE WHEN said.kind = 'review' AND said.verdict = 1 THEN 1 ELSE 0 END) AS plus,
                sum(CASE WHEN said.kind = 'review' AND said.verdict = -1 THEN 1 ELSE 0 END) AS minus,
                sum(CASE WHEN said.kind = 'review' AND coalesce(said.verdict, 0) = 0 THEN 1 ELSE 0 END) AS abstained,
                max(CASE WHEN said.kind = 'adjudication' AND said.verdict IS NOT NULL THEN said.id END) AS last
            FROM reviews AS head
            JOIN reviews AS said ON said.id = CASE WHEN head.kind = 'undo' THEN head.restores ELSE head.id END
            WHERE NOT EXISTS (SELECT 1 FROM reviews AS later WHERE later.supersedes = head.id)
            GROUP BY said.chunk_id) AS counted
        LEFT JOIN (SELECT id, verdict AS decided FROM reviews) AS adjudication ON adjudication.id = last"""
    )


def _count_crossings() -> None:
    """Totals of what labels, judges and people say against each other (db.crossings), from what the store holds."""
    rules = ("abs_q", "rel_effective", "rel_ratio")
    op.execute(
        """INSERT INTO totals (name, key, n, amount)
        SELECT 'pairs', before_k || '/' || before_n || ' ' ||
            CASE WHEN after_exact IS NULL THEN after_k || '/' || after_n ELSE '=' || after_exact END, count(*), 0
        FROM chunk_labels
        WHERE "drop" IS NOT NULL AND before_n > 0 AND (after_n > 0 OR after_exact IS NOT NULL)
        GROUP BY 2"""
    )
    for rule in rules:
        op.execute(
            f"""INSERT INTO totals (name, key, n, amount)
            SELECT 'judged/{rule}/' || v.judge_id, CASE WHEN c.idx > 31 THEN 31 ELSE c.idx END || '/' || l.{rule} ||
                CASE v.verdict WHEN 'positive' THEN '+' WHEN 'negative' THEN '-' ELSE '0' END, count(*), 0
            FROM chunk_votes AS v JOIN chunks AS c ON c.id = v.chunk_id JOIN chunk_labels AS l ON l.chunk_id = c.id
            WHERE l.{rule} IS NOT NULL GROUP BY 1, 2"""
        )
        op.execute(
            f"""INSERT INTO totals (name, key, n, amount)
            SELECT 'people/{rule}', l.{rule} || o.verdict ||
                CASE WHEN l.{rule}_conf >= 0.9 THEN '/sure' ELSE '/unsure' END, count(*), 0
            FROM chunk_opinions AS o JOIN chunk_labels AS l ON l.chunk_id = o.chunk_id
            WHERE l.{rule} IS NOT NULL AND o.verdict IS NOT NULL GROUP BY 2"""
        )
    op.execute(
        """INSERT INTO totals (name, key, n, amount)
        SELECT 'opinions', coalesce(verdict, CASE WHEN disputed THEN 'disputed' ELSE 'none' END), count(*), 0
        FROM chunk_opinions GROUP BY 2"""
    )


def _full_text(index: str, table: str, column: str) -> tuple[str, ...]:
    """An index of trigrams that reads its text from ``table``; triggers keep it in step. PostgreSQL uses ILIKE."""
    new = f"INSERT INTO {index} (rowid, {column}) VALUES (new.id, new.{column});"
    old = f"INSERT INTO {index} ({index}, rowid, {column}) VALUES ('delete', old.id, old.{column});"
    return (
        f"CREATE VIRTUAL TABLE {index} USING fts5({column}, content='{table}', content_rowid='id', tokenize='trigram')",
        f"CREATE TRIGGER {index}_insert AFTER INSERT ON {table} BEGIN {new} END",
        f"CREATE TRIGGER {index}_delete AFTER DELETE ON {table} BEGIN {old} END",
        f"CREATE TRIGGER {index}_update AFTER UPDATE OF {column} ON {table} BEGIN {old} {new} END",
        f"INSERT INTO {index} ({index}) VALUES ('rebuild')",
    )


def downgrade() -> None:
    raise NotImplementedError("the store is only upgraded; keep a copy of the file to go back")
