"""Alembic revisions of the store's schema, run by ``db.migrate`` (no alembic.ini)."""
