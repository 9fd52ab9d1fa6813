"""Stores for the tests of db/: one suite over SQLite and, where STEPWISER_TEST_POSTGRES_URL is set, PostgreSQL.

The URL names a server on which the tests may create databases; every test gets one of its own.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from uuid import uuid4

from sqlalchemy import create_engine, make_url, text

from db.rows import Label, NewChunk, NewJudgment, NewPrefix, NewProblem, NewRollout, NewTrajectory
from db.store import Store, open_store

POSTGRES = os.environ.get("STEPWISER_TEST_POSTGRES_URL", "")
BACKENDS = ["sqlite", *(["postgresql"] if POSTGRES else [])]


@contextmanager
def fresh_url(backend: str, folder: Path, template: str = "") -> Iterator[str]:
    """The URL of an empty database; on PostgreSQL one like ``template``, if one is named."""
    if backend == "sqlite":
        yield f"sqlite:///{folder / f'{uuid4().hex}.db'}"
        return
    server = make_url(POSTGRES).set(drivername="postgresql+psycopg")
    name = f"stepwiser_test_{uuid4().hex[:12]}"
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}" + (f" TEMPLATE {template}" if template else "")))
    try:
        yield server.set(database=name).render_as_string(hide_password=False)
    finally:
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        admin.dispose()


@lru_cache(maxsize=1)
def _empty_on_server() -> str:
    """The name of a database at the current schema, kept until the tests end."""
    kept = ExitStack()
    atexit.register(kept.close)
    url = kept.enter_context(fresh_url("postgresql", Path()))
    open_store(url, migrate=True).close()
    return make_url(url).database or ""


@lru_cache(maxsize=1)
def _empty_database() -> Path:
    path = Path(tempfile.mkdtemp(prefix="stepwiser-empty-")) / "empty.db"
    atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
    open_store(f"sqlite:///{path}", migrate=True).close()
    return path


def new_store(path: Path) -> Store:
    """An empty SQLite store at the current schema. Migrated once, then copied: most of a small test's time."""
    shutil.copy(_empty_database(), path)
    return open_store(f"sqlite:///{path}")


@contextmanager
def fresh_store(backend: str, folder: Path) -> Iterator[Store]:
    """An empty store at the current schema."""
    template = _empty_on_server() if backend == "postgresql" else ""
    with fresh_url(backend, folder, template) as url:
        sqlite = backend == "sqlite"
        store = new_store(Path(make_url(url).database or "")) if sqlite else open_store(url, migrate=True)
        try:
            yield store
        finally:
            store.close()


def add_run(store: Store, kind: str = "sample") -> int:
    """A run that is done."""
    run_id = store.start_run(kind, {"kind": kind, "seed": 0}, "ann", pid=1)
    store.finish_run(run_id, "done")
    return run_id


def add_problem(store: Store, key: str = "p", text_: str = "What is 1 + 1?", dataset: str = "nano") -> int:
    return store.add_problems([NewProblem(dataset, key, text_, "2")], run_id=None, actor="ann").ids[
        dataset, key
    ]


def add_prefix(store: Store, problem_id: int, key: str = "start") -> int:
    row = NewPrefix(key, problem_id, "nano", "weights", {"temperature": 1.0}, (1, 2, 2**32 - 1), 1000)
    return store.ensure_prefixes([row])[key]


def solution(problem_id: int, *, steps: int = 3, words: str = "step", **more: object) -> NewTrajectory:
    """A solution of a few chunks; sampled if ``prefix_id`` and ``draw`` are given."""
    chunks = tuple(
        NewChunk("<chunk>", f"{words} {i}", "</chunk>\n", token_end=4 * (i + 1)) for i in range(steps)
    )
    text_ = "".join(c.lead + c.text + c.close for c in chunks) + "\\boxed{2}"
    values: dict[str, object] = {"policy": "nano", "outcome": "correct", "answer": "2", "cutter": "tags"}
    return NewTrajectory(
        problem_id=problem_id, text=text_, tail="\\boxed{2}", chunks=chunks, **(values | more)
    )  # type: ignore[arg-type]


def rollout(prefix_id: int, draw: int, outcome: str = "correct") -> NewRollout:
    return NewRollout(prefix_id, draw, outcome, 7, f"text {draw}", "2", "stop", 1000 + draw)


def add_trajectory(store: Store, problem_id: int, **more: object) -> tuple[int, list[int]]:
    """(trajectory id, its chunks' ids)."""
    id_ = store.add_trajectories([solution(problem_id, **more)], run_id=None, actor="ann")[0].id
    return id_, [chunk.id for chunk in store.stage_trajectories([id_])[0].chunks]


def add_judge(store: Store, name: str = "judge", digest: str = "d") -> int:
    return store.ensure_judge(
        name=name,
        kind="generative",
        checkpoint="nano",
        checkpoint_hash="weights",
        prompt_name="judge_nano",
        prompt_hash="prompt",
        sampling={},
        sampling_digest=digest,
    )


def judgment(judge_id: int, chunk_id: int, draw: int, verdict: str | None) -> NewJudgment:
    return NewJudgment(judge_id, chunk_id, draw, verdict, "because", 5, "stop", draw)


def filled(store: Store) -> dict[str, int]:
    """One of everything: three sampled solutions, one by hand, rollouts, labels, two judges, reviews, metrics."""
    run_id = add_run(store)
    store.add_metrics(run_id, [("reward", 1, 0.5), ("reward", 2, float("nan"))])
    problem, other = add_problem(store), add_problem(store, "h", "求最大值 $x^2$", dataset="handwritten")
    start, inner = add_prefix(store, problem), add_prefix(store, problem, "inner")
    rows = [
        solution(
            problem,
            prefix_id=start,
            draw=draw,
            seed=1000 + draw,
            token_ids=(5, 6, draw),
            finish_reason="stop",
            checkpoint_hash="weights",
            outcome=("correct", "wrong", "truncated")[draw],
        )
        for draw in range(3)
    ]
    sampled = [stored.id for stored in store.add_trajectories(rows, run_id=run_id, actor="ann")]
    human = store.add_trajectories([solution(other, policy="human")], run_id=None, actor="ann")[0].id
    chunks = [chunk.id for chunk in store.stage_trajectories([sampled[0]])[0].chunks]
    store.set_chunk_prefixes([(chunks[0], inner)])
    store.set_value_prefixes([(sampled[0], start)])
    store.add_rollouts([rollout(inner, j, "wrong" if j % 4 else "correct") for j in range(8)], run_id=run_id)
    label = {"q_before": 0.5, "abs_q": "+", "rel_effective": "+", "rel_ratio_conf": 0.75}
    store.put_labels(
        [
            Label(chunks[0], q_after=0.25, drop=0.25, rel_ratio="-", **label),
            Label(chunks[1], q_after=0.75, drop=-0.25, rel_ratio="+", **label),
        ]
    )
    judges = [add_judge(store), add_judge(store, "other", "e")]
    rows_ = [judgment(judges[0], chunks[0], draw, "positive") for draw in range(3)]
    store.add_judgments([*rows_, judgment(judges[1], chunks[1], 0, None)], run_id=run_id)
    first = store.add_review(chunks[0], "a1", "ann", -1, "wrong sum")
    store.add_review(chunks[0], "a2", "ann", 1, "no, right", supersedes=first.id)
    store.undo("a3", "ann", chunks[0])
    store.add_review(chunks[1], "b1", "bob", 1)
    return {
        "run": run_id,
        "problem": problem,
        "start": start,
        "inner": inner,
        "sampled": sampled[0],
        "human": human,
        "chunk": chunks[0],
    }
