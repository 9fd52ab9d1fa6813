"""Blind queues: every read function of the store is walked over, by name; a new one that is on no list fails here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from db.blind import HIDDEN, hidden, hidden_chunks, hidden_prefixes, hidden_problems, not_hidden
from db.chunk_filter import ChunkFilter
from db.queues_store import NewQueue
from db.reads_list import SORTS, TrajectoryFilter
from db.selections import LeftOut
from db.store import Store
from engine.labels import parse_rule
from engine.pipeline.export import effective_rows
from tests.blind_world import CANARY, VIEWER, Secret, blind_world
from tests.store_world import BACKENDS, add_problem, add_trajectory, fresh_store
from tests.test_reads import plans

WRITES = [
    "add_imported_reviews",
    "add_judgments",
    "add_metrics",
    "add_problems",
    "add_review",
    "add_rollouts",
    "add_run_samples",
    "add_trajectories",
    "answer",
    "answer_first_error",
    "beat_worker_lock",
    "claim_child",
    "claim_next",
    "close",
    "close_queue",
    "create_run",
    "delete_search",
    "ensure_judge",
    "ensure_prefixes",
    "finish_run",
    "heartbeat",
    "make_queue",
    "mark_stalled",
    "put_draft",
    "put_labels",
    "queue_for_chunks",
    "read",
    "rebuild_totals",
    "release_worker_lock",
    "reopen_queue",
    "request_stop",
    "resume_run",
    "retry_skipped",
    "save_search",
    "put_stops",
    "link_prefixes",
    "seen_by",
    "set_chunk_prefixes",
    "set_guidelines",
    "set_key_bindings",
    "set_prefix_errors",
    "set_role",
    "set_run_facts",
    "set_run_pid",
    "set_value_prefixes",
    "skip",
    "start_run",
    "take_worker_lock",
    "undo",
    "undo_last",
    "write",
]
WHOLE_STORE = [
    "counts",
    "totals",
    "metrics",
    "run_samples",
    "run",
    "runs",
    "children",
    "written_by",
    "worker",
    "worker_alive",
    "people",
    "role",
    "key_bindings",
    "judges",
    "judged_by_position",
    "saved_searches",
    "grades",
]
"""About no single solution: sums over the whole store, runs (with what they drew in training), people, judges."""

Read = Callable[[Store, Secret], Any]
TELLING: dict[str, Read] = {
    "answers": lambda s, x: s.answers(),
    "audit": lambda s, x: s.audit(),
    "chain_head": lambda s, x: s.chain_head(x.chunks[0], "bob"),
    "chunk_ids": lambda s, x: [s.chunk_ids(where, limit=9) for where in FILTERS],
    "chunk_page": lambda s, x: s.chunk_page(x.hidden),
    "chunk_scores": lambda s, x: s.chunk_scores(x.judge, x.chunks),
    "count_chunks": lambda s, x: [s.count_chunks(where) for where in FILTERS],
    "count_trajectories": lambda s, x: [s.count_trajectories(where) for where in LISTS],
    "curve": lambda s, x: s.curve(x.hidden),
    "draft": lambda s, x: s.draft("bob", x.chunks[0]),
    "draw_outcomes": lambda s, x: s.draw_outcomes([x.inner]),
    "find_chunks": lambda s, x: [s.find_chunks(where) for where in FILTERS],
    "get_draft": lambda s, x: s.get_draft("bob", x.chunks[0]),
    "history": lambda s, x: s.history(x.chunks[0]),
    "item": lambda s, x: s.item(x.item, VIEWER),
    "iterate_found": lambda s, x: [list(s.iterate_found(where)) for where in FILTERS],
    "iterate_trajectories": lambda s, x: list(s.iterate_trajectories(batch=9)),
    "judgments_of": lambda s, x: s.judgments_of(x.chunks[0]),
    "label_inputs": lambda s, x: s.label_inputs([x.hidden, x.plain]),
    "label_signs": lambda s, x: s.label_signs([x.hidden]),
    "labels": lambda s, x: s.labels(x.chunks),
    "last_review": lambda s, x: s.last_review("bob"),
    "next_item": lambda s, x: s.next_item(x.queue, VIEWER),
    "outcome_counts": lambda s, x: s.outcome_counts([x.inner]),
    "problem": lambda s, x: s.problem(x.problem),
    "problems": lambda s, x: (s.problems(), s.problems([x.problem])),
    "q_paths": lambda s, x: s.q_paths([x.hidden]),
    "rated": lambda s, x: s.rated(["judge:1", "rule:rel-ratio", "person:bob", "effective"]),
    "reviews_in_force": lambda s, x: s.reviews_in_force([x.hidden]),
    "reviews_of": lambda s, x: s.reviews_of(x.hidden),
    "rollout_text": lambda s, x: s.rollout_text(x.rollout),
    "rollouts_of": lambda s, x: (s.rollouts_of(x.inner), s.rollouts_of(x.inner, outcome="correct")),
    "run_outcomes": lambda s, x: s.run_outcomes(x.run),
    "sample_counts": lambda s, x: s.sample_counts([x.start]),
    "siblings": lambda s, x: s.siblings(x.problem),
    "stage_trajectories": lambda s, x: s.stage_trajectories([x.hidden, x.plain]),
    "trajectory_page": lambda s, x: [
        s.trajectory_page(where, sort=sort) for where in LISTS for sort in SORTS
    ],
    "trajectory_view": lambda s, x: s.trajectory_view(x.hidden),
    "verdicts": lambda s, x: s.verdicts(x.chunks),
    "votes": lambda s, x: s.votes(x.chunks),
    "votes_of": lambda s, x: s.votes_of(x.hidden),
}
"""Reads that say something of a solution which a blind queue hides, called so that they would."""
SILENT: dict[str, Read] = {
    "chunk_place": lambda s, x: s.chunk_place(x.chunks[0]),
    "count_disputes": lambda s, x: s.count_disputes(),
    "count_problems": lambda s, x: s.count_problems(),
    "count_prefixes": lambda s, x: s.count_prefixes(),
    "count_selection": lambda s, x: s.count_selection(),
    "datasets": lambda s, x: s.datasets(),
    "disputes": lambda s, x: s.disputes(),
    "stops": lambda s, x: s.stops([x.inner]),
    "rolled_out": lambda s, x: s.rolled_out([x.hidden], 1),
    "labelled_on": lambda s, x: s.labelled_on(x.run),
    "draws_done": lambda s, x: s.draws_done([x.inner]),
    "excerpts": lambda s, x: s.excerpts(x.chunks),
    "guidelines": lambda s, x: s.guidelines(x.queue),
    "hidden_now": lambda s, x: s.hidden_now(),
    "is_empty": lambda s, x: s.is_empty(),
    "judged": lambda s, x: s.judged(x.judge, x.chunks),
    "left_out": lambda s, x: (s.left_out(), s.left_out("nano", siblings=False)),
    "neighbour_items": lambda s, x: s.neighbour_items(x.queue, x.item, VIEWER),
    "neighbours": lambda s, x: s.neighbours(x.hidden),
    "pairs": lambda s, x: s.pairs(),
    "policies": lambda s, x: s.policies(),
    "prefixes": lambda s, x: s.prefixes([x.inner]),
    "problem_ids": lambda s, x: s.problem_ids("nano"),
    "queue": lambda s, x: s.queue(x.queue),
    "queue_progress": lambda s, x: s.queue_progress(x.queue),
    "queues": lambda s, x: s.queues(),
    "reviewers": lambda s, x: s.reviewers(),
    "run_sample_steps": lambda s, x: s.run_sample_steps(x.run),
    "sample_draws_done": lambda s, x: s.sample_draws_done([x.start]),
    "selection_ids": lambda s, x: s.selection_ids(),
    "trajectory_ids": lambda s, x: s.trajectory_ids(),
}
"""Reads that say the same in both worlds to anybody: names, places, how many there are."""
OWN = ("item", "next_item", "draft", "get_draft")
"""Reads for one person's eyes whoever asks."""
LISTS = [TrajectoryFilter(), TrajectoryFilter(outcome="correct"), TrajectoryFilter(reviewed=True)]
LISTS += [
    TrajectoryFilter(drop_min=0.0),
    TrajectoryFilter(confidence_max=1.0),
    TrajectoryFilter(disagree=False),
]
FILTERS = [
    ChunkFilter(),
    ChunkFilter(outcome="correct"),
    ChunkFilter(label="+"),
    ChunkFilter(drop_min=0.1),
    ChunkFilter(judge_id=1, verdict="positive"),
    ChunkFilter(reviewed_by="bob", review="+1"),
    ChunkFilter(people="+"),
    ChunkFilter(flag="flag"),
    ChunkFilter(disputed=True),
    ChunkFilter(search=f"{CANARY}-True"),
]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Store, Secret]]:
    folder = tmp_path_factory.mktemp("blind")
    with fresh_store("sqlite", folder) as good, fresh_store("sqlite", folder) as bad:
        secret = blind_world(good, True)
        assert secret == blind_world(bad, False)
        yield good, bad, secret


