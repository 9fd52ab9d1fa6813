"""What the pages read: keyset pages in every order, filters, search, one trajectory in parts, and the plans."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text, update

from db.chunk_filter import ChunkFilter
from db.errors import CursorError, StoreValueError
from db.reads_list import SORTS, TrajectoryFilter, TrajectoryItem
from db.rows import Label
from db.store import Store
from db.tables import Trajectory
from tests.store_world import (
    BACKENDS,
    add_prefix,
    add_problem,
    add_run,
    add_trajectory,
    filled,
    fresh_store,
    rollout,
    solution,
)

N = 60
ALL = TrajectoryFilter()


@pytest.fixture(params=BACKENDS, scope="module")
def many(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Sixty trajectories with many equal and many missing values to sort by. Nobody writes to it."""
    with fresh_store(request.param, tmp_path_factory.mktemp("many")) as store:
        rng = random.Random(5)
        problems = [
            add_problem(
                store, str(i), f"Has {'apples' if i % 2 else 'pears'} number {i}", "even" if i % 2 else "odd"
            )
            for i in range(6)
        ]
        rows = [
            solution(
                problems[i % 6],
                words=f"attempt {i}, step",
                policy=f"policy-{i % 3}",
                outcome=rng.choice(["correct", "wrong", "truncated"]),
            )
            for i in range(N)
        ]
        for half in (rows[: N // 2], rows[N // 2 :]):
            store.add_trajectories(half, run_id=add_run(store), actor="ann")
        with store.write() as db:
            for id_ in store.trajectory_ids():
                values = {
                    "biggest_drop": rng.choice([None, 0.1, 0.5, -0.25, 1 / 3]),
                    "least_confidence": rng.choice([None, 0.5, 0.75, 0.9]),
                    "n_disagree": rng.choice([None, 0, 1, 2]),
                    "n_reviewed": rng.choice([0, 0, 1, 2]),
                }
                db.execute(update(Trajectory).where(Trajectory.id == id_).values(values))
        yield store


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path) as store:
        yield store


ORDERS: dict[str, Callable[[TrajectoryItem], Any]] = {
    "newest": lambda row: -row.id,
    "drop": lambda row: (row.biggest_drop is None, -(row.biggest_drop or 0), -row.id),
    "disagreement": lambda row: (row.n_disagree is None, -(row.n_disagree or 0), -row.id),
    "confidence": lambda row: (row.least_confidence is None, row.least_confidence or 0, row.id),
    "unreviewed": lambda row: (row.n_reviewed, row.id),
}


FILTERS = {
    "all": (ALL, lambda row: True),
    "dataset": (TrajectoryFilter(dataset="odd"), lambda row: row.dataset == "odd"),
    "policy": (TrajectoryFilter(policy="policy-1"), lambda row: row.policy == "policy-1"),
    "outcome": (TrajectoryFilter(outcome="wrong"), lambda row: row.outcome == "wrong"),
    "reviewed": (TrajectoryFilter(reviewed=True), lambda row: row.n_reviewed > 0),
    "unreviewed": (TrajectoryFilter(reviewed=False), lambda row: row.n_reviewed == 0),
    "run": (TrajectoryFilter(run_id=2), lambda row: row.run_id == 2),
    "search": (TrajectoryFilter(search="PEARS has"), lambda row: "pears" in row.problem_text),
    "drop": (TrajectoryFilter(drop_min=0.25), lambda row: (row.biggest_drop or 0) >= 0.25),
    "uncertain": (TrajectoryFilter(confidence_max=0.75), lambda row: (row.least_confidence or 1) <= 0.75),
    "disagree": (TrajectoryFilter(disagree=True), lambda row: (row.n_disagree or 0) > 0),
    "agree": (TrajectoryFilter(disagree=False), lambda row: row.n_disagree == 0),
    "several": (
        TrajectoryFilter(dataset="even", policy="policy-0", outcome="correct", search="apples"),
        lambda row: (row.dataset, row.policy, row.outcome) == ("even", "policy-0", "correct"),
    ),
    "nothing": (TrajectoryFilter(policy="nobody"), lambda row: False),
}


def walk(store: Store, where: TrajectoryFilter, sort: str, limit: int) -> list[list[TrajectoryItem]]:
    """All pages forwards; going back from the last one must give the same pages."""
    pages = [store.trajectory_page(where, sort=sort, limit=limit)]
    assert pages[0].previous is None
    while pages[-1].next is not None:
        pages.append(store.trajectory_page(where, sort=sort, cursor=pages[-1].next, limit=limit))
        assert len(pages) <= N
    page = pages[-1]
    for before in reversed(pages[:-1]):
        assert page.previous is not None
        page = store.trajectory_page(where, sort=sort, cursor=page.previous, backwards=True, limit=limit)
        assert page.rows == before.rows
        assert page.next is not None and (page.previous is None) == (before is pages[0])
    return [page.rows for page in pages]


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("limit", [1, 7, 60])
def test_pages_hold_every_row_once_in_order_and_back_again(many: Store, sort: str, limit: int):
    pages = walk(many, ALL, sort, limit)
    rows = [row for page in pages for row in page]
    assert len(rows) == N and {len(page) for page in pages[:-1]} <= {limit}
    assert [row.id for row in rows] == [row.id for row in sorted(rows, key=ORDERS[sort])]


@pytest.mark.parametrize("name", FILTERS)
def test_filters_give_what_fits(many: Store, name: str):
    where, fits = FILTERS[name]
    everything = [row for page in walk(many, ALL, "drop", 50) for row in page]
    wanted = [row.id for row in everything if fits(row)]
    assert [row.id for page in walk(many, where, "drop", 4) for row in page] == wanted
    assert many.count_trajectories(where) == len(wanted)
    assert bool(wanted) == (name != "nothing")


def test_counts_stop(many: Store):
    assert many.count_trajectories(ALL, stop=10) == 11
    assert many.count_trajectories(ALL, stop=N) == N


@pytest.mark.parametrize(
    ("search", "problems"),
    [
        ("apples", 3),
        ("APPLES number", 3),
        ("pple", 3),
        ("4", 1),
        ("umber 4", 1),
        ("apples 4", 0),
        ('"', 0),
        ('apples" OR "pears', 0),
        ("apples OR pears", 0),
        ("NOT apples", 0),
        ("app*", 0),
        ("text:apples", 0),
        ("%", 0),
        ("_", 0),
        ("app\0les", 3),
        ("   ", 6),
    ],
)
def test_a_search_is_taken_literally(many: Store, search: str, problems: int):
    assert many.count_trajectories(TrajectoryFilter(search=search)) == problems * N // 6


def test_chinese_is_found_by_long_and_by_short_words(store: Store):
    problem = add_problem(store, "zh", "一个长方形的周长是二十四厘米，求最大面积。")
    add_trajectory(store, add_problem(store))
    trajectory, _ = add_trajectory(store, problem)
    for search in ("最大面积", "周长", "长", "长方形 面积"):
        page = store.trajectory_page(TrajectoryFilter(search=search))
        assert [row.id for row in page.rows] == [trajectory], search
    assert store.count_trajectories(TrajectoryFilter(search="正方形")) == 0


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("ä", {"Äpfel"}),
        ("Ä", {"Äpfel"}),
        ("ÄP", {"Äpfel"}),
        ("ß", {"Straße", "GROSS"}),
        ("ẞ", {"Straße", "GROSS"}),
        ("ΣΑ", {"σας"}),
        ("ΑΣ", {"σας"}),
        ("Ж", {"жук"}),
        ("GR", {"GROSS"}),
        ("é%", set()),
    ],
)
def test_a_short_word_is_found_in_any_case_of_any_script(store: Store, word: str, found: set[str]):
    texts = ("Äpfel", "Straße", "GROSS", "σας", "жук", "plain")
    chunks = {text: add_trajectory(store, add_problem(store, text, text), words=text)[1] for text in texts}
    many = store.trajectory_page(TrajectoryFilter(search=word)).rows
    assert {row.problem_text for row in many} == found
    for place in ("problem", "chunk"):
        rows = store.find_chunks(ChunkFilter(search=word, search_in=place)).rows
        assert {row.id for row in rows} == {chunk for text in found for chunk in chunks[text]}, place
        assert all(row.hits for row in rows), place


