"""Two annotators at once, beside a run that writes rollouts at full speed: how long a review's write waits."""

from __future__ import annotations

import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any
from uuid import uuid4

from app.bench import Bar
from app.bench.ui_store import M, Made
from app.launcher import LaunchError
from db.errors import StoreLockedError
from db.rows import NewPrefix, NewRollout
from db.store import Store, open_store

REVIEWS = 400
"""By each of the two."""
PAUSE_S = 0.02
BATCH = 64
"""Rollouts of one transaction, as a run writes them."""


def review_writes(store: Store, made: Made) -> list[Bar]:
    """Bars: 99th percentile of a review's write, and how often somebody was told that the store is locked."""
    url = str(store.engine.url)
    [whole] = store.stage_trajectories([made.long])
    chunks = [chunk.id for chunk in whole.chunks]
    # The run is a process of its own, as every run is; the annotators share one, as they share the pages'.
    processes = get_context("spawn")
    done, written = processes.Event(), processes.Value("q", 0)
    writer = processes.Process(target=_roll_out, args=(url, whole.problem_id, done, written))
    writer.start()
    waits: list[float] = []
    locked = 0
    try:
        while writer.is_alive() and not written.value:
            time.sleep(0.05)
        with ThreadPoolExecutor(2) as pool:
            for seconds, refused in pool.map(
                lambda who: _review(url, who, chunks), ("annotator 1", "annotator 2")
            ):
                waits += seconds
                locked += refused
        alive = writer.is_alive()
    finally:
        done.set()
        writer.join()
    if not alive:
        raise LaunchError("the run that writes rollouts beside the reviews failed; its error stands above")
    rollouts = written.value
    p99 = statistics.quantiles(waits, n=100, method="inclusive")[98]
    return [
        Bar(f"a review's write beside {rollouts:,} rollouts, p99 s", p99, 0.1, "<="),
        Bar('"database is locked", times', float(locked), 0.0, "<="),
    ]


def _review(url: str, actor: str, chunks: list[int]) -> tuple[list[float], int]:
    store = open_store(url)
    rng = random.Random(actor)
    seconds: list[float] = []
    locked = 0
    for number in range(REVIEWS):
        chunk = chunks[number % len(chunks)]
        head = store.chain_head(chunk, actor)
        start = time.perf_counter()
        try:
            store.add_review(
                chunk, uuid4().hex, actor, rng.choice((1, -1)), "seen", supersedes=head.id if head else None
            )
        except StoreLockedError:
            locked += 1
        seconds.append(time.perf_counter() - start)
        time.sleep(PAUSE_S)
    store.close()
    return seconds, locked


def _roll_out(url: str, problem: int, done: Any, written: Any) -> None:
    """Writes batches of rollouts, one straight after another, until ``done``; counts them in ``written``."""
    store = open_store(url)
    run = store.start_run("rollout", {"kind": "rollout", "seed": 0}, "bench", pid=1)
    number = 0
    while not done.is_set():
        keys = [f"bench-write-{uuid4().hex}" for _ in range(BATCH // M)]
        new = [
            NewPrefix(key, problem, "large", "bench", {"temperature": 1.0}, (1, 2, 3), number + i)
            for i, key in enumerate(keys)
        ]
        prefixes = store.ensure_prefixes(new, run_id=run)
        rows = [
            NewRollout(
                prefix,
                draw,
                "correct" if draw % 3 else "wrong",
                60,
                "So it follows. " * 20,
                "1",
                "stop",
                draw,
            )
            for prefix in prefixes.values()
            for draw in range(M)
        ]
        written.value += store.add_rollouts(rows, run_id=run)
        number += len(keys)
    store.finish_run(run, "done", result={})
    store.close()
