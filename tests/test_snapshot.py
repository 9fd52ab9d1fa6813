"""Snapshots: everything of a data set arrives in another store under new ids, once; broken files load nothing."""

from __future__ import annotations

import json
import lzma
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from db.check import check
from db.errors import SnapshotError
from db.imported_reviews import ImportedReview
from db.rows import NewChunk, NewProblem
from db.snapshot import dump, load
from db.snapshot_load import TABLES, _Loader
from db.store import Store
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


@pytest.fixture(params=BACKENDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Another store, whose ids have run ahead."""
    with fresh_store(request.param, tmp_path) as store:
        for i in range(3):
            add_trajectory(store, add_problem(store, f"own {i}", dataset="own"), steps=7, words=f"own {i}")
        add_run(store)
        yield store
        assert check(store) == []


def contents(store: Store, dataset: str) -> list[Any]:
    """All that a data set holds, without ids."""
    found: list[Any] = []
    for (whole,) in store.iterate_trajectories(batch=1, dataset=dataset):
        view = store.trajectory_view(whole.id)
        assert view is not None
        bare = replace(
            view, id=0, problem_id=0, prefix_id=0, value_prefix_id=bool(view.value_prefix_id), run_id=0
        )
        found.append((bare, whole.text, whole.token_ids, list(store.votes_of(whole.id).values())))
        for chunk in store.chunk_page(whole.id):
            label = replace(chunk.label, chunk_id=0) if chunk.label else None
            found.append((chunk.text, label))
            found += [replace(j, id=0, judge_id=0, run_id=0) for j in store.judgments_of(chunk.id)]
            for step in store.history(chunk.id):
                row = step.review
                found.append((row.actor, row.kind, row.verdict, row.comment, row.created_at, step.in_force))
            if chunk.prefix_id is not None:
                prefix = store.prefixes([chunk.prefix_id])[chunk.prefix_id]
                found.append((prefix.token_ids, prefix.base_seed, prefix.key))
                for r in store.rollouts_of(chunk.prefix_id):
                    text = store.rollout_text(r.id)
                    assert text is not None
                    found.append(replace(text, id=0, prefix_id=0, run_id=0))
    return found


def test_a_data_set_arrives_whole_under_new_ids(store: Store, target: Store, tmp_path: Path):
    ids = filled(store)
    store.put_stops([ids["inner"]], 32, ["abs-q"], run_id=ids["run"])
    path = tmp_path / "all.xz"
    written = dump(store, path)
    assert list(written) == list(TABLES) and all(written.values())
    loaded = load(target, path)
    assert loaded.added == written and loaded.left_out == 0
    for dataset in ("nano", "handwritten"):
        assert contents(target, dataset) == contents(store, dataset)
    assert target.counts()["trajectories"] == 4 + 3
    (run,) = target.runs(1)
    assert [m.value for m in target.metrics(run.id)["reward"]] == [0.5, None]
    sampled = store.label_inputs(store.trajectory_ids(policy="nano"))
    arrived = target.label_inputs(target.trajectory_ids(policy="nano", dataset="nano"))
    assert [i.sample_counts for i in arrived] == [i.sample_counts for i in sampled]


def test_loading_twice_adds_nothing(store: Store, target: Store, tmp_path: Path):
    filled(store)
    path = tmp_path / "all.xz"
    dump(store, path)
    load(target, path)
    before = (contents(target, "nano"), target.totals())
    again = load(target, path)
    assert set(again.added.values()) == {0} and again.left_out == 0
    assert (contents(target, "nano"), target.totals()) == before
    assert set(load(store, path).added.values()) == {0}


def test_only_the_data_sets_that_were_asked_for(store: Store, target: Store, tmp_path: Path):
    filled(store)
    path = tmp_path / "hand.xz"
    written = dump(store, path, datasets=["handwritten"])
    assert (written["problems"], written["trajectories"], written["rollouts"], written["runs"]) == (
        1,
        1,
        0,
        0,
    )
    load(target, path)
    assert target.datasets() == ["handwritten", "own"]
    with pytest.raises(SnapshotError, match="no data set 'none' in this store; nothing was written"):
        dump(store, tmp_path / "none.xz", datasets=["none"])
    assert not (tmp_path / "none.xz").exists() and not list(tmp_path.glob("*.part"))


def test_what_was_added_since_is_added_to_what_is_there(store: Store, target: Store, tmp_path: Path):
    ids = filled(store)
    dump(store, tmp_path / "early.xz")
    load(target, tmp_path / "early.xz")
    store.add_rollouts([rollout(ids["inner"], j) for j in range(8, 16)], run_id=ids["run"])
    store.add_review(ids["chunk"] + 2, "late", "ann", 1)
    dump(store, tmp_path / "late.xz")
    added = load(target, tmp_path / "late.xz").added
    assert {name: n for name, n in added.items() if n} == {"rollouts": 8, "rollout_texts": 8, "reviews": 1}
    assert contents(target, "nano") == contents(store, "nano")


def test_the_stores_own_rows_win_and_nothing_is_hung_on_a_stranger(
    store: Store, target: Store, tmp_path: Path
):
    filled(store)
    dump(store, tmp_path / "all.xz")
    target.add_problems([NewProblem("handwritten", "h", "another text", "1")], run_id=None, actor="bob")
    problem = add_problem(target)
    start = add_prefix(target, problem)
    mine = solution(problem, prefix_id=start, draw=0, words="my own", token_ids=(1,), steps=2)
    (stored,) = target.add_trajectories([mine], run_id=None, actor="bob")
    add_judge(target, "judge", "other")
    loaded = load(target, tmp_path / "all.xz")
    assert loaded.left_out > 0
    assert target.stage_trajectories([stored.id])[0].text.startswith("<chunk>my own")
    assert target.reviews_of(stored.id) == [] and target.votes_of(stored.id) == {}
    assert loaded.added["trajectories"] == 2 and loaded.added["rollouts"] == 8
    assert [judge.name for judge in target.judges()] == ["judge", "judge (2)", "other"]
    assert target.problems(target.problem_ids("handwritten"))[0].text == "another text"


def test_a_persons_own_review_stays_the_head(store: Store, target: Store, tmp_path: Path):
    ids = filled(store)
    dump(store, tmp_path / "all.xz")
    load(target, tmp_path / "all.xz")
    where = {t.draw: t for (t,) in target.iterate_trajectories(batch=1, policy="nano", dataset="nano")}
    chunk = where[0].chunks[0].id
    head = target.chain_head(chunk, "ann")
    assert head is not None
    mine = target.add_review(chunk, "here", "ann", 0, supersedes=head.id)
    there = store.chain_head(ids["chunk"], "ann")
    assert there is not None
    store.add_review(ids["chunk"], "there", "ann", 1, supersedes=there.id)
    dump(store, tmp_path / "more.xz")
    assert load(target, tmp_path / "more.xz").left_out == 1
    assert target.chain_head(chunk, "ann") == mine


def test_a_review_that_is_given_while_a_snapshot_is_loaded_is_counted_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    _, chunks = add_trajectory(store, add_problem(store))
    with fresh_store("sqlite", tmp_path) as other:
        _, theirs = add_trajectory(other, add_problem(other))
        other.add_review(theirs[0], "ann-1", "ann", 1)
        dump(other, tmp_path / "theirs.xz")
    finish = _Loader.finish
    with ThreadPoolExecutor(1) as pool:
        waiting: list[Any] = []

        def late(loader: _Loader) -> None:
            waiting.append(pool.submit(store.add_review, chunks[0], "bob-1", "bob", -1))
            time.sleep(0.3)
            finish(loader)

        monkeypatch.setattr(_Loader, "finish", late)
        load(store, tmp_path / "theirs.xz")
        assert waiting[0].result().actor == "bob"
    assert check(store) == []


@pytest.mark.parametrize("imported_first", [True, False])
def test_reviews_that_both_stores_imported_for_other_solutions_are_all_kept(
    store: Store, tmp_path: Path, imported_first: bool
):
    with fresh_store("sqlite", tmp_path) as other:
        theirs, _ = add_trajectory(other, add_problem(other, dataset="theirs"))
        other.add_imported_reviews(theirs, [ImportedReview(0, -1, "theirs", "human")])
        dump(other, tmp_path / "theirs.xz")
    mine, _ = add_trajectory(store, add_problem(store, dataset="mine"))
    assert mine == theirs
    rows = [ImportedReview(0, 1, "mine", "human")]
    if imported_first:
        store.add_imported_reviews(mine, rows)
    assert load(store, tmp_path / "theirs.xz").added["reviews"] == 1
    assert store.add_imported_reviews(mine, rows) == (0 if imported_first else 1)
    assert load(store, tmp_path / "theirs.xz").added["reviews"] == 0
    said = {step.review.comment for id_ in store.trajectory_ids() for step in store.reviews_of(id_)}
    assert said == {"mine", "theirs"} and check(store) == []


def test_a_run_that_was_going_on_arrives_stopped(store: Store, target: Store, tmp_path: Path):
    run = store.create_run("sample", {"seed": 1}, "ann")
    store.claim_next(pid=7)
    store.add_problems([NewProblem("live", "1", "x", "1")], run_id=run, actor="ann")
    dump(store, tmp_path / "live.xz")
    load(target, tmp_path / "live.xz")
    (arrived,) = target.runs(1)
    assert (arrived.status, arrived.pid, arrived.recipe) == ("stopped", None, {"seed": 1})
    assert target.claim_next(pid=8) is None


def broken_files(good: bytes) -> dict[str, bytes]:
    lines = lzma.decompress(good).decode().splitlines()
    place = next(i for i, line in enumerate(lines) if '"table": "rollouts"' in line)
    pack = lambda rows: lzma.compress("\n".join(rows).encode())  # noqa: E731
    return {
        "not xz": b"plain text",
        "cut": good[: len(good) // 2],
        "empty": lzma.compress(b""),
        "other format": pack(['{"format": "something"}']),
        "newer": pack(['{"format": "stepwiser-snapshot", "version": 99}', *lines[1:]]),
        "unknown table": pack([*lines, '{"table": "sqlite_master", "columns": []}']),
        "missing value": pack([*lines[: place + 1], "[1, 2]", *lines[place + 1 :]]),
        "not json": pack([*lines[: place + 2], "{", *lines[place + 2 :]]),
    }


@pytest.mark.parametrize("damage", broken_files(lzma.compress(b'{"table": "rollouts"}')))
def test_a_broken_file_loads_nothing_and_is_named(store: Store, target: Store, tmp_path: Path, damage: str):
    filled(store)
    dump(store, tmp_path / "good.xz")
    path = tmp_path / "broken.xz"
    path.write_bytes(broken_files((tmp_path / "good.xz").read_bytes())[damage])
    before = target.totals()
    with pytest.raises(SnapshotError, match=r"broken.xz"):
        load(target, path)
    assert target.totals() == before and target.datasets() == ["own"]


def test_a_missing_file_and_a_missing_folder(store: Store, tmp_path: Path):
    with pytest.raises(SnapshotError, match=r"nowhere.xz: the snapshot cannot be read"):
        load(store, tmp_path / "nowhere.xz")
    with pytest.raises(SnapshotError, match=r"cannot be written"):
        dump(store, tmp_path / "no" / "folder.xz")


def test_the_same_store_gives_the_same_file(store: Store, tmp_path: Path):
    filled(store)
    dump(store, tmp_path / "a.xz")
    dump(store, tmp_path / "b.xz")
    assert (tmp_path / "a.xz").read_bytes() == (tmp_path / "b.xz").read_bytes()
    head = json.loads(lzma.decompress((tmp_path / "a.xz").read_bytes()).decode().splitlines()[0])
    assert head == {"format": "stepwiser-snapshot", "version": 1}


def test_a_solution_that_is_cut_elsewhere_here_keeps_its_chunks(store: Store, target: Store, tmp_path: Path):
    _, chunks = add_trajectory(store, add_problem(store), steps=5)
    judge = add_judge(store)
    store.add_judgments([judgment(judge, chunk, 0, "positive") for chunk in chunks], run_id=add_run(store))
    here = solution(add_problem(target), steps=5)
    pieces = ["".join(c.lead + c.text + c.close for c in part) for part in (here.chunks[:2], here.chunks[2:])]
    halves = tuple(NewChunk("", piece, "") for piece in pieces)
    target.add_trajectories([replace(here, chunks=halves, cutter="lines")], run_id=None, actor="bob")
    dump(store, tmp_path / "five.xz")
    loaded = load(target, tmp_path / "five.xz")
    assert loaded.added["chunks"] == loaded.added["judgments"] == 0 and loaded.left_out > 0
    assert check(target) == []


@pytest.mark.parametrize(("answer", "meta"), [("3", {}), ("2", {"verifier": "text"})])
def test_a_problem_that_is_graded_otherwise_here_gets_no_rollouts(
    store: Store, target: Store, tmp_path: Path, answer: str, meta: dict[str, str]
):
    start = add_prefix(store, add_problem(store))
    store.add_rollouts([rollout(start, 0)], run_id=add_run(store))
    target.add_problems([NewProblem("nano", "p", "What is 1 + 1?", answer, meta)], run_id=None, actor="bob")
    dump(store, tmp_path / "two.xz")
    loaded = load(target, tmp_path / "two.xz")
    assert loaded.added["rollouts"] == loaded.added["prefixes"] == 0 and loaded.left_out > 0
