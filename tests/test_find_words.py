"""Finding chunks in small stores: words in any script, a queue's chunks, what is hidden, filters that cannot be,
excerpts, searches under a name. Not: filters and pages over a large store (test_find_store).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from db.chunk_filter import PLACES, ChunkFilter
from db.errors import NotAllowedError, NotFoundError, StoreValueError
from db.find_rows import excerpt
from db.queue_rows import NewQueue
from tests.found_store import (
    ALL,
    MODES,
    Mode,
    use,
)
from tests.store_world import (
    add_judge,
    add_problem,
    add_run,
    add_trajectory,
    fresh_store,
    judgment,
)


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
