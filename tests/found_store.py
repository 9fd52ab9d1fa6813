"""A store to find chunks in, every filter with a plain reading of the rows that it must agree with, and pages of
what is found, for the tests of find_chunks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest

import db.find_sources
import db.find_store
from db.chunk_filter import ChunkFilter
from db.find_rows import FoundChunk
from db.rows import Label, ReviewDetails
from db.store import Store
from tests.store_world import (
    BACKENDS,
    add_judge,
    add_problem,
    add_run,
    fresh_store,
    judgment,
    solution,
)

ALL = ChunkFilter()
Mode = str
MODES = ("few", "walk")
"""Both ways of finding: the few that an index names, and the walk along the order."""


@pytest.fixture(params=BACKENDS, scope="module")
def many(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Forty solutions with every kind of value, label, vote and review, and many ties. Nobody writes to it."""
    with fresh_store(request.param, tmp_path_factory.mktemp("find")) as store:
        fill(store, random.Random(7))
        yield store


def fill(store: Store, rng: random.Random) -> None:
    judges = [add_judge(store, f"judge {i}", f"d{i}") for i in range(2)]
    runs = [add_run(store) for _ in range(2)]
    problems = [
        add_problem(
            store, str(i), f"Has {'apples' if i % 2 else 'pears'} number {i}", "even" if i % 2 else "odd"
        )
        for i in range(4)
    ]
    for i in range(40):
        row = solution(
            problems[i % 4],
            steps=2 + i % 4,
            words=f"try {i} adds {'plums' if i % 5 == 0 else 'figs'}, step",
            policy=f"policy-{i % 3}",
            outcome=rng.choice(["correct", "wrong", "truncated"]),
        )
        store.add_trajectories([row], run_id=runs[i % 2], actor="ann")
    labels, said, chunks = [], [], []
    for whole in store.stage_trajectories(store.trajectory_ids()):
        for chunk in whole.chunks:
            chunks.append(chunk.id)
            if rng.random() < 0.8:
                labels.append(_label(chunk.id, rng))
            said += [
                replace(
                    judgment(judge, chunk.id, draw, rng.choice(["positive", "negative", None])), rationale=why
                )
                for judge in judges
                if rng.random() < 0.5
                for draw, why in enumerate(("the goal is plain", f"sum {chunk.idx} holds"))
            ]
    store.put_labels(labels)
    store.add_judgments(said, run_id=runs[0])
    for chunk_id, actor in product(chunks, ("ann", "bob")):
        if rng.random() < 0.3:
            _review(store, chunk_id, actor, rng)


def _label(chunk_id: int, rng: random.Random) -> Label:
    before, after = rng.choice([0.25, 0.5, 1.0]), rng.choice([0.0, 0.25, 0.5])
    return Label(
        chunk_id,
        q_before=before,
        q_after=after,
        drop=rng.choice([before - after, before - after, None]),
        abs_q="+" if after else "-",
        abs_q_conf=rng.choice([0.5, 0.9]),
        rel_ratio=rng.choice(["+", "-", None]),
        rel_ratio_conf=rng.choice([0.5, 0.75, 0.75, 1.0]),
    )


def _review(store: Store, chunk_id: int, actor: str, rng: random.Random) -> None:
    key = f"{actor}-{chunk_id}"
    details = ReviewDetails(flag=rng.choice([None, None, "flag", "bad-problem"]))
    comment = rng.choice(["", "carries wrongly", "fine by me"])
    store.add_review(chunk_id, key, actor, rng.choice([1, -1, 0, None]), comment, details=details)
    if rng.random() < 0.2:
        store.undo(f"{key}-undo", actor, chunk_id)


# ---- every filter against a plain reading


@cache
def _reviews(store: Store, chunk_id: int) -> dict[str, int | None]:
    return {
        step.review.actor: step.review.verdict
        for step in store.history(chunk_id)
        if step.in_force and step.review.says_something
    }


def _said(store: Store, row: FoundChunk) -> dict[str, int | None]:
    """{actor: verdict} of the reviews in force."""
    return _reviews(store, row.id)


def _majority(row: FoundChunk, judge: int) -> str | None:
    if judge not in row.votes:
        return None
    positive, negative, _ = row.votes[judge]
    return "positive" if positive > negative else "negative" if negative > positive else "none"


def _against(row: FoundChunk) -> bool:
    signs = {"positive": "+", "negative": "-"}
    return any(signs.get(_majority(row, j) or "", row.label) != row.label for j in row.votes) and bool(
        row.label
    )


