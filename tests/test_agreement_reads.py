"""What raters said of the same chunks, as the store tells it: chains, queues, judges, rules, bounds, blind queues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event

from db.agreement_reads import Rater, parse_rater
from db.chunk_filter import ChunkFilter
from db.errors import StoreValueError
from db.queue_rows import NewQueue
from db.rows import Label
from db.store import Store
from tests.store_world import (
    BACKENDS,
    add_judge,
    add_problem,
    add_run,
    add_trajectory,
    fresh_store,
    judgment,
)


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path) as store:
        yield store


def review(store: Store, chunk: int, actor: str, verdict: int | None, *, kind: str = "review") -> int:
    head = store.chain_head(chunk, actor)
    action = f"{chunk}-{actor}-{verdict}-{kind}-{head.id if head else 0}"
    return store.add_review(chunk, action, actor, verdict, supersedes=head.id if head else None, kind=kind).id


def said(store: Store, *raters: str, queue_id: int | None = None) -> dict[int, tuple[str, ...]]:
    return {row.chunk_id: row.said for row in store.rated(raters, queue_id=queue_id).rows}


def test_raters_are_named_by_text() -> None:
    texts = [
        "person:ada",
        "person:ada:b @ iss",
        "people",
        "judge:3",
        "run:4",
        "rule:abs-q",
        "effective",
        "effective:abs-q",
    ]
    for text in texts:
        assert str(parse_rater(text)) == text
    assert parse_rater("person:a:b") == Rater("person", "a:b")
    for text in (
        "",
        "person:",
        "people:x",
        "judge:x",
        "judge:",
        "judge:²",
        "rule:best",
        "ada",
        "effective:x",
    ):
        with pytest.raises(StoreValueError, match="no rater"):
            parse_rater(text)


def test_a_persons_word_is_the_last_review_not_taken_back(store: Store) -> None:
    trajectory, chunks = add_trajectory(store, add_problem(store), steps=5)
    review(store, chunks[0], "ada", 1)
    review(store, chunks[0], "ada", -1)  # changed
    review(store, chunks[1], "ada", 1)
    review(store, chunks[1], "ada", -1)
    store.undo("u1", "ada", chunks[1])  # the first is in force again
    review(store, chunks[2], "ada", 1)
    store.undo("u2", "ada", chunks[2])  # nothing said any more
    review(store, chunks[3], "ada", 0)
    review(store, chunks[4], "ada", None)
    assert said(store, "person:ada") == {
        chunks[0]: ("-",),
        chunks[1]: ("+",),
        chunks[3]: ("0",),
        chunks[4]: ("?",),
    }
    (row,) = [row for row in store.rated(["person:ada"]).rows if row.chunk_id == chunks[3]]
    assert (row.trajectory_id, row.idx) == (trajectory, 3)


def test_who_adjudicates_keeps_what_they_had_said(store: Store) -> None:
    _, chunks = add_trajectory(store, add_problem(store))
    review(store, chunks[0], "ada", 1)
    review(store, chunks[0], "bob", -1)
    review(store, chunks[0], "ada", -1, kind="adjudication")
    review(store, chunks[1], "ada", 1, kind="adjudication")  # decided without a review of her own
    assert said(store, "person:ada") == {chunks[0]: ("+",)}
    assert said(store, "person:ada", "person:bob") == {chunks[0]: ("+", "-")}
    assert said(store, "people") == {chunks[0]: ("-",), chunks[1]: ("+",)}
    (row,) = store.answers().rows
    assert row.said == {"ada": "+", "bob": "-"}


def test_judges_runs_rules_and_people_on_the_same_chunks(store: Store) -> None:
    _, chunks = add_trajectory(store, add_problem(store), steps=4)
    judge, other = add_judge(store), add_judge(store, "other", "e")
    first, second = add_run(store, "judge"), add_run(store, "judge")
    store.add_judgments([judgment(judge, chunks[0], 0, "positive")], run_id=first)
    later = [judgment(judge, chunks[0], draw, "negative") for draw in (1, 2)]
    store.add_judgments([*later, judgment(judge, chunks[1], 0, None)], run_id=second)
    store.add_judgments([judgment(other, chunks[1], 0, "positive")], run_id=second)
    labels = zip(chunks, ("+", "-", None, "-"), ("-", "-", "+", "+"), strict=True)
    store.put_labels([Label(c, rel_ratio=s, abs_q=other) for c, s, other in labels])
    review(store, chunks[1], "ada", 1)
    review(store, chunks[3], "ada", 1)
    review(store, chunks[3], "bob", -1)
    assert said(store, f"judge:{judge}") == {chunks[0]: ("-",), chunks[1]: ("?",)}
    assert said(store, f"judge:{judge}", f"judge:{other}") == {chunks[1]: ("?", "+")}
    assert said(store, f"run:{first}") == {chunks[0]: ("+",)}
    assert said(store, f"run:{first}", f"run:{second}") == {chunks[0]: ("+", "-")}
    assert said(store, "rule:rel-ratio") == {chunks[0]: ("+",), chunks[1]: ("-",), chunks[3]: ("-",)}
    # people speak before the rule, and where they disagree there is no label
    assert said(store, "effective") == {chunks[0]: ("+",), chunks[1]: ("+",), chunks[3]: ("?",)}
    others = {chunks[0]: ("-",), chunks[1]: ("+",), chunks[2]: ("+",), chunks[3]: ("?",)}
    assert said(store, "effective:abs-q") == others
    assert said(store, f"judge:{judge}", "effective") == {chunks[0]: ("-", "+"), chunks[1]: ("?", "+")}


def test_a_queue_counts_what_was_answered_in_it_without_its_known_items(store: Store) -> None:
    _, chunks = add_trajectory(store, add_problem(store), steps=4)
    queue = store.make_queue(
        NewQueue("q", chunk_ids=chunks[:2], known={chunks[3]: 1}, known_rate=0.4, reviews_per_item=2), "ada"
    )
    review(store, chunks[2], "bob", 1)  # not in the queue
    while (item := store.next_item(queue, "bob")) is not None:
        store.answer(item.id, f"a{item.id}", "bob", -1, "", supersedes=item.head)
    review(store, chunks[0], "bob", 1)  # changed afterwards, outside it
    assert said(store, "person:bob", queue_id=queue) == {chunks[0]: ("-",), chunks[1]: ("-",)}
    assert said(store, "person:bob")[chunks[0]] == ("+",)
    assert {row.chunk_id: row.said for row in store.answers(queue_id=queue).rows} == {
        chunks[0]: {"bob": "-"},
        chunks[1]: {"bob": "-"},
    }


def test_answers_to_the_oldest_chunks_of_a_long_queue_are_found(store: Store) -> None:
    _, chunks = add_trajectory(store, add_problem(store), steps=6)
    queue = store.make_queue(NewQueue("q", order="reading", chunk_ids=chunks, reviews_per_item=2), "ada")
    for actor in ("ada", "bob"):
        for _ in range(2):
            item = store.next_item(queue, actor)
            assert item is not None
            store.answer(item.id, f"{actor}{item.id}", actor, 1, supersedes=item.head)
    answered = [chunks[1], chunks[0]]
    found = store.answers(queue_id=queue, limit=2)
    assert [row.chunk_id for row in found.rows] == answered and found.complete
    for raters in (["person:ada", "person:bob"], ["people"]):
        rated = store.rated(raters, queue_id=queue, limit=2)
        assert [row.chunk_id for row in rated.rows] == answered and rated.complete


def test_only_the_newest_are_looked_at_and_it_says_so(store: Store) -> None:
    _, chunks = add_trajectory(store, add_problem(store), steps=6)
    judge, other = add_judge(store), add_judge(store, "other", "e")
    run = add_run(store, "judge")
    store.add_judgments([judgment(judge, c, 0, "positive") for c in chunks], run_id=run)
    store.add_judgments([judgment(other, c, 0, "negative") for c in chunks[:3]], run_id=run)
    store.put_labels([Label(c, rel_ratio="+") for c in chunks])
    for raters in ([f"judge:{judge}"], ["rule:rel-ratio"], [f"judge:{judge}", "effective"]):
        found = store.rated(raters, limit=2)
        assert [row.chunk_id for row in found.rows] == chunks[:3:-1] and not found.complete
    assert store.rated([f"judge:{judge}"]).complete
    # both judges read more than is looked at, and the newest chunks only one of them
    found = store.rated([f"judge:{judge}", f"judge:{other}"], limit=2)
    assert [row.chunk_id for row in found.rows] == [chunks[2], chunks[1]] and not found.complete


def test_what_a_blind_queue_hides_is_left_out_and_counted(store: Store) -> None:
    problem = add_problem(store)
    _, chunks = add_trajectory(store, problem, words="one")
    _, others = add_trajectory(store, problem, words="two")
    for chunk in (chunks[0], others[0]):
        review(store, chunk, "ada", 1)
        review(store, chunk, "cyd", -1)
    queue = store.make_queue(NewQueue("q", chunk_ids=[chunks[0]], blind=True, reviews_per_item=3), "ada")
    assert store.next_item(queue, "bob") is not None
    bobs = store.seen_by("bob")
    found = bobs.rated(["person:ada", "person:cyd"])
    assert [row.chunk_id for row in found.rows] == [others[0]] and found.hidden == 1
    answers = bobs.answers()
    assert [row.chunk_id for row in answers.rows] == [others[0]] and answers.hidden == 1
    assert [row.chunk_id for row in bobs.disputes()] == [others[0]] and bobs.count_disputes() == 1
    assert store.seen_by("eve").rated(["person:ada"]).hidden == 0


def test_reviewers_are_found_without_reading_their_reviews(store: Store) -> None:
    _, chunks = add_trajectory(store, add_problem(store))
    for actor in ("cyd", "ada", "bob"):
        for chunk in chunks:
            review(store, chunk, actor, 1)
    assert store.reviewers() == ["ada", "bob", "cyd"]


def test_disputes_are_paged_both_ways_until_somebody_decides(store: Store) -> None:
    _, chunks = add_trajectory(store, add_problem(store), steps=5)
    for chunk in chunks:
        review(store, chunk, "ada", 1)
        review(store, chunk, "bob", -1)
    review(store, chunks[0], "cyd", 0)
    first = store.disputes(limit=2)
    assert [row.chunk_id for row in first] == chunks[:2]
    assert (first[0].plus, first[0].minus, first[0].abstained, first[0].idx, first[0].n_chunks) == (
        1,
        1,
        1,
        0,
        5,
    )
    assert [row.chunk_id for row in store.disputes(after=chunks[1], limit=2)] == chunks[2:4]
    assert [row.chunk_id for row in store.disputes(before=chunks[4], limit=2)] == chunks[2:4]
    assert store.count_disputes() == 5 and store.count_disputes(stop=2) == 3
    review(store, chunks[1], "ada", -1, kind="adjudication")
    store.undo("u", "bob", chunks[2])
    assert [row.chunk_id for row in store.disputes()] == [chunks[0], *chunks[3:]]
    queue = store.make_queue(NewQueue("q", where=ChunkFilter(position_min=4)), "ada")
    assert [row.chunk_id for row in store.disputes(queue_id=queue)] == [chunks[4]]
    assert store.count_disputes(queue_id=queue) == 1


def test_no_read_of_the_page_scans_a_table(store: Store, tmp_path: Path) -> None:
    """The plans of every statement that the page sends, on SQLite: each table through an index."""
    if not store.is_sqlite:
        pytest.skip("query plans of SQLite")
    _, chunks = add_trajectory(store, add_problem(store))
    judge, other, run = add_judge(store), add_judge(store, "other", "e"), add_run(store, "judge")
    for one in (judge, other):
        store.add_judgments([judgment(one, chunk, 0, "positive") for chunk in chunks], run_id=run)
    store.put_labels([Label(c, rel_ratio="+") for c in chunks])
    for actor, verdict in (("ada", 1), ("bob", -1)):
        review(store, chunks[0], actor, verdict)
    queue = store.make_queue(NewQueue("q", chunk_ids=chunks, reviews_per_item=3), "ada")
    sent: list[tuple[str, object]] = []

    def keep(_c: object, _cursor: object, statement: str, given: object, *_: object) -> None:
        sent.append((statement, given))

    event.listen(store.engine, "before_cursor_execute", keep)
    for raters in (
        ["person:ada", "person:bob"],
        ["person:ada", f"judge:{judge}"],
        ["people", "rule:rel-ratio"],
        [f"judge:{judge}", f"judge:{other}"],
        [f"judge:{judge}", "effective"],
        [f"run:{run}", f"run:{run}"],
        ["rule:rel-ratio"],
    ):
        store.rated(raters)
        store.rated(raters, queue_id=queue)
    store.answers()
    store.answers(queue_id=queue)
    store.reviewers()
    store.disputes()
    store.count_disputes()
    store.disputes(queue_id=queue)
    event.remove(store.engine, "before_cursor_execute", keep)
    scans = []
    with store.engine.connect() as db:
        for statement, given in sent:
            if not statement.startswith("SELECT"):
                continue
            for row in db.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given):  # type: ignore[arg-type]
                if row[3].startswith("SCAN") and not any(
                    fine in row[3]
                    for fine in (
                        "SCAN chunk_opinions",
                        "SCAN chunk_labels",
                        "SCAN anon_1",
                        "SUBQUERY",
                        "CONSTANT ROW",
                    )
                ):
                    scans.append((row[3], statement))
    assert not scans, scans[:3]
