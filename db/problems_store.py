"""Problems in the store: add, read. Not: reading files (engine.problems), search (reads_list)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, func, select

from db.blind import hidden_problems
from db.errors import NotFoundError
from db.rows import AddedProblems, NewProblem, ProblemRow
from db.session import StoreBase, batches, columns, insert_new, rows_of
from db.tables import Problem, Total
from db.totals import Delta

_COLUMNS = columns(ProblemRow, Problem)
VERIFIER: Any = func.coalesce(Problem.meta["verifier"].as_string(), "math")
"""How solutions of the problem are checked (``engine.verifiers``)."""


class ProblemsStore(StoreBase):
    """A problem is known by (dataset, key); one that is stored stays as it is."""

    def add_problems(self, rows: Iterable[NewProblem], *, run_id: int | None, actor: str) -> AddedProblems:
        """Store the new ones in one transaction. What was there before under the same key is reported, not changed."""
        rows = list(rows)
        wanted: dict[tuple[str, str], NewProblem] = {}
        for row in rows:
            wanted.setdefault((row.dataset, row.key), row)  # of two with one key the first counts
        with self.write() as db:
            before = _by_key(db, wanted)
            new = [row for row in wanted.values() if (row.dataset, row.key) not in before]
            made: set[tuple[str, str]] = set()
            if new:
                values = [
                    {"dataset": r.dataset, "key": r.key, "text": r.text, "answer": r.answer, "meta": r.meta}
                    | {"run_id": run_id, "actor": actor}
                    for r in new
                ]
                stored = insert_new(db, Problem).returning(Problem.dataset, Problem.key)
                made = {(dataset, key) for dataset, key in db.execute(stored, values)}
                delta = Delta()
                for dataset, _ in made:
                    delta.add("problems/dataset", dataset)
                delta.apply(db)
            after = _by_key(db, wanted)
        before = {
            key: row for key, row in after.items() if key not in made
        }  # somebody else's import included
        ids = {key: row.id for key, row in after.items()}
        differing = {
            row.id
            for key, row in before.items()
            if (row.text, row.answer, row.meta.get("verifier"))
            != (wanted[key].text, wanted[key].answer, wanted[key].meta.get("verifier"))
        }
        return AddedProblems(
            added=tuple(ids[key] for key in wanted if key not in before),
            existing=tuple(ids[key] for key in wanted if key in before),
            differing=tuple(sorted(differing)),
            ids=ids,
        )

    def problem(self, problem_id: int) -> ProblemRow:
        """One problem. Raises NotFoundError."""
        found = self.problems(ids=[problem_id])
        if not found:
            raise NotFoundError(f"there is no problem {problem_id}")
        return found[0]

    def count_problems(self, dataset: str | None = None) -> int:
        """How many problems a data set has, or all have."""
        query = select(func.coalesce(func.sum(Total.n), 0)).where(Total.name == "problems/dataset")
        if dataset is not None:
            query = query.where(Total.key == dataset)
        with self.read() as db:
            return int(db.execute(query).scalar_one())

    def problems(
        self,
        ids: Sequence[int] | None = None,
        *,
        dataset: str | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[ProblemRow]:
        """By id, ascending; ``after``: only ids above it (the next page).

        The answer is empty where a solution of the problem is hidden from the viewer.
        """
        query = select(*_COLUMNS).where(Problem.id > after).order_by(Problem.id).limit(limit)
        if dataset is not None:
            query = query.where(Problem.dataset == dataset)
        with self.read() as db:
            found: list[ProblemRow] = []
            for batch in batches(sorted(ids)) if ids is not None else [None]:
                part = query if batch is None else query.where(Problem.id.in_(batch))
                found += rows_of(ProblemRow, db.execute(part))
            found = found[:limit]
            away = hidden_problems(db, self.viewer, [row.id for row in found])
            return [replace(row, answer="") if row.id in away else row for row in found]


def _by_key(db: Connection, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], ProblemRow]:
    found = {}
    keys_of: dict[str, list[str]] = {}
    for dataset, key in wanted:
        keys_of.setdefault(dataset, []).append(key)
    for dataset, keys in keys_of.items():
        for batch in batches(keys):
            query = select(*_COLUMNS).where(Problem.dataset == dataset, Problem.key.in_(batch))
            found.update({(row.dataset, row.key): row for row in rows_of(ProblemRow, db.execute(query))})
    return found
