"""Finding chunks: pages of the chunks that fit a filter, in an order, with where a search was found; counts that stop.

Two ways, both of bounded cost whatever the filter is. Where an index says that few chunks can fit (a rare word, a
flag, somebody's reviews, a queue), those few are read and sorted. Else the order's own index is walked from where the
page before ended, window by window, until the page is full or ``LOOK`` chunks were looked at; what was not reached
then is said (``whole`` False) and reached from the page's ``next``. Not: what a row shows (find_rows), the filter
(chunk_filter).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import chain, repeat
from typing import Any

from sqlalchemy import Connection, Select, and_, literal_column, or_, select

from db.blind import not_hidden
from db.chunk_filter import ChunkFilter, found_by_reading, plain_conditions
from db.errors import CursorError, StoreValueError
from db.find_rows import FoundChunk, found_chunks
from db.find_sources import few_chunks
from db.session import LARGEST, StoreBase
from db.tables import Chunk, ChunkLabel, ChunkOpinion, Trajectory

LOOK = 200_000
"""Chunks that one page, or one count, looks at."""
WINDOWS = (2_000, 8_000, 32_000)
"""Chunks of the first windows of a walk; the last size is that of every later one."""


@dataclass(frozen=True)
class ChunkOrder:
    """By a column of the labels (chunks where it is unknown are left out), then by id, both in one direction."""

    column: Any = None
    ascending: bool = False

    @property
    def key(self) -> Any:
        return Chunk.id if self.column is None else ChunkLabel.chunk_id


CHUNK_SORTS = {
    "newest": ChunkOrder(),
    "drop": ChunkOrder(ChunkLabel.drop),
    "certain": ChunkOrder(ChunkLabel.rel_ratio_conf, ascending=True),
}
_Position = tuple[Any, int]
"""Where a row stands in the order: its value (None where the order is by id alone) and its id."""


@dataclass(frozen=True)
class ChunkCount:
    """``n``: how many fit, counted up to one more than asked for. ``whole`` False: at least so many; not all were
    looked at."""

    n: int
    whole: bool


@dataclass(frozen=True)
class ChunkPage:
    """Rows, and the cursors of the pages beside it (None: there is none).

    ``whole`` False: this page has fewer rows than asked for because the walk stopped, not because there are no more.
    ``count``: how many fit from its first row on, where that was asked for.
    """

    rows: list[FoundChunk]
    next: str | None
    previous: str | None
    whole: bool
    count: ChunkCount | None = None


class FindStore(StoreBase):
    """Reads of the list of chunks."""

    def find_chunks(
        self,
        where: ChunkFilter,
        *,
        sort: str = "newest",
        cursor: str | None = None,
        backwards: bool = False,
        limit: int = 50,
        look: int | None = LOOK,
        count: int = 0,
    ) -> ChunkPage:
        """One page. ``cursor`` is a page's ``next`` (or its ``previous``, with ``backwards``); ``look`` None: walk on
        until the page is full. ``count``: count on the same walk up to one more than so many.

        Raises CursorError for a cursor that belongs to another filter or order, or to none.
        """
        order = _order(sort)
        position = _decode(cursor, where, sort) if cursor else None
        with self.read() as db:
            search = _Search(db, self.viewer, where, order, backwards)
            found, stopped = search.take(position, max(limit, count) + 1, look)
            counted = ChunkCount(len(found), whole=stopped is None) if count else None
            more, found = len(found) > limit, found[:limit]
            ahead = found[-1] if more else stopped
            ends = [found[0] if found else None, ahead]
            if backwards:
                found.reverse()
                ends = [ahead, found[-1] if found else None]
            rows = found_chunks(db, where, [id_ for _, id_ in found])
        came_from = position is not None
        previous, following = (_encode(end, where, sort) if end else None for end in ends)
        whole = more or stopped is None
        if backwards:
            return ChunkPage(rows, following if came_from else None, previous, whole, counted)
        return ChunkPage(rows, following, previous if came_from else None, whole, counted)

    def count_chunks(
        self, where: ChunkFilter, *, sort: str = "newest", stop: int = 1000, look: int | None = LOOK
    ) -> ChunkCount:
        """How many fit and have a place in the order, counted up to ``stop`` + 1 (shown as "1,000+")."""
        with self.read() as db:
            found, stopped = _Search(db, self.viewer, where, _order(sort), False).take(None, stop + 1, look)
            return ChunkCount(len(found), whole=stopped is None)

    def chunk_ids(
        self, where: ChunkFilter, *, sort: str = "newest", limit: int, look: int | None = None
    ) -> list[tuple[int, int]]:
        """(chunk id, trajectory id) of the first ``limit`` chunks that fit, in order: what a bulk action is given."""
        with self.read() as db:
            found, _ = _Search(db, self.viewer, where, _order(sort), False).take(None, limit, look)
            ids = [id_ for _, id_ in found]
            places: dict[int, int] = {}
            for start in range(0, len(ids), 5000):
                query = select(Chunk.id, Chunk.trajectory_id).where(Chunk.id.in_(ids[start : start + 5000]))
                places |= {chunk_id: trajectory_id for chunk_id, trajectory_id in db.execute(query)}
            return [(id_, places[id_]) for id_ in ids]

    def iterate_found(self, where: ChunkFilter, *, sort: str = "newest") -> Iterator[FoundChunk]:
        """Every chunk that fits, in order, a few hundred at a time; no session stays open between."""
        cursor: str | None = None
        while True:
            page = self.find_chunks(where, sort=sort, cursor=cursor, limit=500, look=None)
            yield from page.rows
            if (cursor := page.next) is None:
                return


class _Search:
    """One filter in one order and direction, for one viewer's eyes."""

    def __init__(
        self, db: Connection, viewer: str | None, where: ChunkFilter, order: ChunkOrder, backwards: bool
    ) -> None:
        self.db, self.order = db, order
        self.up = order.ascending != backwards
        self.few = few_chunks(db, where)
        self.conditions = [*plain_conditions(where), *not_hidden(db, viewer, Trajectory.id)]
        if where.words and not (self.few and self.few.searched):
            self.conditions.append(found_by_reading(where))

    def take(
        self, position: _Position | None, limit: int, look: int | None
    ) -> tuple[list[_Position], _Position | None]:
        """Up to ``limit`` places from ``position`` on, and where the walk stopped before it knew that there are no
        more (None: it knows)."""
        if self.few is not None:
            rows = self._places(self._after(position)).where(self.order.key.in_(self.few.ids))
            return self._fitting(rows, limit), None
        found: list[_Position] = []
        looked = 0
        # Places with the position's value come first, then those beyond it: an index finds both, but not the two as one.
        ties = position is not None and self.order.column is not None
        for size in chain(WINDOWS[:-1], repeat(WINDOWS[-1])):
            window = self._sorted(self._places(self._stretch(position, ties)))
            found += self._fitting(window.limit(size), limit - len(found))
            if len(found) >= limit:
                break
            end = self.db.execute(window.offset(size - 1).limit(1)).first()
            if end is not None:
                position, looked, ties = (end.value, end.id), looked + size, self.order.column is not None
                if look is not None and looked >= look:
                    return found, position
            elif ties:
                ties = False
            else:
                break
        return found, None

    def _places(self, conditions: list[Any]) -> Select[Any]:
        """(value, id) by the order's own index."""
        key, column = self.order.key, self.order.column
        if column is None:
            return select(literal_column("NULL").label("value"), key.label("id")).where(*conditions)
        return select(column.label("value"), key.label("id")).where(column.is_not(None), *conditions)

    def _stretch(self, position: _Position | None, ties: bool) -> list[Any]:
        if position is None:
            return []
        value, id_ = position
        if ties:
            return [self.order.column == value, self._beyond(self.order.key, id_)]
        by_id = self.order.column is None
        return [self._beyond(self.order.key, id_) if by_id else self._beyond(self.order.column, value)]

    def _after(self, position: _Position | None) -> list[Any]:
        """Both stretches at once."""
        if position is None:
            return []
        stretches = [self._stretch(position, ties) for ties in {False, self.order.column is not None}]
        return [or_(*(and_(*conditions) for conditions in stretches))]

    def _beyond(self, column: Any, value: Any) -> Any:
        return column > value if self.up else column < value

    def _sorted(self, query: Select[Any]) -> Select[Any]:
        keys = [self.order.key] if self.order.column is None else [self.order.column, self.order.key]
        return query.order_by(*(key.asc() if self.up else key.desc() for key in keys))

    def _fitting(self, places: Select[Any], limit: int) -> list[_Position]:
        """Those of the places whose chunk fits, in order."""
        window = places.subquery()
        query = (
            select(window.c.value, window.c.id)
            .select_from(window)
            .join(Chunk, Chunk.id == window.c.id)
            .join(Trajectory, Trajectory.id == Chunk.trajectory_id)
            .outerjoin(ChunkLabel, ChunkLabel.chunk_id == window.c.id)
            .outerjoin(ChunkOpinion, ChunkOpinion.chunk_id == window.c.id)
            .where(*self.conditions)
        )
        keys = [window.c.id] if self.order.column is None else [window.c.value, window.c.id]
        query = query.order_by(*(key.asc() if self.up else key.desc() for key in keys)).limit(limit)
        return [(value, id_) for value, id_ in self.db.execute(query)]


