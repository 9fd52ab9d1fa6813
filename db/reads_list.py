"""The list of trajectories: filters, full-text search over problems, sorted keyset pages, counts that stop.

No OFFSET: a cursor holds where the page before ended (NULL flag, value, id) and is bound to filter and sort.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, Select, false, func, literal_column, select
from sqlalchemy.orm import aliased

from db.blind import HIDDEN, hidden, not_hidden
from db.errors import CursorError, StoreValueError
from db.full_text import text_query
from db.session import LARGEST, StoreBase, columns, rows_of
from db.tables import Chunk, ChunkLabel, Problem, Total, Trajectory

PROBLEM_CHARS = 300


@dataclass(frozen=True)
class TrajectoryFilter:
    """None: not filtered. ``search``: every word must occur in the problem's text. ``reviewed``: by anybody.

    ``drop_min``: of the biggest drop; ``confidence_max``: of the least certain rel-ratio label; ``disagree``: a judge's
    vote and the rel-ratio label differ at some chunk. Each leaves out where it is not known.
    """

    dataset: str | None = None
    policy: str | None = None
    outcome: str | None = None
    search: str | None = None
    reviewed: bool | None = None
    run_id: int | None = None
    drop_min: float | None = None
    confidence_max: float | None = None
    disagree: bool | None = None


@dataclass(frozen=True)
class TrajectoryItem:
    """A row of the list; ``problem_text`` is cut at 300 characters.

    ``blind``: a queue hides the trajectory from the viewer; outcome is then ``hidden``, answer and caches are None.
    """

    id: int
    problem_id: int
    dataset: str
    key: str
    problem_text: str
    policy: str
    outcome: str
    answer: str | None
    n_chunks: int
    biggest_drop: float | None
    least_confidence: float | None
    n_negative: int | None
    n_disagree: int | None
    n_reviewed: int
    run_id: int | None
    created_at: datetime
    blind: bool = False


@dataclass(frozen=True)
class TrajectoryPage:
    """Rows, and the cursors of the pages beside it (None: there is none)."""

    rows: list[TrajectoryItem]
    next: str | None
    previous: str | None


@dataclass(frozen=True)
class _Sort:
    """By a column, then by id, both in one direction; rows where a nullable column is NULL come last."""

    column: Any = None
    ascending: bool = False
    nullable: bool = True

    @property
    def segments(self) -> list[bool]:
        """The stretches that a list consists of: with a value (False), then NULL (True)."""
        if self.column is None:
            return [True]
        return [False, True] if self.nullable else [False]


SORTS = {
    "newest": _Sort(),
    "drop": _Sort(Trajectory.biggest_drop),
    "disagreement": _Sort(Trajectory.n_disagree),
    "confidence": _Sort(Trajectory.least_confidence, ascending=True),
    "unreviewed": _Sort(Trajectory.n_reviewed, ascending=True, nullable=False),
}
_Position = tuple[bool, Any, int]


class ListReads(StoreBase):
    """Reads of the list page."""

    def trajectory_page(
        self,
        where: TrajectoryFilter,
        *,
        sort: str = "newest",
        cursor: str | None = None,
        backwards: bool = False,
        limit: int = 50,
    ) -> TrajectoryPage:
        """One page. ``cursor`` is a page's ``next`` (or its ``previous``, with ``backwards``).

        Raises CursorError for a cursor that belongs to another filter or sort, or to none.
        """
        if sort not in SORTS:
            raise StoreValueError(f"trajectories can be sorted by {', '.join(SORTS)}, not by {sort!r}")
        order = SORTS[sort]
        position = _decode(cursor, where, sort) if cursor else None
        with self.read() as db:
            conditions = _conditions(db, where)
            if sort != "newest" or _tells(where):
                conditions += not_hidden(db, self.viewer, Trajectory.id)
            found = _walk(db, order, conditions, position, backwards, limit + 1)
            more, found = len(found) > limit, found[:limit]
            if backwards:
                found.reverse()
            rows = _items(db, [id_ for _, id_ in found])
            away = hidden(db, self.viewer, [row.id for row in rows])
            rows = [_blanked(row) if row.id in away else row for row in rows]
        ends = [_encode(_position(order, *found[i]), where, sort) for i in (0, -1)] if found else [None, None]
        has_next = more if not backwards else cursor is not None
        has_previous = more if backwards else cursor is not None
        return TrajectoryPage(rows, ends[1] if has_next else None, ends[0] if has_previous else None)

    def count_trajectories(self, where: TrajectoryFilter, *, sort: str = "newest", stop: int = 1000) -> int:
        """How many are in the list in that order, counted up to ``stop`` + 1 (shown as "1,000+")."""
        with self.read() as db:
            conditions = _conditions(db, where)
            if sort != "newest" or _tells(where):
                conditions += not_hidden(db, self.viewer, Trajectory.id)
            fitting = select(Trajectory.id).where(*conditions).limit(stop + 1).subquery()
            return db.execute(select(func.count()).select_from(fitting)).scalar_one()

    def q_paths(self, trajectory_ids: Sequence[int]) -> dict[int, list[float | None]]:
        """{id: [q before chunk 0, q after chunk 0, q after chunk 1, …]}, None where unknown."""
        paths: dict[int, list[float | None]] = {}
        query = (
            select(Chunk.trajectory_id, ChunkLabel.q_before, ChunkLabel.q_after)
            .outerjoin(ChunkLabel, ChunkLabel.chunk_id == Chunk.id)
            .where(Chunk.trajectory_id.in_(trajectory_ids))
            .order_by(Chunk.trajectory_id, Chunk.idx)
        )
        with self.read() as db:
            away = hidden(db, self.viewer, trajectory_ids)
            for trajectory_id, before, after in db.execute(query):
                seen = trajectory_id not in away
                paths.setdefault(trajectory_id, [before if seen else None]).append(after if seen else None)
        return paths

    def label_signs(self, trajectory_ids: Sequence[int]) -> dict[int, dict[str | None, int]]:
        """{id: {"+": n, "-": n, None: n}} by rel-ratio at its default."""
        signs: dict[int, dict[str | None, int]] = {}
        query = (
            select(Chunk.trajectory_id, ChunkLabel.rel_ratio, func.count())
            .outerjoin(ChunkLabel, ChunkLabel.chunk_id == Chunk.id)
            .where(Chunk.trajectory_id.in_(trajectory_ids))
            .group_by(Chunk.trajectory_id, ChunkLabel.rel_ratio)
        )
        with self.read() as db:
            away = hidden(db, self.viewer, trajectory_ids)
            for trajectory_id, sign, n in db.execute(query):
                of_one = signs.setdefault(trajectory_id, {})
                shown = None if trajectory_id in away else sign
                of_one[shown] = of_one.get(shown, 0) + n
        return signs

    def datasets(self) -> list[str]:
        """Names of the data sets that have problems."""
        return self._keys("problems/dataset")

    def policies(self) -> list[str]:
        """Names of the policies that have trajectories."""
        return self._keys("trajectories/policy")

    def _keys(self, name: str) -> list[str]:
        with self.read() as db:
            return list(
                db.scalars(select(Total.key).where(Total.name == name, Total.n > 0).order_by(Total.key))
            )


def _tells(where: TrajectoryFilter) -> bool:
    """Whether being in the list says something that a blind queue hides."""
    told = (where.outcome, where.reviewed, where.drop_min, where.confidence_max, where.disagree)
    return any(one is not None for one in told)


def _blanked(row: TrajectoryItem) -> TrajectoryItem:
    caches = ("biggest_drop", "least_confidence", "n_negative", "n_disagree")
    nothing: dict[str, Any] = dict.fromkeys(("answer", *caches))
    return replace(row, outcome=HIDDEN, n_reviewed=0, blind=True, **nothing)


# ---- conditions


def _conditions(db: Connection, where: TrajectoryFilter) -> list[Any]:
    """Filters that leave the walk along the sort's index to the planner's only choice.

    ``+ 0`` keeps a column's own index out of the plan: gathering a common value's rows and sorting them takes
    seconds, the walk reads what it filters by from the sort's index.
    """
    conditions: list[Any] = []
    if where.policy is not None:
        conditions.append(Trajectory.policy == where.policy)
    if where.outcome is not None:
        conditions.append(Trajectory.outcome == where.outcome)
    if where.run_id is not None:
        conditions.append(Trajectory.run_id + 0 == where.run_id)
    if where.reviewed is not None:
        reviewed = Trajectory.n_reviewed + 0
        conditions.append(reviewed > 0 if where.reviewed else reviewed == 0)
    if where.dataset is not None or (where.search and where.search.split()):
        problems = problem_query(db, where.dataset, where.search or "")
        conditions.append((Trajectory.problem_id + 0).in_(problems))
    return conditions + _ranges(where)


def _ranges(where: TrajectoryFilter) -> list[Any]:
    """Each range is read from the index that begins with its column, whatever the list is sorted by."""
    one = aliased(Trajectory)
    asked = []
    if where.drop_min is not None:
        asked.append(one.biggest_drop >= where.drop_min)
    if where.confidence_max is not None:
        asked.append(one.least_confidence <= where.confidence_max)
    if where.disagree is not None:
        asked.append(one.n_disagree > 0 if where.disagree else one.n_disagree == 0)
    return [(Trajectory.id + 0).in_(select(one.id).where(condition)) for condition in asked]


def problem_query(db: Connection, dataset: str | None, search: str) -> Select[Any]:
    """Ids of the problems of a data set whose text holds every word of ``search`` (taken literally)."""
    query = text_query(db, search, Problem)
    return query if dataset is None else query.where(Problem.dataset == dataset)


# ---- pages


def _walk(
    db: Connection,
    order: _Sort,
    conditions: list[Any],
    position: _Position | None,
    backwards: bool,
    limit: int,
) -> list[tuple[Any, int]]:
    """(value, id) of up to ``limit`` rows from the position on, in the direction asked for."""
    segments = order.segments[::-1] if backwards else order.segments
    if position is not None:
        segments = segments[segments.index(position[0]) :]
    ascending = order.ascending != backwards
    value = order.column if order.column is not None else literal_column("NULL")
    found: list[tuple[Any, int]] = []
    for null in segments:
        keys = [Trajectory.id] if null else [order.column, Trajectory.id]
        within: list[Any] = []
        if order.column is not None and order.nullable:
            within = [order.column.is_(None) if null else order.column.is_not(None)]
        here = position if position is not None and position[0] == null else None
        for stretch in _stretches(order, here, ascending):
            query = select(value, Trajectory.id).where(*conditions, *within, *stretch)
            query = query.order_by(*(key.asc() if ascending else key.desc() for key in keys))
            found += [(v, id_) for v, id_ in db.execute(query.limit(limit - len(found)))]
            if len(found) >= limit:
                return found
    return found


def _stretches(order: _Sort, position: _Position | None, ascending: bool) -> list[list[Any]]:
    """What lies beyond a position, in order: the rest of the rows with its value, then the rows beyond that value.

    Each is one range of the sort's index. As one condition, ``(value, id) > (v, i)``, the range begins with the value:
    all rows with an equal value before the position are read again for every page.
    """
    if position is None:
        return [[]]
    null, value, id_ = position

    def beyond(column: Any, bound: Any) -> Any:
        return column > bound if ascending else column < bound

    if null:
        return [[beyond(Trajectory.id, id_)]]
    ties = [order.column == value, beyond(Trajectory.id, id_)]
    return [ties, [beyond(order.column, value)]]


def _items(db: Connection, ids: Sequence[int]) -> list[TrajectoryItem]:
    text = func.substr(Problem.text, 1, PROBLEM_CHARS)
    chosen = columns(TrajectoryItem, Trajectory, Problem, problem_text=text, blind=false())
    query = select(*chosen).join(Problem, Problem.id == Trajectory.problem_id).where(Trajectory.id.in_(ids))
    rows = {row.id: row for row in rows_of(TrajectoryItem, db.execute(query))}
    return [rows[id_] for id_ in ids]


def _position(order: _Sort, value: Any, id_: int) -> _Position:
    return (order.column is None or value is None, value, id_)


def _digest(where: TrajectoryFilter, sort: str) -> str:
    return sha256(json.dumps([asdict(where), sort], sort_keys=True).encode()).hexdigest()[:12]


def _encode(position: _Position, where: TrajectoryFilter, sort: str) -> str:
    data = json.dumps([_digest(where, sort), *position], separators=(",", ":"))
    return base64.urlsafe_b64encode(data.encode()).decode().rstrip("=")


def _decode(cursor: str, where: TrajectoryFilter, sort: str) -> _Position:
    wrong = CursorError(f"cursor {cursor[:80]!r} is none of this list's: begin at its first page")
    try:
        digest, null, value, id_ = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError, RecursionError) as error:
        raise wrong from error
    if any(isinstance(one, int) and abs(one) > LARGEST for one in (value, id_)):
        raise wrong  # no id of any store
    if digest != _digest(where, sort):
        raise CursorError("this cursor belongs to another filter or order: begin at the first page")
    if (
        not isinstance(id_, int)
        or not isinstance(value, int | float | None)
        or null not in SORTS[sort].segments
    ):
        raise wrong
    return bool(null), value, id_