def said(value: Any) -> str:
    """A result as text, without what differs between any two stores: times and runs' random names."""
    text = re.sub(r"datetime\.datetime\([^)]*\)\)?", "TIME", repr(value))
    text = re.sub(r"seconds=[\d.]+", "seconds=SOME", text)
    return re.sub(r"uid='[0-9a-f-]+'", "uid", text)


def test_every_public_function_of_the_store_is_on_one_list():
    listed = [*WRITES, *WHOLE_STORE, *TELLING, *SILENT]
    assert len(listed) == len(set(listed))
    public = {name for name in dir(Store) if not name.startswith("_")}
    assert public - set(listed) == set(), (
        "a new function: put it on a list of this file, and withhold what it must"
    )
    assert set(listed) - public == set()


@pytest.mark.parametrize("name", [*TELLING, *SILENT])
def test_who_works_blind_reads_the_same_whatever_the_truth(name: str, worlds: tuple[Store, Store, Secret]):
    good, bad, secret = worlds
    read = (TELLING | SILENT)[name]
    mine = [said(read(store.seen_by(VIEWER), secret)) for store in (good, bad)]
    assert mine[0] == mine[1]
    assert CANARY not in mine[0]


@pytest.mark.parametrize("name", [name for name in TELLING if name not in OWN])
def test_who_does_not_work_blind_is_told(name: str, worlds: tuple[Store, Store, Secret]):
    good, bad, secret = worlds
    theirs = [said(TELLING[name](store.seen_by("ann"), secret)) for store in (good, bad)]
    assert theirs[0] != theirs[1]