def _order(sort: str) -> ChunkOrder:
    if sort not in CHUNK_SORTS:
        raise StoreValueError(f"chunks can be sorted by {', '.join(CHUNK_SORTS)}, not by {sort!r}")
    return CHUNK_SORTS[sort]


# ---- cursors


def _digest(where: ChunkFilter, sort: str) -> str:
    return sha256(json.dumps([asdict(where), sort], sort_keys=True).encode()).hexdigest()[:12]


def _encode(position: _Position, where: ChunkFilter, sort: str) -> str:
    data = json.dumps([_digest(where, sort), *position], separators=(",", ":"))
    return base64.urlsafe_b64encode(data.encode()).decode().rstrip("=")


def _decode(cursor: str, where: ChunkFilter, sort: str) -> _Position:
    wrong = CursorError(f"cursor {cursor[:80]!r} is none of this list's: begin at its first page")
    try:
        digest, value, id_ = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError, RecursionError) as error:
        raise wrong from error
    if any(isinstance(one, int) and abs(one) > LARGEST for one in (value, id_)):
        raise wrong  # no id of any store
    if digest != _digest(where, sort):
        raise CursorError("this cursor belongs to another filter or order: begin at the first page")
    valued = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(id_, int) or isinstance(id_, bool) or valued != (CHUNK_SORTS[sort].column is not None):
        raise wrong
    return value, id_
