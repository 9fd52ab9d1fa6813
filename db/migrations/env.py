"""Alembic's entry: runs the revisions on the connection that ``db.migrate`` hands over, inside its transaction."""

from alembic import context

from db.migrate import CONFIGURE

context.configure(connection=context.config.attributes["connection"], **CONFIGURE)
with context.begin_transaction():
    context.run_migrations()