def test_aggregates_hold_no_text_of_a_solution(worlds: tuple[Store, Store, Secret]):
    good, _, _ = worlds
    eve = good.seen_by(VIEWER)
    seen = [
        eve.counts(),
        eve.totals(),
        eve.runs(),
        eve.people(),
        eve.judges(),
        eve.judged_by_position("rel-ratio"),
    ]
    assert CANARY not in said(seen)


# ---- when something is hidden


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path) as store:
        yield store


def is_hidden(store: Store, trajectory: int, viewer: str | None) -> bool:
    with store.read() as db:
        by_id = trajectory in hidden(db, viewer, [trajectory])
        chunks = [chunk.id for chunk in store.chunk_page(trajectory)]
        assert hidden_chunks(db, viewer, chunks) == (set(chunks) if by_id else set())
        return by_id


def blind_queue(store: Store, chunks: list[int], **more: Any) -> int:
    values = {"name": "why", "order": "reading", "chunk_ids": chunks, "blind": True}
    return store.make_queue(NewQueue(**(values | more)), "ann")


def answer_next(store: Store, queue: int, actor: str) -> None:
    item = store.next_item(queue, actor)
    assert item is not None
    store.answer(item.id, f"{actor}-{item.id}", actor, 1, supersedes=item.head)


def test_hidden_from_the_first_item_to_the_last_answer(store: Store):
    trajectory, chunks = add_trajectory(store, add_problem(store))
    queue = blind_queue(store, chunks[:2])
    assert not is_hidden(store, trajectory, "eve")
    answer_next(store, queue, "eve")
    assert is_hidden(store, trajectory, "eve") and not is_hidden(store, trajectory, None)
    assert not is_hidden(store, trajectory, "bob")
    answer_next(store, queue, "eve")
    assert not is_hidden(store, trajectory, "eve")
    store.undo_last(queue, "eve", "u")
    assert is_hidden(store, trajectory, "eve")
    store.close_queue(queue, "ann")
    assert not is_hidden(store, trajectory, "eve")
    store.reopen_queue(queue, "ann")
    assert is_hidden(store, trajectory, "eve")


