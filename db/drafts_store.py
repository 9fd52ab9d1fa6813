"""Half-done reviews, kept so that a reload loses nothing. One per person and chunk; nobody else is shown one."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select

from db.people_store import need
from db.session import StoreBase, store_now, upsert
from db.tables import Draft


class DraftsStore(StoreBase):
    """A draft's reads and its one write."""

    def get_draft(self, actor: str, chunk_id: int) -> str:
        """The actor's half-typed comment on this chunk; empty if there is none."""
        return self.draft(actor, chunk_id)[0]

    def draft(self, actor: str, chunk_id: int) -> tuple[str, dict[str, Any]]:
        """The actor's half-done review of this chunk: the comment, and what else was half done (flag, span, correction).

        Nobody else is shown one.
        """
        if self.viewer not in (None, actor):
            return "", {}
        query = select(Draft.text, Draft.data).where(Draft.actor == actor, Draft.chunk_id == chunk_id)
        with self.read() as db:
            row = db.execute(query).first()
            return (row.text, row.data or {}) if row else ("", {})

    def put_draft(self, actor: str, chunk_id: int, text: str, data: dict[str, Any] | None = None) -> None:
        """Keep a half-done review; storing it empties the draft. Raises NotAllowedError for a reader.

        Not on the audit list: nobody else sees a draft.
        """
        with self.write() as db:
            need(db, actor, "annotator", "keeping a draft")
            keep_draft(db, actor, chunk_id, text, data)


def keep_draft(
    db: Connection, actor: str, chunk_id: int, text: str, data: dict[str, Any] | None = None
) -> None:
    """Put the draft in place of what it was; empty text and no data: there is none."""
    statement = upsert(db, Draft, ["actor", "chunk_id"], ["text", "data", "updated_at"])
    values = {"actor": actor, "chunk_id": chunk_id, "text": text, "data": data, "updated_at": store_now(db)}
    db.execute(statement, [values])
