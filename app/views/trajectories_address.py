"""The address of the Trajectories page: which list (``?show=``), filters, order, place. A value that cannot be is
named, never replaced by a default. Not: the widgets that write it.

The list of chunks takes the fields of ``db.chunk_filter.ChunkFilter`` under their own names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from app.widgets.access import get_store
from app.widgets.safe_text import escape_line
from db.chunk_filter import FLAGS, PLACES, REVIEWS, RULES, SIGNS, VERDICTS, ChunkFilter
from db.errors import NotFoundError
from db.find_store import CHUNK_SORTS
from db.reads_list import SORTS, TrajectoryFilter
from db.tables import OUTCOMES

SHOW = ("solutions", "chunks")
PLACE = ("after", "before")
SHARES = ("drop_min", "confidence_max")
"""Ranges of the list of solutions, each a number from 0 to 1 and named as in the list of chunks."""
SOLUTIONS_KNOWN = (
    *("show", "dataset", "policy", "outcome", "q", "reviewed", "run", *SHARES, "disagree"),
    *("sort", *PLACE),
)
FIELDS = {one.name: str(one.type) for one in fields(ChunkFilter)}
CHUNKS_KNOWN = ("show", *FIELDS, "sort", *PLACE)
YES_NO = {"yes": True, "no": False}
CHOICES: dict[str, Sequence[str]] = {
    "outcome": OUTCOMES,
    "rule": RULES,
    "label": SIGNS,
    "people": SIGNS,
    "verdict": VERDICTS,
    "other_verdict": VERDICTS,
    "review": tuple(REVIEWS),
    "other_review": tuple(REVIEWS),
    "flag": FLAGS,
    "search_in": PLACES,
}
PAIRS = (("other_judge_id", "other_verdict"), ("other_reviewer", "other_review"))


@dataclass(frozen=True)
class Asked:
    """What the address asks for, checked. ``problems`` says what it asks for that cannot be."""

    where: TrajectoryFilter | ChunkFilter
    sort: str = "newest"
    after: str | None = None
    before: str | None = None
    problems: list[str] = field(default_factory=list)


class _Reader:
    """Checks one address and gathers what is wrong with it."""

    def __init__(self, query: Mapping[str, str], known: Sequence[str]) -> None:
        self.query = query
        self.problems: list[str] = []
        for name in query:
            if name not in known:
                self.wrong(name, f"this list has no such filter; it has {', '.join(known)}")

    def wrong(self, name: str, why: str) -> None:
        self.problems.append(
            f"{escape_line(name, limit=40)}={escape_line(self.query[name], limit=60)}: {why}"
        )

    def one_of(self, name: str, names: Sequence[str]) -> None:
        if name in self.query and self.query[name] not in names:
            self.wrong(name, f"it can be {', '.join(names)}")

    def name_in_store(self, name: str, noun: str, names: Sequence[str]) -> None:
        if name in self.query and self.query[name] not in names:
            self.wrong(name, f"no {noun} of this store has that name")

    def asked(self, where: TrajectoryFilter | ChunkFilter, sorts: Sequence[str]) -> Asked:
        """With order and place."""
        self.one_of("sort", sorts)
        if "after" in self.query and "before" in self.query:
            self.wrong("before", "it cannot stand beside after")
        query = self.query
        return Asked(
            where, query.get("sort", "newest"), query.get("after"), query.get("before"), self.problems
        )


def read_solutions(query: Mapping[str, str]) -> Asked:
    """The list of solutions."""
    store, reader = get_store(), _Reader(query, SOLUTIONS_KNOWN)
    reader.name_in_store("dataset", "data set", store.datasets())
    reader.name_in_store("policy", "policy", store.policies())
    reader.one_of("outcome", OUTCOMES)
    reader.one_of("reviewed", tuple(YES_NO))
    reader.one_of("disagree", ("yes",))
    shares = {name: _share(reader, name) for name in SHARES}
    run_id = whole(query.get("run"))
    if "run" in query and (run_id is None or not _exists(store.run, run_id)):
        reader.wrong("run", "there is no such run in this store")
    where = TrajectoryFilter(
        dataset=query.get("dataset"),
        policy=query.get("policy"),
        outcome=query.get("outcome"),
        search=query.get("q") or None,
        reviewed=YES_NO.get(query.get("reviewed", "")),
        run_id=run_id,
        disagree=YES_NO.get(query.get("disagree", "")),
        **shares,
    )
    return reader.asked(where, tuple(SORTS))


def _share(reader: _Reader, name: str) -> float | None:
    if name not in reader.query:
        return None
    if not _is_share(reader.query[name]):
        reader.wrong(name, "a number from 0 to 1 was expected")
        return None
    return float(reader.query[name])


def _is_share(text: str) -> bool:
    value, why = _value("", "float", text)
    return not why and 0 <= value <= 1


def read_chunks(query: Mapping[str, str]) -> Asked:
    """The list of chunks."""
    store, reader = get_store(), _Reader(query, CHUNKS_KNOWN)
    reader.name_in_store("dataset", "data set", store.datasets())
    reader.name_in_store("policy", "policy", store.policies())
    judges = {judge.id for judge in store.judges()}
    known: dict[str, tuple[str, Callable[[int], bool]]] = {
        "run_id": ("run", lambda id_: _exists(store.run, id_)),
        "queue_id": ("queue", lambda id_: _exists(store.queue, id_)),
        "judge_id": ("judge", judges.__contains__),
        "other_judge_id": ("judge", judges.__contains__),
        "trajectory_id": ("trajectory", lambda id_: store.trajectory_view(id_) is not None),
    }
    values: dict[str, Any] = {}
    for name, kind in FIELDS.items():
        if name not in query or (name == "search" and not query[name].strip()):
            continue
        value, why = _value(name, kind, query[name])
        if not why and name in known and not known[name][1](value):
            why = f"there is no such {known[name][0]} in this store"
        if why:
            reader.wrong(name, why)
        else:
            values[name] = value
    for pair in PAIRS:
        if len(one := [name for name in pair if name in values]) == 1:
            reader.wrong(one[0], f"{pair[0]} and {pair[1]} belong together")
    if reader.problems:
        return reader.asked(ChunkFilter(), tuple(CHUNK_SORTS))
    return reader.asked(ChunkFilter(**values), tuple(CHUNK_SORTS))


def _value(name: str, kind: str, text: str) -> tuple[Any, str]:
    """The field's value, and what is wrong with it ("" where nothing is)."""
    if name in CHOICES:
        return text, "" if text in CHOICES[name] else f"it can be {', '.join(CHOICES[name])}"
    if kind.startswith("bool"):
        return YES_NO.get(text), "" if text in YES_NO else "it can be yes, no"
    if kind.startswith("int"):
        number = whole(text)
        return number, "" if number is not None else "a whole number was expected"
    if kind.startswith("float"):
        try:
            real = float(text)
        except ValueError:
            real = math.nan
        return real, "" if math.isfinite(real) else "a number was expected"
    return text, ""


