"""Kept totals of labels, judges and people against each other: right after every kind of write, and when counted anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from db.check import check
from db.crossings import LAST_POSITION, recount_crossings
from db.rows import Label
from db.store import Store
from tests.store_world import BACKENDS, add_judge, add_problem, add_run, add_trajectory, fresh_store, judgment


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path) as store:
        yield store
        assert check(store) == []


def label(chunk: int, sign: str, conf: float = 0.95, **more: object) -> Label:
    values: dict[str, object] = {"before_k": 8, "before_n": 16, "q_before": 0.5, "drop": 0.25, "abs_q": "+"}
    values |= {"after_k": 4, "after_n": 16, "q_after": 0.25, "rel_ratio": sign, "rel_ratio_conf": conf}
    return Label(chunk, **(values | more))  # type: ignore[arg-type]


def people(store: Store) -> dict[str, int]:
    return {key: n for key, (n, _) in store.totals().get("people/rel_ratio", {}).items()}


def test_values_before_and_after_are_counted_as_they_were_drawn(store: Store) -> None:
    _, chunks = add_trajectory(store, add_problem(store))
    store.put_labels([label(chunks[0], "-"), label(chunks[1], "-")])
    exact = {"after_k": 0, "after_n": 0, "after_exact": 1, "q_after": 1.0, "drop": -0.5}
    store.put_labels([label(chunks[2], "+", **exact)])
    assert store.pairs() == {"8/16 4/16": 2, "8/16 =1": 1}
    store.put_labels([label(chunks[0], "+", after_k=9, q_after=0.5625, drop=-0.0625)])
    assert store.pairs() == {"8/16 4/16": 1, "8/16 9/16": 1, "8/16 =1": 1}
    unknown = {"after_k": None, "after_n": None, "q_after": None, "drop": None, "rel_ratio": None}
    store.put_labels([label(chunks[1], "-", **unknown)])
    assert store.pairs() == {"8/16 9/16": 1, "8/16 =1": 1}


def test_a_judges_majority_stands_against_the_label_at_its_position(store: Store) -> None:
    _, chunks = add_trajectory(store, add_problem(store), steps=LAST_POSITION + 3)
    judge, run = add_judge(store), add_run(store)
    store.put_labels([label(chunks[0], "-"), label(chunks[1], "+")])
    store.add_judgments([judgment(judge, chunks[0], 0, "positive")], run_id=run)
    store.add_judgments([judgment(judge, chunks[1], draw, None) for draw in range(2)], run_id=run)
    assert store.judged_by_position("rel_ratio") == {judge: {"0/-+": 1, "1/+0": 1}}
    late = [judgment(judge, chunk, 0, "negative") for chunk in chunks[-3:]]
    store.add_judgments([*late, judgment(judge, chunks[0], 1, "negative")], run_id=run)
    store.put_labels([label(chunk, "+") for chunk in chunks[-3:]])
    assert store.judged_by_position("rel_ratio") == {judge: {"0/-0": 1, "1/+0": 1, f"{LAST_POSITION}/+-": 3}}
    assert store.judged_by_position("abs_q")[judge]["0/+0"] == 1
    assert store.judged_by_position("rel_effective") == {}


def test_people_stand_against_labels_that_are_sure_and_those_that_are_not(store: Store) -> None:
    _, chunks = add_trajectory(store, add_problem(store))
    store.put_labels([label(chunks[0], "-", 0.9), label(chunks[1], "+", 0.89)])
    first = store.add_review(chunks[0], "a1", "ann", 1)
    store.add_review(chunks[1], "a2", "ann", 1)
    store.add_review(chunks[2], "a3", "ann", -1)  # it has no label
    assert people(store) == {"-+/sure": 1, "++/unsure": 1}
    store.add_review(chunks[0], "b1", "bob", -1)
    assert people(store) == {"++/unsure": 1}
    assert {k: n for k, (n, _) in store.totals()["opinions"].items()} == {"disputed": 1, "+": 1, "-": 1}
    store.add_review(chunks[0], "a4", "ann", 0, supersedes=first.id)
    assert people(store) == {"--/sure": 1, "++/unsure": 1}
    store.undo("b2", "bob", chunks[0])
    assert {k: n for k, (n, _) in store.totals()["opinions"].items()} == {"none": 1, "+": 1, "-": 1}
    store.put_labels([label(chunks[1], "-", 0.99)])
    assert people(store) == {"-+/sure": 1}


def test_a_broken_total_is_found_and_counted_anew(tmp_path: Path) -> None:
    with fresh_store("sqlite", tmp_path) as store:
        _, chunks = add_trajectory(store, add_problem(store))
        store.put_labels([label(chunks[0], "-")])
        with store.write() as db:
            db.execute(text("UPDATE totals SET n = 7 WHERE name = 'pairs'"))
        assert [str(one) for one in check(store)] == [
            "total: pairs 8/16 4/16: says 7 (0.0000), counted 1 (0.0000)"
        ]
        store.rebuild_totals()
        with store.read() as db:
            assert recount_crossings(db) == {("pairs", "8/16 4/16"): (1, 0.0)}
        assert check(store) == [] and store.pairs() == {"8/16 4/16": 1}
