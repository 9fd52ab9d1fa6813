"""Finding chunks: every filter against a plain reading of the rows, pages forwards and back, counts, searches, plans."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import db.find_sources
import db.find_store
from db.chunk_filter import PLACES, ChunkFilter, chunk_query
from db.errors import CursorError, NotAllowedError, NotFoundError, StoreValueError
from db.find_rows import FoundChunk, excerpt
from db.find_store import CHUNK_SORTS
from db.queue_rows import NewQueue
from db.rows import Label, ReviewDetails
from db.store import Store
from db.tables import Chunk
from tests.store_world import (
    BACKENDS,
    add_judge,
    add_problem,
    add_run,
    add_trajectory,
    fresh_store,
    judgment,
    solution,
)
from tests.test_reads import plans

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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FILTERS)
def test_filters_give_what_fits(
    many: Store, everything: list[FoundChunk], monkeypatch: pytest.MonkeyPatch, name: str, mode: Mode
) -> None:
    fields, fits = FILTERS[name]
    where = ChunkFilter(**fields)
    use(mode, monkeypatch)
    ruled = (
        many.find_chunks(ChunkFilter(rule=where.rule), limit=200).rows
        if where.rule != ALL.rule
        else everything
    )
    wanted = [row.id for row in ruled if fits(many, row)]
    assert [row.id for row in flat(pages_of(many, where, "newest", 25))] == wanted
    assert many.count_chunks(where).n == len(wanted)
    assert [chunk_id for chunk_id, _ in many.chunk_ids(where, limit=500)] == wanted
    with many.read() as connection:
        assert sorted(connection.scalars(chunk_query(connection, where, Chunk.id))) == sorted(wanted)
    assert (0 < len(wanted) < 140) == (name not in ("all", "nothing"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sort", CHUNK_SORTS)
@pytest.mark.parametrize("limit", [3, 140])
def test_pages_hold_every_row_once_in_order_and_back_again(
    many: Store,
    everything: list[FoundChunk],
    monkeypatch: pytest.MonkeyPatch,
    sort: str,
    limit: int,
    mode: Mode,
) -> None:
    use(mode, monkeypatch)
    where = ChunkFilter(policy="policy-1", reviewed=True) if mode == "few" else ChunkFilter(policy="policy-1")
    column = {"drop": "drop", "certain": "confidence"}.get(sort)
    rows = [
        row
        for row in everything
        if row.policy == "policy-1" and (mode == "walk" or row.plus + row.minus + row.abstained)
    ]
    known = [row for row in rows if column is None or getattr(row, column) is not None]
    pages = pages_of(many, where, sort, limit)
    assert {len(page) for page in pages[:-1]} <= {limit}
    assert [row.id for row in flat(pages)] == [row.id for row in sorted(known, key=ORDERS[sort])]
    assert many.count_chunks(where, sort=sort).n == len(known) > 5
    assert len(known) < len(rows) or sort == "newest" or mode == "few"


def test_a_walk_that_stops_says_so_and_goes_on(
    many: Store, everything: list[FoundChunk], monkeypatch: pytest.MonkeyPatch
) -> None:
    use("walk", monkeypatch)
    [last] = [row.id for row in everything][-1:]
    where = ChunkFilter(trajectory_id=1)
    assert last in {chunk_id for chunk_id, _ in many.chunk_ids(where, limit=9)}
    page = many.find_chunks(where, look=40)
    assert page.rows == [] and not page.whole and page.next is not None and page.previous is None
    assert many.count_chunks(where, look=40) == db.find_store.ChunkCount(0, whole=False)
    steps = 0
    while not page.rows:
        page = many.find_chunks(where, cursor=page.next, look=40)
        steps += 1
    assert steps == 3 and page.rows[0].trajectory_id == 1
    assert many.find_chunks(where, look=None).whole


def test_counts_stop(many: Store) -> None:
    assert many.count_chunks(ALL, stop=10).n == 11
    assert many.count_chunks(ALL).n == 140


@pytest.mark.parametrize("sort", ["newest", "drop", "certain"])
@pytest.mark.parametrize("limit", [3, 200])
def test_a_page_that_counts_on_its_way_is_the_same_page(many: Store, sort: str, limit: int) -> None:
    plain = many.find_chunks(ALL, sort=sort, limit=limit)
    for stop in (2, 10, 1000):
        counted = many.find_chunks(ALL, sort=sort, limit=limit, count=stop)
        n = many.count_chunks(ALL, sort=sort, stop=max(stop, limit)).n
        assert counted == dataclasses.replace(plain, count=db.find_store.ChunkCount(n, whole=True))
    assert plain.count is None


def test_an_export_walks_through_all_pages(many: Store, everything: list[FoundChunk]) -> None:
    assert list(many.iterate_found(ALL)) == everything


@pytest.mark.parametrize("mode", MODES)
def test_hits_say_where_the_words_stand(many: Store, monkeypatch: pytest.MonkeyPatch, mode: Mode) -> None:
    use(mode, monkeypatch)
    for place in ("chunk", "problem", "rationale", "comment"):
        words = {"chunk": "plums", "problem": "pears", "rationale": "holds", "comment": "carries"}[place]
        rows = many.find_chunks(ChunkFilter(search=words, search_in=place)).rows
        assert rows and {hit.place for row in rows for hit in row.hits} == {place}
        assert all(words in hit.text for row in rows for hit in row.hits)
    rows = many.find_chunks(ChunkFilter(search="fi")).rows
    assert {hit.place for row in rows for hit in row.hits} == {"chunk", "comment"}
    assert {hit.by for row in rows for hit in row.hits if hit.place == "comment"} <= {"ann", "bob"}
    rows = many.find_chunks(ChunkFilter(search="holds", search_in="rationale")).rows
    assert {hit.by for row in rows for hit in row.hits} == {"1", "2"}


@pytest.mark.parametrize(
    ("search", "n"),
    [
        ("plums", 28),
        ("PLUMS", 28),
        ('"', 0),
        ("plums OR figs", 0),
        ('plums" OR "figs', 0),
        ("plum*", 0),
        ("%", 0),
        ("_", 0),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_a_search_is_taken_literally(
    many: Store, monkeypatch: pytest.MonkeyPatch, search: str, n: int, mode: Mode
) -> None:
    use(mode, monkeypatch)
    assert many.count_chunks(ChunkFilter(search=search, search_in="chunk")).n == n


@pytest.mark.parametrize("mode", MODES)
def test_formulas_and_chinese_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode) -> None:
    use(mode, monkeypatch)
    with fresh_store("sqlite", tmp_path) as store:
        _, plain = add_trajectory(store, add_problem(store))
        _, formula = add_trajectory(store, add_problem(store), words="so x^2 - 4 = 0")
        _, chinese = add_trajectory(store, add_problem(store), words="等边三角形的面积")
        for search, wanted in (
            ("x^2 - 4", formula),
            ("三角形", chinese),
            ("面积", chinese),
            ("三角形 面积", chinese),
        ):
            found = {row.id for row in store.find_chunks(ChunkFilter(search=search)).rows}
            assert found == set(wanted), search
        assert plain not in (formula, chinese)


def test_chunks_of_a_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fresh_store("sqlite", tmp_path) as store:
        _, chunks = add_trajectory(store, add_problem(store))
        _, others = add_trajectory(store, add_problem(store), words="other")
        single = store.make_queue(NewQueue("one", chunk_ids=[chunks[1]]), "ann")
        whole = store.make_queue(NewQueue("all", mode="first-error", chunk_ids=[others[0]]), "ann")
        for mode in MODES:
            use(mode, monkeypatch)
            assert [row.id for row in store.find_chunks(ChunkFilter(queue_id=single)).rows] == [chunks[1]]
            found = [row.id for row in store.find_chunks(ChunkFilter(queue_id=whole)).rows]
            assert found == others[::-1]


@pytest.mark.parametrize("mode", MODES)
def test_what_a_blind_queue_hides_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    use(mode, monkeypatch)
    with fresh_store("sqlite", tmp_path) as store:
        _, hidden = add_trajectory(store, add_problem(store), words="hidden")
        _, plain = add_trajectory(store, add_problem(store), words="plain")
        store.add_judgments(
            [judgment(add_judge(store), chunk, 0, "negative") for chunk in (*hidden, *plain)],
            run_id=add_run(store),
        )
        queue = store.make_queue(NewQueue("blind", chunk_ids=[hidden[0]], blind=True), "owner")
        assert store.next_item(queue, "bob") is not None
        for where in (ALL, ChunkFilter(search="because"), ChunkFilter(judge_id=1, verdict="negative")):
            assert {row.id for row in store.seen_by("bob").find_chunks(where).rows} == set(plain)
            assert store.seen_by("bob").count_chunks(where).n == len(plain)
            assert store.seen_by("owner").count_chunks(where).n == len(plain) + len(hidden)


# ---- what is refused


def test_a_cursor_belongs_to_its_filter_and_order(many: Store) -> None:
    cursor = many.find_chunks(ALL, sort="drop", limit=5).next
    assert cursor is not None
    for where, sort in ((ChunkFilter(outcome="wrong"), "drop"), (ALL, "newest")):
        with pytest.raises(CursorError, match="another filter or order"):
            many.find_chunks(where, sort=sort, cursor=cursor)
    for broken in ("x", "!!", cursor[:-6], "W10", "bnVsbA", "é"):
        with pytest.raises(CursorError, match="begin at"):
            many.find_chunks(ALL, sort="drop", cursor=broken)
    with pytest.raises(StoreValueError, match="not by 'size'"):
        many.find_chunks(ALL, sort="size")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"label": "plus"}, r"label can be \+, -, none, not 'plus'"),
        ({"rule": "gamma"}, "rule can be abs-q, rel-effective, rel-ratio"),
        ({"verdict": "yes"}, "verdict can be positive, negative, none"),
        ({"review": "1"}, r"review can be \+1, 0, -1, cannot-tell"),
        ({"outcome": "fine"}, "outcome can be correct"),
        ({"flag": "red"}, "flag can be any, flag, bad-problem"),
        ({"search_in": "title"}, f"search_in can be {', '.join(PLACES)}"),
        ({"other_judge_id": 1}, "other_judge_id and other_verdict belong together"),
    ],
)
def test_a_word_that_a_filter_cannot_hold_is_named(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(StoreValueError, match=said):
        ChunkFilter(**fields)


def test_a_filter_goes_into_json_and_back() -> None:
    where = ChunkFilter(dataset="odd", drop_min=0.25, reviewed=False, label="+")
    assert ChunkFilter(**json.loads(json.dumps(asdict(where)))) == where
    assert where.asks == {"dataset": "odd", "drop_min": 0.25, "reviewed": False, "label": "+"}
    assert ALL.asks == {}


@pytest.mark.parametrize(
    ("text", "words", "shown"),
    [
        ("short  and\nplain", ["plain"], "short and plain"),
        ("x" * 50 + " needle " + "y" * 50, ["NEEDLE"], "…" + "x" * 12 + " needle " + "y" * 20 + "…"),
        ("x" * 60, ["absent"], "x" * 40 + "…"),
    ],
)
def test_an_excerpt_is_cut_around_its_first_word(text: str, words: list[str], shown: str) -> None:
    assert excerpt(text, words, width=40) == shown


# ---- searches under a name


def test_searches_are_kept_under_a_name(tmp_path: Path) -> None:
    with fresh_store("sqlite", tmp_path) as store:
        first = store.save_search("  big   drops ", "trajectories", "drop_min=0.5", "ann")
        store.set_role("sub @ issuer", "annotator", "ann")
        store.save_search("a", "trajectories", "label=-", "sub @ issuer")
        assert [(s.name, s.query, s.actor) for s in store.saved_searches("trajectories")] == [
            ("a", "label=-", "sub @ issuer"),
            ("big drops", "drop_min=0.5", "ann"),
        ]
        assert store.saved_searches("judges") == []
        with pytest.raises(StoreValueError, match="has the name 'big drops' already"):
            store.save_search("big drops", "judges", "", "ann")
        with pytest.raises(StoreValueError, match="1 to 200 characters"):
            store.save_search("  ", "trajectories", "", "ann")
        with pytest.raises(NotAllowedError):
            store.save_search("b", "trajectories", "", "reader @ issuer")
        with pytest.raises(NotAllowedError):
            store.delete_search(first, "sub @ issuer")
        store.delete_search(first, "ann")
        with pytest.raises(NotFoundError, match=f"no saved search {first}"):
            store.delete_search(first, "ann")
        assert [(e.action, e.actor) for e in store.audit()][:2] == [
            ("delete search", "ann"),
            ("save search", "sub @ issuer"),
        ]


# ---- plans: what keeps a million chunks quick, checked without a clock (SQLite)


@pytest.fixture
def planned(many: Store) -> Store:
    if not many.is_sqlite:
        pytest.skip("plans are SQLite's")
    return many


WALKED = {
    "newest": ("SCAN chunks", "SEARCH chunks USING INTEGER PRIMARY KEY (rowid<?)"),
    "drop": ("chunk_labels USING COVERING INDEX ix_chunk_labels_drop",),
    "certain": ("chunk_labels USING COVERING INDEX ix_chunk_labels_rel_ratio_conf",),
}


@pytest.mark.parametrize("sort", CHUNK_SORTS)
@pytest.mark.parametrize("name", FILTERS)
def test_a_walk_reads_the_orders_index_and_looks_the_rest_up(
    planned: Store, monkeypatch: pytest.MonkeyPatch, sort: str, name: str
) -> None:
    use("walk", monkeypatch)
    cursor = planned.find_chunks(ALL, sort=sort, limit=5).next
    assert cursor is not None
    where = ChunkFilter(**FILTERS[name][0])
    sent = plans(planned, lambda: planned.find_chunks(where, sort=sort))
    sent += plans(planned, lambda: planned.find_chunks(ALL, sort=sort, cursor=cursor, limit=5))
    walks = [plan for plan in sent if plan.startswith("MATERIALIZE anon_1")]
    assert walks
    for plan in walks:
        steps = plan.split("; ")
        assert any(index in steps[1] for index in WALKED[sort]), plan
        assert steps[2] == "SCAN anon_1", plan
        for step in steps[3:]:
            large = step.startswith("SCAN") and "CONSTANT" not in step and "queue" not in step
            assert not large, plan  # everything else is looked up by an index


def test_the_few_are_looked_up_by_their_ids(planned: Store) -> None:
    for where in (ChunkFilter(search="plums"), ChunkFilter(flag="any"), ChunkFilter(reviewed_by="bob")):
        sent = plans(planned, lambda where=where: planned.find_chunks(where, sort="drop"))  # type: ignore[misc]
        for plan in sent:
            for step in plan.split("; "):
                scans = step.startswith("SCAN") and step.split()[1] in (
                    "chunks",
                    "judgments",
                    "trajectories",
                    "problems",
                )
                assert not scans, plan
        assert sum("chunk_labels" in plan for plan in sent) == 2  # the chunks, and what the rows show


def test_a_page_takes_the_same_few_queries_however_long_it_is(
    planned: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where in (ALL, ChunkFilter(search="plums")):
        short = plans(planned, lambda where=where: planned.find_chunks(where, limit=2))  # type: ignore[misc]
        long = plans(planned, lambda where=where: planned.find_chunks(where, limit=100))  # type: ignore[misc]
        assert len(short) == len(long) <= 10
