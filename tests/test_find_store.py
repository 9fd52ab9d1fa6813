"""Finding chunks: every filter against a plain reading of the rows, pages forwards and back, counts, searches, plans."""

from __future__ import annotations

import base64
import dataclasses
import json

import pytest

import db.find_sources
import db.find_store
from db.chunk_filter import ChunkFilter, chunk_query
from db.errors import CursorError, StoreValueError
from db.find_rows import FoundChunk
from db.find_store import CHUNK_SORTS
from db.store import Store
from db.tables import Chunk
from tests.found_store import (
    ALL,
    FILTERS,
    MODES,
    ORDERS,
    Mode,
    everything,
    flat,
    many,
    pages_of,
    use,
)
from tests.test_reads import plans

__all__ = ["everything", "many"]


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


# ---- what is refused


def test_a_cursor_belongs_to_its_filter_and_order(many: Store) -> None:
    cursor = many.find_chunks(ALL, sort="drop", limit=5).next
    assert cursor is not None
    for where, sort in ((ChunkFilter(outcome="wrong"), "drop"), (ALL, "newest")):
        with pytest.raises(CursorError, match="another filter or order"):
            many.find_chunks(where, sort=sort, cursor=cursor)
    for broken in ("x", "!!", cursor[:-6], "W10", "bnVsbA", "é", "W1tb" * 1000):
        with pytest.raises(CursorError, match="begin at"):
            many.find_chunks(ALL, sort="drop", cursor=broken)
    told = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    huge = base64.urlsafe_b64encode(json.dumps([*told[:-1], 10**30]).encode()).decode()
    with pytest.raises(CursorError, match="begin at"):
        many.find_chunks(ALL, sort="drop", cursor=huge)  # an id that no database holds
    with pytest.raises(StoreValueError, match="not by 'size'"):
        many.find_chunks(ALL, sort="size")


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