def test_a_cursor_belongs_to_its_filter_and_order(many: Store):
    cursor = many.trajectory_page(ALL, sort="drop", limit=5).next
    assert cursor is not None
    for where, sort in ((TrajectoryFilter(outcome="wrong"), "drop"), (ALL, "newest")):
        with pytest.raises(CursorError, match="another filter or order"):
            many.trajectory_page(where, sort=sort, cursor=cursor)
    for broken in ("x", "!!", cursor[:-6], "W10", "bnVsbA", "é", "W1tb" * 1000):
        with pytest.raises(CursorError, match="begin at"):
            many.trajectory_page(ALL, sort="drop", cursor=broken)
    told = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    huge = base64.urlsafe_b64encode(json.dumps([*told[:-1], 10**30]).encode()).decode()
    with pytest.raises(CursorError, match="begin at"):
        many.trajectory_page(ALL, sort="drop", cursor=huge)  # an id that no database holds
    with pytest.raises(StoreValueError, match="not by 'size'"):
        many.trajectory_page(ALL, sort="size")


def test_a_new_trajectory_moves_no_page(store: Store):
    problem = add_problem(store)
    for i in range(6):
        add_trajectory(store, problem, words=f"w{i}")
    first = store.trajectory_page(ALL, limit=2)
    second = store.trajectory_page(ALL, cursor=first.next, limit=2)
    add_trajectory(store, problem, words="new")
    assert store.trajectory_page(ALL, cursor=first.next, limit=2).rows == second.rows


