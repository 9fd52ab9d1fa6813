"""The store's stage writes: idempotent, gap-aware, counted. Runs, reviews, processes and reads have their own files."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from db.check import check
from db.errors import (
    NotFoundError,
    StoreError,
    StoreValueError,
)
from db.rows import Label, NewChunk, NewProblem, NewTrajectory
from db.store import Store
from db.tables import Total
from db.totals import recount
from tests.store_world import (
    BACKENDS,
    add_judge,
    add_prefix,
    add_problem,
    add_run,
    add_trajectory,
    filled,
    fresh_store,
    judgment,
    rollout,
    solution,
)


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path) as store:
        yield store


def flat_totals(store: Store) -> dict[tuple[str, str], tuple[int, float]]:
    """Those that ``totals`` leaves out too."""
    with store.read() as db:
        rows = db.execute(select(Total.name, Total.key, Total.n, Total.amount).where(Total.n != 0))
        return {(name, key): (n, amount) for name, key, n, amount in rows}


# ---- problems


def test_problems_are_known_by_dataset_and_key_and_never_changed(store: Store):
    first = store.add_problems(
        [
            NewProblem("a", "1", "one", "1"),
            NewProblem("a", "2", "two", "2"),
            NewProblem("a", "1", "again", "9"),
        ],
        run_id=None,
        actor="ann",
    )
    assert len(first.added) == 2 and not first.existing and not first.differing
    again = store.add_problems(
        [
            NewProblem("a", "2", "two", "3"),
            NewProblem("a", "1", "one", "1"),
            NewProblem("b", "1", "one", "1"),
        ],
        run_id=None,
        actor="ann",
    )
    assert again.existing == (first.ids["a", "2"], first.ids["a", "1"])
    assert again.differing == (first.ids["a", "2"],)
    assert len(again.added) == 1 and again.ids["a", "1"] == first.ids["a", "1"]
    assert [p.answer for p in store.problems(list(first.added))] == ["1", "2"]
    assert (store.count_problems(), store.count_problems("a"), store.count_problems("none")) == (3, 2, 0)
    assert store.problem_ids("a") == sorted(first.added)
    with pytest.raises(NotFoundError, match="no problem 999"):
        store.problem(999)


def test_many_keys_fit_into_one_call(store: Store):
    rows = [NewProblem("big", str(i), f"text {i}", "1") for i in range(12_000)]
    added = store.add_problems(rows, run_id=None, actor="ann")
    assert len(added.added) == 12_000
    assert not store.add_problems(rows, run_id=None, actor="ann").added
    assert len(store.problems(list(added.added))) == 12_000


# ---- prefixes and draws


def test_a_prefix_keeps_its_first_base_seed_and_its_token_ids(store: Store):
    problem = add_problem(store)
    prefix = add_prefix(store, problem)
    assert add_prefix(store, problem) == prefix
    row = store.prefixes([prefix])[prefix]
    assert (row.base_seed, row.token_ids) == (1000, (1, 2, 2**32 - 1))
    store.set_prefix_errors([(prefix, "too long")])
    assert store.prefixes([prefix])[prefix].error == "too long"


def test_rollouts_are_stored_once_by_prefix_and_draw(store: Store):
    run, prefix = add_run(store), add_prefix(store, add_problem(store))
    assert store.add_rollouts([rollout(prefix, j) for j in range(5)], run_id=run) == 5
    again = [rollout(prefix, j, "wrong") for j in range(8)]
    assert store.add_rollouts(again, run_id=run) == 3
    assert store.outcome_counts([prefix]) == {prefix: {"correct": 5, "wrong": 3}}
    twice = [rollout(prefix, 8), rollout(prefix, 8, "wrong")]
    assert store.add_rollouts(twice, run_id=run) == 1
    assert store.outcome_counts([prefix])[prefix] == {"correct": 6, "wrong": 3}
    assert store.totals()["rollouts/outcome"] == {"correct": (6, 0.0), "wrong": (3, 0.0)}
    assert [r.draw for r in store.rollouts_of(prefix)] == list(range(9))


def test_a_draw_counts_only_after_all_draws_below_it(store: Store):
    run, problem = add_run(store), add_problem(store)
    prefix, empty = add_prefix(store, problem), add_prefix(store, problem, "empty")
    late = [rollout(prefix, j, "wrong") for j in (1, 2, 5)]
    store.add_rollouts(late, run_id=run)
    assert store.draws_done([prefix, empty]) == {prefix: 0, empty: 0}
    assert store.outcome_counts([prefix, empty]) == {prefix: {}, empty: {}}
    store.add_rollouts([rollout(prefix, 0)], run_id=run)
    assert store.draws_done([prefix]) == {prefix: 3}
    assert store.outcome_counts([prefix])[prefix] == {"correct": 1, "wrong": 2}
    assert store.outcome_counts([prefix], m=2)[prefix] == {"correct": 1, "wrong": 1}
    store.add_rollouts([rollout(prefix, j) for j in (3, 4)], run_id=run)
    assert store.draws_done([prefix]) == {prefix: 6}


def test_the_order_in_which_rollouts_arrive_changes_no_count(store: Store):
    run, problem = add_run(store), add_problem(store)
    outcomes = ["correct", "wrong", "unparsed", "truncated", "error"]
    rng = random.Random(7)
    counts = []
    for key in "ab":
        prefix = add_prefix(store, problem, key)
        rows = [rollout(prefix, j, outcomes[j % 5]) for j in range(17)]
        rng.shuffle(rows)
        for row in rows:
            store.add_rollouts([row], run_id=run)
        counts.append(store.outcome_counts([prefix], m=16)[prefix])
    assert counts[0] == counts[1] == {"correct": 4, "wrong": 3, "unparsed": 3, "truncated": 3, "error": 3}


# ---- trajectories


def test_a_trajectory_comes_back_whole_and_is_stored_once(store: Store):
    run, problem = add_run(store), add_problem(store)
    prefix = add_prefix(store, problem)
    rows = [
        solution(problem, prefix_id=prefix, draw=j, seed=j, token_ids=(9, j), steps=2 + j) for j in range(3)
    ]
    first = store.add_trajectories(rows, run_id=run, actor="ann")
    assert [stored.new for stored in first] == [True] * 3
    again = store.add_trajectories([*rows[::-1]], run_id=run, actor="ann")
    assert [(s.id, s.new) for s in again] == [(s.id, False) for s in first[::-1]]
    whole = store.stage_trajectories([first[1].id, first[0].id, 10**9])
    assert [t.id for t in whole] == [first[1].id, first[0].id]
    assert whole[0].token_ids == (9, 1)
    assert "".join(c.lead + c.text + c.close for c in whole[0].chunks) + whole[0].tail == whole[0].text
    assert [c.idx for c in whole[0].chunks] == [0, 1, 2] and whole[0].chunks[2].token_end == 12
    assert store.sample_draws_done([prefix]) == {prefix: 3}
    assert store.sample_counts([prefix]) == {prefix: {"correct": 3}}


def test_an_imported_trajectory_is_known_by_problem_policy_and_text(store: Store):
    problem = add_problem(store)
    rows = [
        solution(problem, policy="human"),
        solution(problem, policy="other"),
        solution(problem, policy="human"),
    ]
    stored = store.add_trajectories(rows, run_id=None, actor="ann")
    assert [s.new for s in stored] == [True, True, False] and stored[2].id == stored[0].id
    assert [s.new for s in store.add_trajectories(rows, run_id=None, actor="ann")] == [False] * 3
    assert store.trajectory_ids(policy="human", sampled=False) == [stored[0].id]


def test_texts_with_nothing_in_them_and_with_everything(store: Store):
    problem = add_problem(store)
    texts = ["", "\n\n", "零一二三四五六七八九。", "emoji 😀 \u202e and \r\n", "x" * 100_000]
    rows = [
        NewTrajectory(problem, f"p{i}", text, "", (NewChunk("", text),), "sentence", "unparsed")
        for i, text in enumerate(texts)
    ]
    ids = [s.id for s in store.add_trajectories(rows, run_id=None, actor="ann")]
    assert [t.text for t in store.stage_trajectories(ids)] == texts


def test_chunks_that_do_not_rejoin_are_refused_and_nothing_of_the_batch_is_stored(store: Store):
    problem = add_problem(store)
    bad = NewTrajectory(problem, "human", "abc", "", (NewChunk("", "ab"),), "tags", "correct")
    with pytest.raises(StoreValueError, match="do not give its text back"):
        store.add_trajectories([solution(problem), bad], run_id=None, actor="ann")
    half = solution(problem, draw=3)
    with pytest.raises(StoreValueError, match="only one of prefix_id and draw"):
        store.add_trajectories([half], run_id=None, actor="ann")
    assert store.trajectory_ids() == []


def test_an_unknown_outcome_or_problem_is_refused_by_the_store(store: Store):
    with pytest.raises(StoreError):
        store.add_trajectories([solution(add_problem(store), outcome="perhaps")], run_id=None, actor="ann")
    with pytest.raises(StoreError):
        store.add_trajectories([solution(10**9)], run_id=None, actor="ann")
    assert store.trajectory_ids() == []


def test_a_text_that_is_no_unicode_is_named(store: Store):
    with pytest.raises(StoreValueError, match=r"near 'before \\ud800 after'"):
        add_problem(store, text_="before \ud800 after")


def test_a_number_that_no_database_holds_is_named(store: Store):
    with pytest.raises(StoreError, match="nothing was written" if store.is_sqlite else "out of range"):
        store.add_trajectories([solution(2**70)], run_id=None, actor="ann")
    assert store.trajectory_ids() == []


def test_a_nul_comes_back_or_is_refused_by_name(store: Store):
    problem = add_problem(store, text_="What is 1 + 1?")
    row = NewTrajectory(problem, "human", "a\0b", "", (NewChunk("", "a\0b"),), "sentence", "unparsed")
    if store.is_sqlite:
        (stored,) = store.add_trajectories([row], run_id=None, actor="ann")
        assert store.stage_trajectories([stored.id])[0].chunks[0].text == "a\0b"
        assert check(store) == []
    else:
        with pytest.raises(StoreValueError, match="cannot hold a NUL character"):
            store.add_trajectories([row], run_id=None, actor="ann")


def test_selection_of_trajectories(store: Store):
    problem, other = add_problem(store), add_problem(store, "q", dataset="other")
    prefix = add_prefix(store, problem)
    rows = [
        solution(problem, prefix_id=prefix, draw=j, outcome="correct" if j else "wrong") for j in range(3)
    ]
    run = add_run(store)
    sampled = [s.id for s in store.add_trajectories(rows, run_id=run, actor="ann")]
    human, _ = add_trajectory(store, other, policy="human", steps=5)
    assert store.count_selection() == (4, 14)
    assert store.count_selection(dataset="other") == (1, 5)
    assert store.count_selection(from_run=run, limit=2) == (2, 6)
    assert store.count_selection(mixed_only=True) == (3, 9)
    assert store.count_selection(per_problem=1) == (2, 8)
    pages = list(store.iterate_trajectories(batch=2, policy="nano"))
    assert [[t.id for t in page] for page in pages] == [sampled[:2], sampled[2:]]
    assert [t.id for page in store.iterate_trajectories(batch=9, trajectory_ids=[human]) for t in page] == [
        human
    ]
    ungraded = add_prefix(store, other, "ungraded")
    tried = [
        solution(other, prefix_id=ungraded, draw=j, outcome="error" if j else "correct") for j in range(2)
    ]
    store.add_trajectories(tried, run_id=None, actor="ann")
    assert store.count_selection(mixed_only=True) == (3, 9), "an answer that nobody could grade is not wrong"


def test_label_inputs_leave_out_what_lies_behind_a_gap(store: Store):
    problem = add_problem(store)
    prefix = add_prefix(store, problem)
    rows = [solution(problem, prefix_id=prefix, draw=j) for j in (0, 1, 3)]
    ids = [s.id for s in store.add_trajectories(rows, run_id=None, actor="ann")]
    inputs = store.label_inputs(ids)
    assert [i.is_own_sample for i in inputs] == [True, True, False]
    assert all(i.sample_counts == {"correct": 2} for i in inputs)
    human, _ = add_trajectory(store, problem, policy="human")
    store.set_value_prefixes([(human, prefix)])
    (by_hand,) = store.label_inputs([human])
    assert not by_hand.is_own_sample and by_hand.sample_counts == {"correct": 2}


# ---- labels, judgments, caches, totals


def test_labels_are_replaced_and_set_the_columns_that_lists_sort_by(store: Store):
    trajectory, chunks = add_trajectory(store, add_problem(store))
    store.put_labels(
        [
            Label(chunks[0], drop=0.5, rel_ratio="-", rel_ratio_conf=0.9),
            Label(chunks[1], drop=-0.5, rel_ratio="+", rel_ratio_conf=0.6),
        ]
    )
    view = store.trajectory_view(trajectory)
    assert view is not None
    assert (view.biggest_drop, view.least_confidence, view.n_negative, view.n_disagree) == (0.5, 0.6, 1, None)
    store.put_labels([Label(chunks[0], drop=0.25, rel_ratio="+", rel_ratio_conf=0.8, abs_q="+")])
    view = store.trajectory_view(trajectory)
    assert view is not None and (view.biggest_drop, view.n_negative) == (0.25, 0)
    assert store.totals()["labels/rel_ratio"] == {"+": (2, 0.0)}
    assert store.totals()["lost/position"] == {"0": (1, 0.25), "1": (1, 0.0)}
    assert store.totals()["gained/position"] == {"1": (1, 0.5)}
    assert store.labels(chunks)[chunks[0]].abs_q == "+"
    assert set(store.labels(chunks)) == set(chunks[:2])


def test_disagreement_is_a_judges_majority_against_the_label(store: Store):
    run = add_run(store)
    trajectory, chunks = add_trajectory(store, add_problem(store))
    store.put_labels([Label(chunks[0], rel_ratio="-"), Label(chunks[1], rel_ratio="+")])
    first, second = add_judge(store), add_judge(store, "second", "other sampling")

    def disagree() -> int | None:
        view = store.trajectory_view(trajectory)
        assert view is not None
        return view.n_disagree

    assert disagree() is None
    store.add_judgments([judgment(first, chunks[0], 0, None)], run_id=run)
    assert disagree() is None
    store.add_judgments([judgment(first, chunks[1], 0, "positive")], run_id=run)
    assert disagree() == 0
    store.add_judgments([judgment(first, chunks[0], 1, "positive")], run_id=run)
    assert disagree() == 1
    store.add_judgments([judgment(first, chunks[0], 2, "negative")], run_id=run)  # a tie is no vote
    assert disagree() == 0
    store.add_judgments([judgment(second, chunks[0], 0, "positive")], run_id=run)
    assert disagree() == 1
    store.put_labels([Label(chunks[0], rel_ratio="+")])
    assert disagree() == 0


def test_judgments_are_stored_once_and_counted_without_gaps(store: Store):
    run = add_run(store)
    _, chunks = add_trajectory(store, add_problem(store))
    judge = add_judge(store)
    assert (
        store.add_judgments([judgment(judge, chunks[0], j, "positive") for j in (0, 1, 3)], run_id=run) == 3
    )
    assert store.judged(judge, chunks[:2]) == {chunks[0]: 2, chunks[1]: 0}
    assert store.add_judgments([judgment(judge, chunks[0], j, "negative") for j in range(4)], run_id=run) == 1
    assert store.judged(judge, chunks[:1]) == {chunks[0]: 4}
    assert store.votes(chunks) == {chunks[0]: {judge: (3, 1, 0)}}


def test_a_judge_is_known_by_weights_prompt_and_sampling(store: Store):
    first = add_judge(store, "nano")
    assert add_judge(store, "renamed") == first
    assert add_judge(store, "nano", "hotter") != first
    assert [judge.name for judge in store.judges()] == ["nano", "nano (2)"]


def test_totals_are_what_a_count_gives(store: Store):
    filled(store)
    with store.read() as db:
        assert flat_totals(store) == recount(db)
    before = store.totals()
    store.rebuild_totals()
    assert store.totals() == before
    assert store.counts() == {"problems": 2, "trajectories": 4, "chunks": 12, "rollouts": 8, "judgments": 4}
    assert not store.is_empty()


def test_grades_are_kept_under_their_key(store: Store):
    store.grades.put_many({"a": "correct", "b": "wrong"})
    store.grades.put_many({"a": "wrong"})
    assert store.grades.get_many(["a", "b", "c"]) == {"a": "correct", "b": "wrong"}
