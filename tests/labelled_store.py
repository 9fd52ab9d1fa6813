"""A small store of imported solutions with rollouts, for tests of what follows from labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from db.rows import NewChunk, NewPrefix, NewProblem, NewRollout, NewTrajectory
from db.store import Store
from tests.store_world import new_store


def store_with(folder: Path, successes: Sequence[tuple[int, int]]) -> tuple[Store, list[int]]:
    """A problem a pair, each with one imported solution of three chunks; the pair: right rollouts of 16 after the
    first and the second chunk. Returns the store and all chunk ids in order."""
    store = new_store(folder / "store.db")
    return store, fill_store(store, successes)


def fill_store(store: Store, successes: Sequence[tuple[int, int]]) -> list[int]:
    """The same in a store that is there. Returns all chunk ids in order."""
    run = store.start_run("rollout", {"kind": "rollout", "seed": 0}, "ada", pid=1)
    problems = [NewProblem("d", f"p{i}", f"Problem {i}?", "1") for i in range(len(successes))]
    ids = store.add_problems(problems, run_id=run, actor="ada").ids
    chunk_ids: list[int] = []
    for i, pair in enumerate(successes):
        problem = ids["d", f"p{i}"]
        chunks = tuple(NewChunk("", f"step {k} of {i}") for k in range(3))
        text = "".join(chunk.text for chunk in chunks)
        row = NewTrajectory(problem, "human", text, "", chunks, "blank-line", "correct", "1")
        (stored,) = store.add_trajectories([row], run_id=run, actor="ada")
        whole = store.stage_trajectories([stored.id])[0]
        chunk_ids += [chunk.id for chunk in whole.chunks]
        keys = [f"{i}/{k}" for k in range(3)]
        prefixes = store.ensure_prefixes(
            [NewPrefix(key, problem, "nano", "c0ffee", {}, (1,), base_seed=7) for key in keys]
        )
        for key, right in zip(keys, (8, *pair), strict=True):
            store.add_rollouts(
                [
                    NewRollout(
                        prefixes[key], j, "correct" if j < right else "wrong", 1, "", None, "stop", seed=7 + j
                    )
                    for j in range(16)
                ],
                run_id=run,
            )
        store.set_chunk_prefixes(
            [(chunk.id, prefixes[key]) for chunk, key in zip(whole.chunks[:2], keys[1:], strict=True)]
        )
        store.set_value_prefixes([(whole.id, prefixes[keys[0]])])
    return chunk_ids