def whole(text: str | None) -> int | None:
    """A whole number of an address; None where it is none."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 18 else None


def _exists(read: Callable[[int], Any], id_: int) -> bool:
    try:
        read(id_)
    except NotFoundError:
        return False
    return True


def filter_query(where: ChunkFilter) -> dict[str, str]:
    """The query parameters that ask for a filter."""
    words = {True: "yes", False: "no"}
    return {
        name: words[value]
        if isinstance(value, bool)
        else _written(value)
        if isinstance(value, float)
        else str(value)
        for name, value in where.asks.items()
    }


def _written(value: float) -> str:
    """Short where that is the number: rounded, an end of a range would leave out what stands on it."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


def as_chunks(where: TrajectoryFilter) -> ChunkFilter:
    """The chunks of the solutions that a filter of solutions asks for, as near as chunks can be asked for: by drop,
    confidence or disagreement the chunks for which a solution is in its list."""
    return ChunkFilter(
        dataset=where.dataset,
        policy=where.policy,
        outcome=where.outcome,
        run_id=where.run_id,
        reviewed=where.reviewed,
        search=where.search,
        search_in="problem" if where.search else "anywhere",
        drop_min=where.drop_min,
        confidence_max=where.confidence_max,
        against=where.disagree,
    )


def as_solutions(query: Mapping[str, str]) -> dict[str, str]:
    """The query parameters of the list of solutions that come nearest to a list of chunks."""
    names = {
        "dataset": "dataset",
        "policy": "policy",
        "outcome": "outcome",
        "reviewed": "reviewed",
        "run_id": "run",
    }
    kept = {names[name]: value for name, value in query.items() if name in names}
    if query.get("rule", "rel-ratio") == "rel-ratio":  # the list of solutions has no other
        kept |= {name: query[name] for name in SHARES if name in query and _is_share(query[name])}
    kept |= {"disagree": "yes"} if query.get("against") == "yes" and "judge_id" not in query else {}
    return kept | (
        {"q": query["search"]} if query.get("search_in") == "problem" and "search" in query else {}
    )
