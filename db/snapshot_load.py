"""Loading a snapshot into a store: new ids, nothing twice, nothing that the store holds is changed.

Rows are recognised by what is unique about them (a run's uid, a problem's data set and key, a prefix's key and a
draw, …). Where the store holds another text (or reference) under the same key, or has cut it elsewhere, its own stays
and the snapshot's row is left out with all that hangs on it. One transaction: a broken file loads nothing.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, insert, select

from db.column_types import TokenIds, UtcDateTime
from db.crossings import OF_LABELS, kept
from db.errors import SnapshotError
from db.judges_store import free_judge_name
from db.labels_store import refresh_caches
from db.opinions import refresh_opinions, refresh_votes
from db.review_chain import count_reviewed, own_action
from db.session import StoreBase, batches, insert_new, one_opinion_at_a_time
from db.tables import Base, Review, TrajectoryText
from db.totals import LABEL_RULES, NO_VERDICT, Delta, count_drop, in_force

FORMAT, VERSION = "stepwiser-snapshot", 1
TABLES = (
    "runs",
    "metrics",
    "problems",
    "prefixes",
    "prefix_stops",
    "trajectories",
    "trajectory_texts",
    "chunks",
    "chunk_labels",
    "rollouts",
    "rollout_texts",
    "judges",
    "judgments",
    "reviews",
)
"""Parents before children."""
KEYS: dict[str, tuple[str, ...]] = {
    "runs": ("uid",),
    "metrics": ("run_id", "name", "step"),
    "problems": ("dataset", "key"),
    "prefixes": ("key",),
    "prefix_stops": ("prefix_id",),
    "trajectories": ("problem_id", "prefix_id", "draw", "import_key"),
    "trajectory_texts": ("trajectory_id",),
    "chunks": ("trajectory_id", "idx"),
    "chunk_labels": ("chunk_id",),
    "rollouts": ("prefix_id", "draw"),
    "rollout_texts": ("rollout_id",),
    "judges": ("checkpoint_hash", "prompt_hash", "sampling_digest"),
    "judgments": ("judge_id", "chunk_id", "draw"),
    "reviews": ("action_id",),
}
"""What is unique about a row; the first column also finds it."""
WITH_CHILDREN = ("runs", "problems", "prefixes", "trajectories", "chunks", "judges")
"""Tables whose stored rows may get children from the snapshot. (A stored rollout keeps its own text.)"""
ROWS_A_BATCH = 1000


@dataclass
class Loaded:
    """Rows added by table, and how many were left out because the store holds something else in their place."""

    added: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    left_out: int = 0


def load(store: StoreBase, path: Path) -> Loaded:
    """Load a snapshot. Loading it again adds nothing. Raises SnapshotError, naming file and line."""
    with store.write() as db:
        one_opinion_at_a_time(db)
        loader = _Loader(db)
        for name, rows in _read(path):
            loader.add(name, rows)
        loader.finish()
    return loader.loaded


def _read(path: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """(table, a batch of rows as mappings)."""
    number = 0
    try:
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            head = json.loads(next(lines, "null"))
            if not isinstance(head, dict) or (head.get("format"), head.get("version")) != (FORMAT, VERSION):
                raise SnapshotError(f"{path}: not a snapshot of format {FORMAT} {VERSION}; dump it again")
            name, names = "", []
            number = 1
            while batch := [json.loads(line) for line in islice(lines, ROWS_A_BATCH)]:
                held: list[dict[str, Any]] = []
                for row in batch:
                    number += 1
                    if isinstance(row, dict):
                        if held:
                            yield name, held
                        name, names, held = _table_name(path, row), row["columns"], []
                    else:
                        held.append(dict(zip(names, row, strict=True)))
                if held:
                    yield name, held
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise SnapshotError(f"{path}: the snapshot cannot be read ({error}); nothing was loaded") from error
    except (ValueError, KeyError, TypeError) as error:
        raise SnapshotError(f"{path}, after line {number}: broken ({error}); nothing was loaded") from error


def _table_name(path: Path, row: dict[str, Any]) -> str:
    if row.get("table") not in TABLES:
        raise SnapshotError(f"{path}: it holds a table {row.get('table')!r} that this version does not know")
    return row["table"]


class _Loader:
    """State of one load: which id of the file is which id of the store."""

    def __init__(self, db: Connection):
        self.db = db
        self.loaded = Loaded()
        self.ids: dict[str, dict[int, int]] = {name: {} for name in TABLES}
        self.delta = Delta()
        self.datasets: dict[int, str] = {}
        self.fresh_prefixes: set[int] = set()
        self.fresh_trajectories: set[int] = set()
        self.positions: dict[int, int] = {}
        self.owners: dict[int, int] = {}
        self.changed: set[int] = set()
        self.judged: set[int] = set()
        self.reviewed: set[int] = set()

    def add(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Add one batch of a table's rows."""
        table = Base.metadata.tables[name]
        pairs = [
            (row.get("id"), values) for row in rows if (values := self._translate(table, row)) is not None
        ]
        if name != "rollout_texts":  # a rollout that is stored already has its text
            self.loaded.left_out += len(rows) - len(pairs)
        if name == "prefix_stops":  # a prefix that the store holds is stopped there or not
            pairs = [pair for pair in pairs if pair[1]["prefix_id"] in self.fresh_prefixes]
        if name == "reviews":
            for old, values in pairs:
                self._add_review(old, values)
            return
        if name == "judges":
            for _, values in pairs:
                values["name"] = self._judge_name(values)
        given = [values for _, values in pairs]
        if name == "chunks":  # a trajectory that the store holds gets no chunks: it has all of its own
            given = [values for values in given if values["trajectory_id"] in self.fresh_trajectories]
        labelled = {values["chunk_id"] for values in given} if name == "chunk_labels" else set()
        with kept(self.db, labelled, OF_LABELS):
            new = self._insert(table, given)
        self.loaded.added[name] += len(new)
        if name == "judgments":
            self.judged.update(values["chunk_id"] for _, values in pairs)
        known = new
        missing = [values for _, values in pairs if _key(name, values) not in new]
        if missing and name in WITH_CHILDREN:
            known = new | self._find(table, missing)
        for old, values in pairs:
            key = _key(name, values)
            if old is not None and key in known:
                self.ids[name][old] = known[key]
            self._note(name, known.get(key), values, new=key in new)
        if name == "trajectory_texts":
            self._drop_other_texts(missing)

    def finish(self) -> None:
        """Totals and caches of what was added."""
        self.delta.apply(self.db)
        refresh_votes(self.db, self.judged)
        refresh_opinions(self.db, self.reviewed)
        refresh_caches(self.db, self.changed)

    def _translate(self, table: Table, row: dict[str, Any]) -> dict[str, Any] | None:
        """The row with the store's ids; None if a parent was left out."""
        values: dict[str, Any] = {}
        for column in table.c:
            # a snapshot of an older version lacks columns that came later; all of them may be empty
            value = row.get(column.name) if column.nullable else row[column.name]
            if column.name == "id":
                continue
            for foreign in column.foreign_keys:
                parent = foreign.column.table.name
                if parent not in self.ids:
                    value = None  # queues stay where they were made; what was answered in them does not
                elif value is not None and table.name != parent:
                    value = self.ids[parent].get(value)
                    if value is None:
                        return None
            if value is not None and isinstance(column.type, UtcDateTime):
                value = datetime.fromisoformat(value)
            if value is not None and isinstance(column.type, TokenIds):
                value = tuple(value)
            values[column.name] = value
        if table.name == "runs":
            values["parent_id"] = None  # what it was a part of goes on, if at all, where it came from
            if values["status"] in ("queued", "running", "stalled"):
                values |= {"status": "stopped", "pid": None, "waiting_for": ""}  # its process is not here
        if table.name == "trajectories":
            values["n_reviewed"] = 0  # counted again as reviews arrive
        return values

    def _insert(self, table: Table, rows: list[dict[str, Any]]) -> dict[Any, int]:
        """Insert what is new; {key: id} of it (for a table without ids: the key's first column)."""
        if not rows:
            return {}
        chosen = [table.c.id] if "id" in table.c else []
        chosen += [table.c[name] for name in KEYS[table.name]]
        result = self.db.execute(insert_new(self.db, table).returning(*chosen), rows)
        return {_key(table.name, row._mapping): row[0] for row in result}

    def _find(self, table: Table, rows: list[dict[str, Any]]) -> dict[Any, int]:
        """{key: id} of rows that the store holds. A problem with another text, reference or verifier, or a chunk that
        was cut elsewhere, is not the same one."""
        keys = KEYS[table.name]
        wanted = {_key(table.name, row): row for row in rows}
        alike = {"problems": ("text", "answer", "meta"), "chunks": ("lead", "text", "close")}.get(
            table.name, ()
        )
        more = [table.c[name] for name in alike]
        found: dict[Any, int] = {}
        for batch in batches({row[keys[0]] for row in rows}, 1000):
            query = select(table.c.id, *(table.c[name] for name in keys), *more).where(
                table.c[keys[0]].in_(batch)
            )
            for row in self.db.execute(query):
                key = _key(table.name, row._mapping)
                if key in wanted and all(
                    _same(name, wanted[key][name], row._mapping[name]) for name in alike
                ):
                    found[key] = row.id
        self.loaded.left_out += len(wanted) - len(found)
        return found

    def _drop_other_texts(self, rows: list[dict[str, Any]]) -> None:
        """A trajectory whose text in the store is another one keeps it: nothing of the snapshot is hung on it."""
        texts = {row["trajectory_id"]: row["text"] for row in rows}
        query = select(TrajectoryText.trajectory_id, TrajectoryText.text)
        others: set[int] = set()
        for batch in batches(texts, 1000):
            for id_, text in self.db.execute(query.where(TrajectoryText.trajectory_id.in_(batch))):
                if text != texts[id_]:
                    others.add(id_)
        mine = self.ids["trajectories"]
        self.ids["trajectories"] = {old: new for old, new in mine.items() if new not in others}
        self.loaded.left_out += len(others)

    def _judge_name(self, values: dict[str, Any]) -> str:
        judges = Base.metadata.tables["judges"]
        same = [judges.c[name] == values[name] for name in KEYS["judges"]]
        known = self.db.scalar(select(judges.c.name).where(*same))
        return known or free_judge_name(self.db, values["name"])

    def _add_review(self, old: Any, values: dict[str, Any]) -> None:
        """Reviews one by one: a chain's rows name rows before them. A chain that went another way here stays."""
        ids = self.ids["reviews"]
        for link in ("supersedes", "restores"):
            if values[link] is not None:
                if values[link] not in ids:
                    self.loaded.left_out += 1
                    return
                values[link] = ids[values[link]]
        values["action_id"] = own_action(self.db, values["action_id"], values["chunk_id"], values["actor"])
        known = self.db.scalar(select(Review.id).where(Review.action_id == values["action_id"]))
        if known is not None:
            ids[old] = known
            return
        mine = (Review.chunk_id == values["chunk_id"]) & (Review.actor == values["actor"])
        head = self.db.scalar(select(Review.id).where(mine).order_by(Review.id.desc()).limit(1))
        if head != values["supersedes"]:
            self.loaded.left_out += 1
            return
        before = self._is_reviewed(values["chunk_id"])
        ids[old] = self.db.execute(insert(Review).values(values).returning(Review.id)).scalar_one()
        self.loaded.added["reviews"] += 1
        self.reviewed.add(values["chunk_id"])
        count_reviewed(self.db, [(values["chunk_id"], before, self._is_reviewed(values["chunk_id"]))])

    def _is_reviewed(self, chunk_id: int) -> bool:
        query = select(Review.id).where(Review.chunk_id == chunk_id, in_force()).limit(1)
        return self.db.scalar(query) is not None

    def _note(self, name: str, id_: int | None, values: dict[str, Any], *, new: bool) -> None:
        """Keep what later tables need to know, and count what is new."""
        if name == "problems" and id_ is not None:
            self.datasets[id_] = values["dataset"]
        if name == "chunks" and id_ is not None:
            self.positions[id_], self.owners[id_] = values["idx"], values["trajectory_id"]
        if not new:
            return
        if name == "prefixes" and id_ is not None:
            self.fresh_prefixes.add(id_)
        if name == "trajectories" and id_ is not None:
            self.fresh_trajectories.add(id_)
        if name == "problems":
            self.delta.add("problems/dataset", values["dataset"])
        elif name == "trajectories":
            self.delta.add("trajectories/outcome", values["outcome"])
            self.delta.add("trajectories/policy", values["policy"])
            self.delta.add("trajectories/dataset", self.datasets[values["problem_id"]])
        elif name == "chunks":
            self.delta.add("chunks", "all")
        elif name == "rollouts":
            self.delta.add("rollouts/outcome", values["outcome"])
        elif name == "judgments":
            self.delta.add("judgments/verdict", values["verdict"] or NO_VERDICT)
            self.changed.add(self.owners[values["chunk_id"]])
        elif name == "chunk_labels":
            for rule in LABEL_RULES:
                self.delta.add(f"labels/{rule}", values[rule] or NO_VERDICT)
            if values["drop"] is not None:
                count_drop(self.delta, self.positions[values["chunk_id"]], values["drop"], 1)
            self.changed.add(self.owners[values["chunk_id"]])


def _same(column: str, one: Any, other: Any) -> bool:
    """Whether two rows have the same there; of what is noted about a problem only how it is checked counts."""
    return one.get("verifier") == other.get("verifier") if column == "meta" else one == other


def _key(name: str, values: Any) -> tuple[Any, ...]:
    return tuple(values[column] for column in KEYS[name])
