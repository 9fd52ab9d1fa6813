"""The store that ``stepwiser bench ui`` measures: many made-up solutions, written by the store's own methods.

So every cache, total and index is what the program keeps, not what a bench thinks it keeps. Sizes are of ``scale`` 1:
200,000 trajectories, about 1.2 million chunks, a million judgments. Not: what is measured (``ui``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from db.rows import Label, NewChunk, NewJudgment, NewPrefix, NewProblem, NewRollout, NewTrajectory
from db.session import batches
from db.store import Store
from engine.labels import label_row
from engine.values import Value, terminal_value, value_of

PER_PROBLEM = 16
PROBLEMS = 12_500
DRAWS = 4
JUDGED = 250_000
"""Chunks that a judge read, with ``DRAWS`` judgments each."""
REVIEWED = 2_000
LONG = 500
M = 16
BATCH = 1_000
DATASETS = ("sums", "word-problems", "geometry")
POLICIES = ("small", "medium", "large", "tuned")
NAMES = ("Mia", "Noah", "Ada", "Emil", "Ines", "Jonas", "Lena", "Omar", "Rosa", "Tariq")
THINGS = ("apples", "marbles", "stamps", "pencils", "tickets", "shells", "coins", "cards", "books", "beads")
NEEDLE = "三角形"
"""Stands in one problem, one chunk, one rationale and one comment: what a rare search looks for."""
COMMON = "therefore"


@dataclass(frozen=True)
class Made:
    """``long``: the trajectory of 500 chunks; ``judge``: the judge that read ``JUDGED`` chunks."""

    long: int
    judge: int


def make_store(store: Store, scale: float, say: Callable[[str], None]) -> Made:
    """Fill an empty store. ``say`` is told after each part what was written."""
    rng = random.Random(11)
    run = store.start_run("sample", {"kind": "sample", "seed": 11}, "bench", pid=1)
    n_problems = max(4, round(PROBLEMS * scale))
    problems: list[int] = []
    for rows in batches((_problem(i, n_problems) for i in range(n_problems)), BATCH):
        problems += store.add_problems(rows, run_id=run, actor="bench").added
    say(f"{len(problems):,} problems")
    for solutions in batches(_solutions(problems, rng), BATCH):
        store.add_trajectories(solutions, run_id=run, actor="bench")
    say(f"{store.counts()['trajectories']:,} trajectories with {store.counts()['chunks']:,} chunks")
    judge = _judge(store, run)
    _label_and_judge(store, run, judge, round(JUDGED * scale), rng)
    say(f"{store.counts()['judgments']:,} judgments, and the labels")
    _review(store, max(20, round(REVIEWED * scale)), rng)
    long = _long(store, problems[0], run)
    store.finish_run(run, "done", result={})
    return Made(long, judge)


def _problem(i: int, n: int) -> NewProblem:
    rng = random.Random(i)
    name, thing, count = rng.choice(NAMES), rng.choice(THINGS), rng.randrange(2, 90)
    rare = f" ({NEEDLE})" if i == n // 2 else ""
    text = f"{name} has {count} {thing} and buys {rng.randrange(2, 90)} more every day for {rng.randrange(2, 9)} days{rare}. "
    return NewProblem(
        DATASETS[i % 3], f"p{i}", f"{text}How many {thing} does {name} have in the end?", str(count)
    )


def _solutions(problems: list[int], rng: random.Random) -> Iterator[NewTrajectory]:
    for place, problem in enumerate(problems):
        for draw in range(PER_PROBLEM):
            steps = [
                _step(rng, place, i, draw == place == len(problems) // 3) for i in range(rng.randrange(3, 10))
            ]
            outcome = rng.choices(("correct", "wrong", "truncated", "unparsed"), (60, 32, 6, 2))[0]
            yield _trajectory(problem, POLICIES[place % 4], steps, f"solution {draw}", outcome)


def _step(rng: random.Random, place: int, i: int, rare: bool) -> str:
    a, b = rng.randrange(2, 90), rng.randrange(2, 90)
    word = rng.choice(("So", "Then", "Next,", f"And {COMMON}", "Now", "Hence"))
    return (
        f"{word} {rng.choice(NAMES)} puts {a} and {b} {rng.choice(THINGS)} together in step {i + 1} of plan {place}: "
        f"${a} + {b} = {a + b}$, and the number of {rng.choice(THINGS)} stays as it was{NEEDLE if rare else ''}."
    )


def _trajectory(problem: int, policy: str, steps: list[str], tail: str, outcome: str) -> NewTrajectory:
    chunks = tuple(NewChunk("<chunk>", step, "</chunk>\n") for step in steps)
    text = "".join(chunk.lead + chunk.text + chunk.close for chunk in chunks) + tail
    return NewTrajectory(problem, policy, text, tail, chunks, "tags", outcome, "1")


def _judge(store: Store, run: int) -> int:
    return store.ensure_judge(
        name="bench judge",
        kind="generative",
        checkpoint="bench",
        checkpoint_hash="bench",
        prompt_name="judge_nano",
        prompt_hash="bench",
        sampling={"temperature": 1.0},
        sampling_digest="bench",
        run_id=run,
    )


@cache
def _labels(before: Value, after: Value) -> dict[str, Any]:
    return label_row(before, after)


@cache
def _value(k: int) -> Value:
    return value_of({"correct": k, "wrong": M - k})


def _walk(n: int, outcome: str, rng: random.Random) -> list[Value]:
    """Values before the first chunk and after each one; the last is the grade."""
    k = rng.randrange(4, M)
    values = [_value(k)]
    for _ in range(n - 1):
        k = min(M, max(0, k + rng.choice((-6, -1, 0, 0, 1, 1, 2))))
        values.append(_value(k))
    return [*values, terminal_value(outcome)]


def _label_and_judge(store: Store, run: int, judge: int, judged: int, rng: random.Random) -> None:
    """Labels of every chunk; the judge reads the chunks of the newest trajectories."""
    total = store.counts()["chunks"]
    seen = 0
    for trajectories in store.iterate_trajectories(batch=BATCH):
        rows: list[Label] = []
        said: list[NewJudgment] = []
        for one in trajectories:
            values = _walk(len(one.chunks), one.outcome, rng)
            for chunk, before, after in zip(one.chunks, values[:-1], values[1:], strict=True):
                rows.append(Label(chunk_id=chunk.id, **_labels(before, after)))
                seen += 1
                if seen > total - judged:
                    said += [_judgment(judge, chunk.id, draw, chunk.text, rng) for draw in range(DRAWS)]
        store.put_labels(rows)
        store.add_judgments(said, run_id=run)


def _judgment(judge: int, chunk: int, draw: int, text: str, rng: random.Random) -> NewJudgment:
    verdict = rng.choices(("positive", "negative", None), (70, 27, 3))[0]
    rare = NEEDLE if NEEDLE in text and draw == 0 else ""
    rationale = (
        f"Goal: carry out one addition. Check of the arithmetic: “{text[-90:]}” {COMMON if draw else 'so'} the line "
        f"{'holds' if verdict == 'positive' else 'does not hold'}{rare}. \\boxed{{{(verdict or 'Unsure').capitalize()}}}"
    )
    return NewJudgment(judge, chunk, draw, verdict, rationale, 60, "stop", draw)


def _review(store: Store, n: int, rng: random.Random) -> None:
    """Two people, who agree on most of the chunks that both read."""
    ids = store.trajectory_ids()
    for place, trajectory in enumerate(rng.sample(ids, min(n, len(ids)))):
        verdict = rng.choice((1, 1, 1, -1, 0))
        other = verdict if rng.random() < 0.9 else -verdict
        comment = f"read in the bench {NEEDLE}" if place == 0 else rng.choice(("", "looks right to me"))
        rows = [
            {"idx": 0, "verdict": verdict, "comment": comment, "actor": "ann"},
            {"idx": 0, "verdict": other, "comment": "", "actor": "ben"},
        ]
        store.add_imported_reviews(trajectory, rows)


def _long(store: Store, problem: int, run: int) -> int:
    """One trajectory of 500 chunks, every tenth prefix rolled out."""
    rng = random.Random(5)
    steps = [_step(rng, 0, i, False) for i in range(LONG)]
    row = _trajectory(problem, "large", steps, "the long one", "correct")
    long = store.add_trajectories([row], run_id=run, actor="bench")[0].id
    [whole] = store.stage_trajectories([long])
    values = _walk(LONG, "correct", rng)
    for chunk in whole.chunks[:-1:10]:
        key = f"bench-{chunk.id}"
        prefix = NewPrefix(key, problem, "large", "bench", {"temperature": 1.0}, (1, 2, 3), chunk.id)
        which = store.ensure_prefixes([prefix])[key]
        store.set_chunk_prefixes([(chunk.id, which)])
        store.add_rollouts([_rollout(which, draw, rng) for draw in range(M)], run_id=run)
    store.put_labels(
        Label(chunk_id=chunk.id, **_labels(before, after))
        for chunk, before, after in zip(whole.chunks, values[:-1], values[1:], strict=True)
    )
    return long


def _rollout(prefix: int, draw: int, rng: random.Random) -> NewRollout:
    right = rng.random() < 0.6
    text = f"So the rest follows.</chunk>\n\\boxed{{{1 if right else 2}}}"
    return NewRollout(
        prefix, draw, "correct" if right else "wrong", 12, text, "1" if right else "2", "stop", draw
    )
