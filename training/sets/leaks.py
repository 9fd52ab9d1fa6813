"""Problems that are trained on and evaluated on: found and refused by name. Not: the split inside a set."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import TrainingError
from training.sets.duplicates import near_duplicates
from training.sets.frozen import read_rows

if TYPE_CHECKING:
    from db.rows import ProblemRow
    from db.store import Store

NEAR = 0.8
"""Two problems are nearly the same from this share of common word triples on, as in ``duplicates``."""
NAMED = 5


def leaks(
    store: Store, trained: Iterable[int], evaluated: Iterable[int], near: float = NEAR
) -> list[tuple[ProblemRow, ProblemRow]]:
    """(problem trained on, problem evaluated on) that are one problem, or nearly; by ids of the store's problems."""
    trained, evaluated = set(trained), set(evaluated)
    rows = {row.id: row for row in store.problems(sorted(trained | evaluated))}
    leader = near_duplicates({id_: row.text for id_, row in rows.items()}, near)
    in_training: dict[int, int] = {}
    for problem in sorted(trained & set(rows)):
        in_training.setdefault(leader[problem], problem)
    found = []
    for problem in sorted(evaluated & set(rows)):
        if problem in trained:
            found.append((rows[problem], rows[problem]))
        elif (other := in_training.get(leader[problem])) is not None:
            found.append((rows[other], rows[problem]))
    return found


def check_no_leak(
    store: Store, trained: Iterable[int], evaluated: Iterable[int], *, what: str, near: float = NEAR
) -> None:
    """Raise TrainingError, naming problems, where something trained on is evaluated on. ``what``: as the error calls it."""
    if found := leaks(store, trained, evaluated, near):
        pairs = "; ".join(_words(one, other) for one, other in found[:NAMED])
        more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
        raise TrainingError(
            f"{what}: {len(found)} problem{'s are' if len(found) > 1 else ' is'} both trained on and evaluated on "
            f"({pairs}{more}); an accuracy on them would say nothing. Evaluate on other problems, or build the set "
            "from others (clear_of keeps a set away from data sets by name)"
        )


def check_set_is_clear_of(store: Store, home: Path, name: str, dataset: str, near: float = NEAR) -> None:
    """``check_no_leak`` for a frozen set's training part and a whole data set."""
    trained = {row["problem_id"] for row in read_rows(home, name, "train")}
    what = f"training set {name!r} and data set {dataset!r}"
    check_no_leak(store, trained, problems_of(store, dataset), what=what, near=near)


def problems_of(store: Store, dataset: str) -> list[int]:
    """Ids of a data set's problems. Raises TrainingError where there are none: a misspelt name would never leak."""
    found = store.problem_ids(dataset)
    if not found:
        raise TrainingError(
            f"the store has no problem of data set {dataset!r}; there are {', '.join(store.datasets()) or 'none'}"
        )
    return found


def _words(one: ProblemRow, other: ProblemRow) -> str:
    if one.id == other.id:
        return f"{one.dataset}/{one.key}"
    return f"{one.dataset}/{one.key} reads like {other.dataset}/{other.key}"