def test_rows_of_the_list_carry_paths_and_signs(store: Store):
    ids = filled(store)
    row = next(r for r in store.trajectory_page(ALL).rows if r.id == ids["sampled"])
    assert (row.n_reviewed, row.biggest_drop, row.n_negative, row.n_disagree) == (2, 0.25, 1, 1)
    assert store.q_paths([row.id])[row.id] == [0.5, 0.25, 0.75, None]
    assert store.label_signs([row.id])[row.id] == {"-": 1, "+": 1, None: 1}
    assert store.datasets() == ["handwritten", "nano"] and store.policies() == ["human", "nano"]
    assert store.written_by(ids["run"]) == {"trajectories": 3, "rollouts": 8, "judgments": 4}


def test_a_long_problem_is_cut_in_the_list_only(store: Store):
    problem = add_problem(store, text_="九" * 1000)
    add_trajectory(store, problem)
    assert len(store.trajectory_page(ALL).rows[0].problem_text) == 300
    assert len(store.problem(problem).text) == 1000


def test_one_trajectory_in_parts(store: Store):
    ids = filled(store)
    view = store.trajectory_view(ids["sampled"])
    assert view is not None and (view.draw, view.value_prefix_id, view.reference) == (0, ids["start"], "2")
    page = store.chunk_page(ids["sampled"], first=1, count=1)
    assert [(c.idx, c.text) for c in page] == [(1, "step 1")]
    assert page[0].label is not None and page[0].label.rel_ratio == "+"
    assert store.chunk_page(ids["sampled"], first=2)[0].label is None
    curve = store.curve(ids["sampled"])
    assert [(p.idx, p.reviewed, p.label is None) for p in curve] == [
        (0, True, False),
        (1, True, False),
        (2, False, True),
    ]
    assert curve[0].prefix_id == ids["inner"]
    assert [(j.judge, j.draw, j.rationale) for j in store.judgments_of(ids["chunk"])] == [
        ("judge", draw, "because") for draw in range(3)
    ]
    votes = store.votes_of(ids["sampled"])
    assert votes == {ids["chunk"]: {"judge": (3, 0, 0)}, ids["chunk"] + 1: {"other": (0, 0, 1)}}
    siblings = store.siblings(ids["problem"])
    assert [(s.draw, s.outcome) for s in siblings] == [(0, "correct"), (1, "wrong"), (2, "truncated")]
    assert store.neighbours(siblings[1].id) == (siblings[0].id, siblings[2].id)
    assert store.neighbours(ids["human"])[1] is None


def test_rollouts_are_paged_by_draw_without_their_text(store: Store):
    run, prefix = add_run(store), add_prefix(store, add_problem(store))
    store.add_rollouts([rollout(prefix, j, "wrong" if j % 2 else "correct") for j in range(10)], run_id=run)
    first = store.rollouts_of(prefix, limit=4)
    assert [r.draw for r in first] == [0, 1, 2, 3] and not hasattr(first[0], "text")
    assert [r.draw for r in store.rollouts_of(prefix, after_draw=3, limit=4)] == [4, 5, 6, 7]
    assert [r.draw for r in store.rollouts_of(prefix, outcome="wrong", after_draw=3)] == [5, 7, 9]
    whole = store.rollout_text(first[2].id)
    assert whole is not None and (whole.text, whole.seed, whole.draw) == ("text 2", 1002, 2)


def test_unknown_ids_give_nothing(store: Store):
    assert store.trajectory_view(9) is None and store.rollout_text(9) is None
    assert store.chunk_page(9) == [] and store.curve(9) == [] and store.judgments_of(9) == []
    assert store.rollouts_of(9) == [] and store.siblings(9) == [] and store.votes_of(9) == {}
    assert store.q_paths([9]) == {} and store.neighbours(9) == (None, None)


# ---- plans: what keeps 200,000 trajectories quick, checked without a clock (SQLite)


