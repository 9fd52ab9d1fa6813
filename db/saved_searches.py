"""Searches that people keep under a name: the query string of a page's address. Not: what it means (the page)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, insert, select

from db.errors import NotFoundError, StoreValueError
from db.people_store import need, note
from db.session import StoreBase, columns, one_at_a_time, rows_of, store_now
from db.tables import SavedSearch

NAME_CHARS = 200
MOST = 200
"""Saved searches that a page offers, by name."""


@dataclass(frozen=True)
class SavedSearchRow:
    id: int
    name: str
    page: str
    query: str
    actor: str
    created_at: datetime


class SavedSearches(StoreBase):
    """One name, one search; everybody sees them all."""

    def saved_searches(self, page: str) -> list[SavedSearchRow]:
        """Those of a page, by name."""
        query = select(*columns(SavedSearchRow, SavedSearch)).where(SavedSearch.page == page)
        with self.read() as db:
            return rows_of(SavedSearchRow, db.execute(query.order_by(SavedSearch.name).limit(MOST)))

    def save_search(self, name: str, page: str, query: str, actor: str) -> int:
        """Keep ``query`` under a name. Raises StoreValueError for a name that is empty, too long or taken,
        NotAllowedError for a reader."""
        name = " ".join(name.split())
        if not name or len(name) > NAME_CHARS:
            raise StoreValueError(f"a search is kept under a name of 1 to {NAME_CHARS} characters")
        with self.write() as db:
            one_at_a_time(db, "saved searches")
            need(db, actor, "annotator", "saving a search")
            taken = db.scalar(select(SavedSearch.page).where(SavedSearch.name == name))
            if taken is not None:
                raise StoreValueError(
                    f"a search of the {taken} page has the name {name!r} already: take another, or delete that one"
                )
            values = {"name": name, "page": page, "query": query, "actor": actor, "created_at": store_now(db)}
            id_ = db.execute(insert(SavedSearch).values(values).returning(SavedSearch.id)).scalar_one()
            note(db, actor, "save search", f"search {id_}", name=name, page=page, query=query)
            return id_

    def delete_search(self, search_id: int, actor: str) -> None:
        """Forget a search: one's own, or anybody's as an owner. Raises NotFoundError, NotAllowedError."""
        with self.write() as db:
            row = db.execute(
                select(SavedSearch.name, SavedSearch.actor).where(SavedSearch.id == search_id)
            ).first()
            if row is None:
                raise NotFoundError(f"there is no saved search {search_id}; it may have been deleted already")
            need(
                db,
                actor,
                "annotator" if row.actor == actor else "owner",
                "deleting this search",
            )
            db.execute(delete(SavedSearch).where(SavedSearch.id == search_id))
            note(db, actor, "delete search", f"search {search_id}", name=row.name)
