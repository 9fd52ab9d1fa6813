"""Who may do what is decided in the store: every write that a page can make refuses a reader and says why."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from db.errors import NotAllowedError, StoreError, StoreValueError
from db.queues_store import NewQueue
from db.store import Store
from tests.store_world import BACKENDS, add_problem, add_trajectory, filled, fresh_store

GUEST = "248289761001 @ https://login.example.org"
"""Somebody who signed in and has no role."""


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with fresh_store(request.param, tmp_path) as store:
        yield store


def chunk_of(store: Store) -> int:
    return add_trajectory(store, add_problem(store))[1][0]


def actions(store: Store) -> list[tuple[str, str, str]]:
    return [(entry.actor, entry.action, entry.target) for entry in store.audit()]


def test_unknown_means_reader_for_who_signed_in_and_owner_on_this_machine(store: Store) -> None:
    assert store.role(GUEST) == "reader"
    assert store.role("rosa") == "owner"
    store.set_role("rosa", "annotator", by="ann")
    assert store.role("rosa") == "annotator"


def test_the_first_owner_signed_in_is_named_from_this_machine(store: Store) -> None:
    with pytest.raises(NotAllowedError, match="is a reader; setting roles takes an owner"):
        store.set_role(GUEST, "owner", by=GUEST)
    store.set_role(GUEST, "owner", by="ann", name="Grace")
    store.set_role("other @ https://login.example.org", "annotator", by=GUEST)
    assert [(p.name, p.role, p.set_by) for p in store.people()] == [
        ("Grace", "owner", "ann"),
        ("other", "annotator", GUEST),
    ]
    assert actions(store)[0] == (GUEST, "set role", "person other @ https://login.example.org")
    assert store.audit()[0].detail == {"before": "reader", "after": "annotator"}
    store.set_role(GUEST, "annotator", by="ann")
    assert ("Grace", "annotator") in [(p.name, p.role) for p in store.people()]  # the name that was given


def test_the_only_owner_keeps_the_role(store: Store) -> None:
    store.set_role(GUEST, "owner", by="ann")
    with pytest.raises(NotAllowedError, match="the only owner"):
        store.set_role(GUEST, "reader", by=GUEST)
    assert store.role(GUEST) == "owner" and len(store.audit()) == 1


def test_a_role_that_there_is_not_and_a_role_for_nobody(store: Store) -> None:
    with pytest.raises(StoreValueError, match="a role is one of reader, annotator, owner, not 'god'"):
        store.set_role(GUEST, "god", by="ann")
    with pytest.raises(StoreValueError, match="belongs to somebody"):
        store.set_role("  ", "reader", by="ann")
    assert store.people() == [] and store.audit() == []


def test_an_annotator_reviews_and_neither_adjudicates_nor_starts_runs(store: Store) -> None:
    store.set_role(GUEST, "annotator", by="ann")
    chunk = chunk_of(store)
    store.put_draft(GUEST, chunk, "half")
    row = store.add_review(chunk, "a1", GUEST, -1, "wrong sum")
    store.undo("a2", GUEST, chunk)
    run = store.create_run("sample", {}, "ann")
    for attempt in (
        lambda: store.add_review(chunk, "a3", GUEST, 1, supersedes=row.id, kind="adjudication"),
        lambda: store.create_run("sample", {}, GUEST),
        lambda: store.start_run("import", {}, GUEST, pid=1),
        lambda: store.request_stop(run, GUEST),
        lambda: store.resume_run(run, GUEST),
        lambda: store.set_role(GUEST, "owner", by=GUEST),
    ):
        with pytest.raises(NotAllowedError, match=r"is an annotator; .* takes an owner. An owner sets roles"):
            attempt()
    assert store.run(run).status == "queued" and len(store.runs()) == 1
    assert [entry for entry in actions(store) if entry[0] == GUEST] == [
        (GUEST, "undo", f"chunk {chunk}"),
        (GUEST, "review", f"chunk {chunk}"),
    ]


def test_who_is_no_owner_any_more_takes_no_decision_back(store: Store) -> None:
    chunk = chunk_of(store)
    store.set_role("ann", "owner", by="ann")
    store.set_role(GUEST, "owner", by="ann")
    store.add_review(chunk, "a1", GUEST, -1, kind="adjudication")
    store.set_role(GUEST, "annotator", by="ann")
    with pytest.raises(NotAllowedError, match="is an annotator; adjudicating takes an owner"):
        store.undo("a2", GUEST, chunk)


def test_runs_that_people_start_stop_and_resume_are_on_the_list(store: Store) -> None:
    run = store.create_run("sample", {}, "ann")
    store.request_stop(run, "ann")
    store.seen_by("bob").resume_run(run)
    store.request_stop(run)  # the program itself
    part = store.create_run("sample", {}, GUEST, parent_id=run)
    assert actions(store) == [
        ("bob", "resume run", f"run {run}"),
        ("ann", "stop run", f"run {run}"),
        ("ann", "start run", f"run {run}"),
    ]
    assert store.run(part).parent_id == run


def test_a_page_that_names_nobody_is_refused_by_whose_eyes_it_has(store: Store) -> None:
    run = store.create_run("sample", {}, "ann")
    with pytest.raises(NotAllowedError, match="stopping a run takes an owner"):
        store.seen_by(GUEST).request_stop(run)
    assert store.run(run).status == "queued"


def test_a_refused_write_is_not_on_the_list(store: Store) -> None:
    chunk = chunk_of(store)
    with pytest.raises(NotAllowedError):
        store.add_review(chunk, "a1", GUEST, 1)
    with pytest.raises(StoreError):
        store.undo("a2", "ann", chunk)
    assert store.audit() == [] and store.history(chunk) == []


def test_the_list_pages_backwards_and_says_where_chunks_are(store: Store) -> None:
    trajectory, chunks = add_trajectory(store, add_problem(store))
    for number, chunk in enumerate(chunks):
        store.add_review(chunk, f"a{number}", "ann", 1)
    newest = store.audit(limit=2)
    assert [entry.place for entry in newest] == [(trajectory, 2), (trajectory, 1)]
    [older] = store.audit(before=newest[-1].id, limit=2)
    assert (older.place, older.detail) == ((trajectory, 0), {"verdict": 1})
    assert store.audit(actor="bob") == []


def test_others_writes_are_for_owners(store: Store) -> None:
    chunk = chunk_of(store)
    store.set_role(GUEST, "annotator", by="ann")
    store.add_review(chunk, "a1", GUEST, 1)
    store.add_review(chunk, "a2", "ann", -1)
    assert {entry.actor for entry in store.seen_by(GUEST).audit()} == {GUEST}
    assert store.seen_by(GUEST).audit(actor="ann") == []
    assert {entry.actor for entry in store.seen_by("ann").audit()} == {GUEST, "ann"}


def test_a_blind_queue_keeps_others_writes_from_the_list(store: Store) -> None:
    _, chunks = add_trajectory(store, add_problem(store))
    _, others = add_trajectory(store, add_problem(store, "q"))
    new = NewQueue("suspects", order="reading", chunk_ids=chunks, blind=True, reviews_per_item=2)
    queue = store.make_queue(new, "ann")
    store.add_review(chunks[1], "a1", "ann", -1)
    store.add_review(others[0], "a2", "ann", -1)
    item = store.next_item(queue, "bob")
    assert item is not None
    store.answer(item.id, "b1", "bob", 1)
    seen = store.seen_by("bob").audit()
    assert [(e.actor, e.action, e.target, bool(e.detail)) for e in seen] == [
        ("bob", "review", f"chunk {item.chunk_id}", True),
        ("ann", "review", f"chunk {others[0]}", False),
        ("", "withheld", "in a blind queue", False),
        ("ann", "create queue", f"queue {queue}", False),
    ]
    assert [entry.detail for entry in store.seen_by("ann").audit()][-1]["name"] == "suspects"


def test_chosen_keys_are_stored_and_a_reader_chooses_none(store: Store) -> None:
    store.set_key_bindings("ann", {"next": "n", "undo": "z"})
    assert store.key_bindings("ann") == {"next": "n", "undo": "z"}
    with pytest.raises(NotAllowedError, match="choosing keys takes an annotator"):
        store.set_key_bindings(GUEST, {"next": "n"})
    assert store.key_bindings(GUEST) == {}


MACHINERY = {
    "add_judgments", "add_metrics", "add_problems", "add_rollouts", "add_run_samples", "add_trajectories",
    "add_imported_reviews", "claim_child", "claim_next", "ensure_judge", "ensure_prefixes", "finish_run",
    "heartbeat", "link_prefixes", "mark_stalled", "put_labels", "put_stops", "rebuild_totals", "set_chunk_prefixes",
    "set_run_facts", "set_run_pid", "set_value_prefixes", "set_prefix_errors", "take_worker_lock",
    "beat_worker_lock", "release_worker_lock",
}  # fmt: skip
"""Writes by runs, the worker and imports, which an owner started: no page calls them."""
REFUSED: dict[str, dict[str, object]] = {
    "add_review": {"action_id": "x", "verdict": 1},
    "undo": {"action_id": "x"},
    "put_draft": {"text": "half"},
    "create_run": {"kind": "sample", "recipe": {}},
    "start_run": {"kind": "import", "recipe": {}, "pid": 1},
    "request_stop": {},
    "resume_run": {},
    "set_role": {"actor": "ann", "role": "reader", "by": GUEST},
    "set_key_bindings": {"keys": {"next": "n"}},
    "make_queue": {"new": NewQueue("q")},
    "queue_for_chunks": {"name": "q", "chunk_ids": [1]},
    "close_queue": {},
    "reopen_queue": {},
    "set_guidelines": {"text": "Read it."},
    "next_item": {},
    "answer": {"action_id": "x", "verdict": 1},
    "answer_first_error": {"action_id": "x", "first_error": -1},
    "skip": {},
    "retry_skipped": {},
    "undo_last": {"action_id": "x"},
    "save_search": {"name": "mine", "page": "trajectories", "query": "label=-"},
    "delete_search": {"search_id": 1},
}
"""Writes that pages make, with what a reader would send."""
LOOKS = {"item"}
"""Hands an item out as it shows it, but to a reader only shows it."""


def writes() -> set[str]:
    """Names of the store's public methods that open a write, by themselves or through a private one."""
    sources = {
        name: inspect.getsource(method) for name, method in inspect.getmembers(Store, inspect.isfunction)
    }
    private = [name for name, code in sources.items() if name.startswith("_") and "self.write()" in code]
    opens = ["self.write()", *(f"self.{name}(" for name in private)]
    return {
        name
        for name, code in sources.items()
        if not name.startswith("_") and name != "write" and any(one in code for one in opens)
    }