def plans(store: Store, call: Callable[[], object]) -> list[str]:
    """The query plan of every statement that ``call`` sends."""
    sent: list[tuple[str, Any]] = []

    def listen(_c: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: Any) -> None:
        sent.append((statement, parameters))

    event.listen(store.engine, "before_cursor_execute", listen)
    try:
        call()
    finally:
        event.remove(store.engine, "before_cursor_execute", listen)
    found = []
    with store.engine.connect() as connection:
        for statement, parameters in sent:
            if statement.startswith("SELECT"):
                rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
                found.append("; ".join(row[3] for row in rows))
    return found


@pytest.fixture(scope="module")
def sqlite_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with fresh_store("sqlite", tmp_path_factory.mktemp("plans")) as store:
        filled(store)
        yield store


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("name", FILTERS)
def test_no_page_sorts_the_table(sqlite_store: Store, sort: str, name: str):
    where, _ = FILTERS[name]
    cursor = sqlite_store.trajectory_page(ALL, sort=sort, limit=1).next
    assert cursor is not None
    walks = plans(sqlite_store, lambda: sqlite_store.trajectory_page(where, sort=sort))[:-1]
    walks += plans(
        sqlite_store, lambda: sqlite_store.trajectory_page(ALL, sort=sort, cursor=cursor, limit=1)
    )[:-1]
    assert walks
    for plan in walks:
        assert "TEMP B-TREE FOR ORDER BY" not in plan, plan
        assert "OFFSET" not in plan
        if sort != "newest":
            assert "trajectories USING COVERING INDEX ix_trajectories_by_" in plan, plan


@pytest.mark.parametrize("sort", [sort for sort in SORTS if sort != "newest"])
def test_a_page_begins_in_the_index_at_its_place_among_equal_values(many: Store, sort: str):
    """With the value alone as the bound, every page of a long run of equal values would begin at its first row."""
    if not many.is_sqlite:
        pytest.skip("plans are SQLite's")
    column = SORTS[sort].column.key
    up = SORTS[sort].ascending
    page = many.trajectory_page(ALL, sort=sort, limit=3)
    for backwards in (False, True):
        cursor = page.next
        sent = plans(many, lambda: many.trajectory_page(ALL, sort=sort, cursor=cursor, backwards=backwards))  # noqa: B023
        side = ">" if up != backwards else "<"
        index = "SEARCH trajectories USING COVERING INDEX ix_trajectories_by_"
        assert sent[0].startswith(index) and f"({column}=? AND id{side}?)" in sent[0], sent[0]
        assert sent[1].startswith(index) and f"{column}{side}?" in sent[1], sent[1]


def test_the_plan_check_would_notice_a_sort(sqlite_store: Store):
    def sorted_by_answer() -> None:
        with sqlite_store.read() as db:
            db.execute(text("SELECT id FROM trajectories ORDER BY answer LIMIT 5"))

    assert "TEMP B-TREE FOR ORDER BY" in plans(sqlite_store, sorted_by_answer)[0]


def test_no_read_of_a_page_scans_a_large_table(sqlite_store: Store):
    reads: list[Callable[[], object]] = [
        sqlite_store.totals,
        sqlite_store.counts,
        sqlite_store.datasets,
        lambda: sqlite_store.trajectory_view(1),
        lambda: sqlite_store.chunk_page(1),
        lambda: sqlite_store.curve(1),
        lambda: sqlite_store.votes_of(1),
        lambda: sqlite_store.judgments_of(1),
        lambda: sqlite_store.rollouts_of(1),
        lambda: sqlite_store.siblings(1),
        lambda: sqlite_store.neighbours(1),
        lambda: sqlite_store.reviews_of(1),
        lambda: sqlite_store.history(1),
        lambda: sqlite_store.chain_head(1, "ann"),
        lambda: sqlite_store.last_review("ann"),
        lambda: sqlite_store.written_by(1),
        lambda: sqlite_store.outcome_counts([1, 2]),
        lambda: sqlite_store.metrics(1),
        lambda: sqlite_store.runs(20),
        lambda: sqlite_store.label_inputs([1]),
    ]
    large = (
        "trajectories",
        "chunks",
        "rollouts",
        "judgments",
        "reviews",
        "prefixes",
        "problems",
        "metrics",
        "texts",
    )
    for read in reads:
        for plan in plans(sqlite_store, read):
            for step in plan.split("; "):
                assert not (step.startswith("SCAN") and step.split()[1].endswith(large)), f"{plan}"


def test_labels_of_unlabelled_chunks_stay_away(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    store.put_labels([Label(chunks[1], rel_ratio="+")])
    assert list(store.labels(chunks)) == [chunks[1]]