Fits = Callable[[Store, FoundChunk], bool]
FILTERS: dict[str, tuple[dict[str, Any], Fits]] = {
    "all": ({}, lambda s, r: True),
    "dataset": ({"dataset": "odd"}, lambda s, r: r.dataset == "odd"),
    "policy": ({"policy": "policy-1"}, lambda s, r: r.policy == "policy-1"),
    "outcome": ({"outcome": "wrong"}, lambda s, r: r.outcome == "wrong"),
    "run": ({"run_id": 2}, lambda s, r: s.trajectory_view(r.trajectory_id).run_id == 2),  # type: ignore[union-attr]
    "trajectory": ({"trajectory_id": 3}, lambda s, r: r.trajectory_id == 3),
    "chunks": ({"chunks_min": 3, "chunks_max": 4}, lambda s, r: 3 <= r.n_chunks <= 4),
    "position": ({"position_min": 2}, lambda s, r: r.idx >= 2),
    "before": ({"q_before_max": 0.25}, lambda s, r: r.q_before == 0.25),
    "after": ({"q_after_min": 0.25, "q_after_max": 0.3}, lambda s, r: r.q_after == 0.25),
    "drop": ({"drop_min": 0.5}, lambda s, r: r.drop is not None and r.drop >= 0.5),
    "plus": ({"label": "+"}, lambda s, r: r.label == "+"),
    "unlabelled": ({"label": "none"}, lambda s, r: r.label is None),
    "abs": (
        {"rule": "abs-q", "label": "-", "confidence_min": 0.9},
        lambda s, r: (r.label, r.confidence) == ("-", 0.9),
    ),
    "certain": ({"confidence_max": 0.6}, lambda s, r: r.confidence == 0.5),
    "judged": ({"judge_id": 1}, lambda s, r: 1 in r.votes),
    "verdict": ({"judge_id": 2, "verdict": "negative"}, lambda s, r: _majority(r, 2) == "negative"),
    "tie": ({"judge_id": 1, "verdict": "none"}, lambda s, r: _majority(r, 1) == "none"),
    "any judge": ({"verdict": "positive"}, lambda s, r: "positive" in {_majority(r, 1), _majority(r, 2)}),
    "against": ({"against": True}, lambda s, r: _against(r)),
    "agrees": (
        {"against": False, "judge_id": 1},
        lambda s, r: (_majority(r, 1), r.label) in {("positive", "+"), ("negative", "-")},
    ),
    "two judges": (
        {"judge_id": 1, "verdict": "positive", "other_judge_id": 2, "other_verdict": "negative"},
        lambda s, r: (_majority(r, 1), _majority(r, 2)) == ("positive", "negative"),
    ),
    "reviewed": ({"reviewed": True}, lambda s, r: bool(_said(s, r))),
    "unreviewed": ({"reviewed": False}, lambda s, r: not _said(s, r)),
    "by bob": ({"reviewed_by": "bob"}, lambda s, r: "bob" in _said(s, r)),
    "cannot tell": (
        {"reviewed_by": "ann", "review": "cannot-tell"},
        lambda s, r: _said(s, r).get("ann", 0) is None,
    ),
    "somebody": ({"review": "-1"}, lambda s, r: -1 in _said(s, r).values()),
    "two people": (
        {"reviewed_by": "ann", "review": "+1", "other_reviewer": "bob", "other_review": "-1"},
        lambda s, r: (_said(s, r).get("ann"), _said(s, r).get("bob")) == (1, -1),
    ),
    "people": ({"people": "-"}, lambda s, r: -1 in _said(s, r).values() and 1 not in _said(s, r).values()),
    "no consensus": ({"people": "none"}, lambda s, r: bool(_said(s, r)) and r.people is None),
    "flag": ({"flag": "bad-problem"}, lambda s, r: r.flag == "bad-problem"),
    "any flag": ({"flag": "any"}, lambda s, r: r.flag is not None),
    "disputed": ({"disputed": True}, lambda s, r: {1, -1} <= set(_said(s, r).values())),
    "undisputed": ({"disputed": False}, lambda s, r: not {1, -1} <= set(_said(s, r).values())),
    "chunk": ({"search": "PLUMS try", "search_in": "chunk"}, lambda s, r: "plums" in r.text),
    "problem": ({"search": "pears", "search_in": "problem"}, lambda s, r: "pears" in r.problem),
    "rationale": (
        {"search": "sum 1", "search_in": "rationale"},
        lambda s, r: any("sum 1" in j.rationale for j in s.judgments_of(r.id)),
    ),
    "comment": (
        {"search": "carries", "search_in": "comment"},
        lambda s, r: any("carries" in h.review.comment for h in s.history(r.id) if h.in_force),
    ),
    "short": ({"search": "y 3", "search_in": "chunk"}, lambda s, r: "y" in r.text and "3" in r.text),
    "several": (
        {
            "dataset": "even",
            "outcome": "wrong",
            "drop_min": 0.2,
            "rule": "abs-q",
            "label": "-",
            "search": "figs",
        },
        lambda s, r: (
            (r.dataset, r.outcome, r.label) == ("even", "wrong", "-")
            and (r.drop or 0) >= 0.2
            and "figs" in r.text
        ),
    ),
    "nothing": ({"policy": "nobody"}, lambda s, r: False),
}
ORDERS: dict[str, Callable[[FoundChunk], Any]] = {
    "newest": lambda row: -row.id,
    "drop": lambda row: (-row.drop, -row.id),  # type: ignore[operator]
    "certain": lambda row: (row.confidence, row.id),
}


def use(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(db.find_sources, "FEW", 5000 if mode == "few" else 0)
    monkeypatch.setattr(db.find_store, "WINDOWS", (5, 40))


def pages_of(store: Store, where: ChunkFilter, sort: str, limit: int) -> list[list[FoundChunk]]:
    """All pages forwards; going back from the last one must give the same pages."""
    pages = [store.find_chunks(where, sort=sort, limit=limit)]
    assert pages[0].previous is None
    while pages[-1].next is not None:
        pages.append(store.find_chunks(where, sort=sort, cursor=pages[-1].next, limit=limit))
        assert len(pages) <= 1000 and pages[-1].rows
    page = pages[-1]
    for before in reversed(pages[:-1]):
        page = store.find_chunks(where, sort=sort, cursor=page.previous, backwards=True, limit=limit)
        assert page.rows == before.rows
        assert page.next is not None and (page.previous is None) == (before is pages[0])
    return [page.rows for page in pages]


def flat(pages: list[list[FoundChunk]]) -> list[FoundChunk]:
    return [row for page in pages for row in page]


@pytest.fixture(scope="module")
def everything(many: Store) -> list[FoundChunk]:
    rows = flat(pages_of(many, ALL, "newest", 60))
    assert len(rows) == many.counts()["chunks"] == 140
    return rows