def test_every_write_is_either_the_machinerys_or_refuses_a_reader() -> None:
    unsorted = writes() - MACHINERY - LOOKS - set(REFUSED)
    assert not unsorted, f"say in this file who may call {sorted(unsorted)}"
    assert writes() >= MACHINERY, f"these write no more: {sorted(MACHINERY - writes())}"


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_reader_is_refused(store: Store, name: str) -> None:
    ids = filled(store)
    mode = "first-error" if name == "answer_first_error" else "chunk"
    new = NewQueue("open", mode=mode, order="reading", chunk_ids=[ids["chunk"]], reviews_per_item=2)
    queue = store.make_queue(new, "ann")
    store.save_search("hers", "trajectories", "", "ann")
    store.set_role(GUEST, "annotator", by="ann")
    held = store.next_item(queue, GUEST)
    assert held is not None
    if name == "undo_last":
        store.answer(held.id, "said", GUEST, 1, supersedes=held.head)
    store.set_role(GUEST, "reader", by="ann")  # while the page was open
    known = {
        "chunk_id": ids["chunk"],
        "run_id": ids["run"],
        "actor": GUEST,
        "queue_id": queue,
        "item_id": held.id,
    }
    method = getattr(store, name)
    wanted = inspect.signature(method).parameters
    given = {key: value for key, value in known.items() if key in wanted} | REFUSED[name]
    before = len(store.audit(limit=500)), len(store.runs()), len(store.history(ids["chunk"]))
    with pytest.raises(NotAllowedError, match="is a reader"):
        method(**given)
    assert before == (len(store.audit(limit=500)), len(store.runs()), len(store.history(ids["chunk"])))


def test_a_reader_who_opens_an_item_takes_it_from_nobody(store: Store) -> None:
    queue = store.make_queue(NewQueue("q", order="reading", chunk_ids=[chunk_of(store)]), "ann")
    first = store.next_item(queue, "ann")
    assert first is not None
    store.skip(first.id, "ann")
    assert store.item(first.id, GUEST).status is None
    assert store.item(first.id, "bob").status == "open"