def test_what_an_export_leaves_out_is_counted_and_the_key_of_kept_reads_moves_with_it(store: Store):
    problem = add_problem(store)
    _, chunks = add_trajectory(store, problem)
    add_trajectory(store, problem, words="sibling", steps=2)
    add_trajectory(store, add_problem(store, "other", dataset="elsewhere"), words="plain")
    queue = blind_queue(store, chunks[:1])
    eve, ann = store.seen_by("eve"), store.seen_by("ann")
    assert (eve.left_out(), eve.hidden_now()) == (LeftOut(0, 0), "")
    item = store.next_item(queue, "eve")
    assert item is not None
    for where in (None, "nano"):
        assert eve.left_out(where) == LeftOut(2, 5)
        assert eve.left_out(where, siblings=False) == LeftOut(1, 3, siblings=False)
    assert not eve.left_out("elsewhere") and not ann.left_out() and not store.left_out()
    if store.is_sqlite:  # sought from the queue's items on, whatever else the store holds
        for read in (eve.hidden_now, eve.left_out, lambda: eve.left_out("nano")):
            for step in "; ".join(plans(store, read)).split("; "):
                assert not step.startswith("SCAN") and "problems USING COVERING INDEX" not in step, step
    assert eve.hidden_now() and not ann.hidden_now() and not store.hidden_now()
    rows = list(effective_rows(eve, parse_rule("abs-q")))
    assert [row["trajectory"] for row in rows[:-1]] == [3, 3, 3]
    counted = eve.count_selection()[1] + eve.left_out(siblings=False).chunks - eve.left_out().chunks
    assert counted == len(rows) - 1  # as the Data page says it
    assert (rows[-1]["left_out"]["trajectories"], rows[-1]["left_out"]["chunks"]) == (2, 5)
    assert "still to review blind" in rows[-1]["left_out"]["why"]
    assert len(list(effective_rows(store, parse_rule("abs-q")))) == 8
    store.answer(item.id, "done", "eve", 1)
    assert (eve.left_out(), eve.hidden_now()) == (LeftOut(0, 0), "")


def test_skipping_releases_nothing_but_others_answers_do(store: Store):
    trajectory, chunks = add_trajectory(store, add_problem(store))
    queue = blind_queue(store, chunks[:1])
    item = store.next_item(queue, "eve")
    assert item is not None
    store.skip(item.id, "eve")
    assert is_hidden(store, trajectory, "eve")
    answer_next(store, queue, "bob")
    assert not is_hidden(store, trajectory, "eve")


def test_an_open_queue_that_is_not_blind_hides_nothing(store: Store):
    trajectory, chunks = add_trajectory(store, add_problem(store))
    queue = blind_queue(store, chunks, blind=False)
    store.next_item(queue, "eve")
    assert not is_hidden(store, trajectory, "eve")
    with store.read() as db:
        assert not_hidden(db, "eve", None) == []


def test_what_a_shared_problem_or_prefix_would_give_away_is_hidden(worlds: tuple[Store, Store, Secret]):
    good, _, secret = worlds
    with good.read() as db:
        assert hidden_problems(db, VIEWER, [1, 2]) == {secret.problem}
        assert hidden_prefixes(db, VIEWER, [secret.start, secret.inner]) == {secret.start, secret.inner}
    other = next(i for i in good.trajectory_ids() if i not in (secret.hidden, secret.plain))
    view = good.seen_by(VIEWER).trajectory_view(other)
    assert view is not None and (view.blind, view.reference, view.outcome) == (False, "", "correct")


def test_a_list_keeps_hidden_rows_blank_where_being_there_tells_nothing(worlds: tuple[Store, Store, Secret]):
    good, _, secret = worlds
    rows = {row.id: row for row in good.seen_by(VIEWER).trajectory_page(TrajectoryFilter()).rows}
    row = rows[secret.hidden]
    assert (row.blind, row.outcome, row.answer, row.biggest_drop) == (True, HIDDEN, None, None)
    assert (rows[secret.plain].blind, rows[secret.plain].outcome) == (False, "correct")


def test_a_list_is_counted_as_it_is_listed(worlds: tuple[Store, Store, Secret]):
    for viewer in (VIEWER, "ann"):
        seen = worlds[0].seen_by(viewer)
        for where in LISTS:
            for sort in SORTS:
                listed = len(seen.trajectory_page(where, sort=sort).rows)
                assert seen.count_trajectories(where, sort=sort) == listed, (viewer, where, sort)


def test_a_blind_queues_name_order_and_recipe_are_for_owners_who_do_not_work_in_it(store: Store):
    _, chunks = add_trajectory(store, add_problem(store))
    queue = blind_queue(store, chunks, name="label noise of judge 3", order="label-noise")
    assert store.seen_by("ann").queue(queue).name == "label noise of judge 3"
    store.next_item(queue, "ann")
    for viewer in ("ann", "x @ https://issuer"):
        row = store.seen_by(viewer).queue(queue)
        assert (row.name, row.order, row.recipe) == (f"Queue {queue}", "", {})
    item = store.next_item(queue, "ann")
    assert item is not None and item.queue == f"Queue {queue}"
    store.close_queue(queue, "ann")
    assert store.seen_by("ann").queue(queue).order == "label-noise"
