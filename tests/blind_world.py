"""Two stores that differ only in what a blind queue hides: outcome, answers, labels, verdicts, rationales, rollouts,
what people said. Whoever works in the queue must read the same from both."""

from __future__ import annotations

from dataclasses import dataclass

from db.queues_store import NewQueue
from db.rows import Label, NewChunk, NewJudgment, NewProblem, NewRollout, NewTrajectory, ReviewDetails
from db.store import Store
from tests.store_world import add_judge, add_prefix, add_run

CANARY = "canary"
"""Every text that must not be read holds it."""
VIEWER = "eve"


@dataclass(frozen=True)
class Secret:
    """Ids; ``hidden``: the trajectory with blind items, ``plain``: one of another problem. (A third, of the hidden
    one's problem, is as open as that one: its own outcome may be read, the reference may not.)"""

    run: int
    problem: int
    hidden: int
    plain: int
    chunks: tuple[int, ...]
    start: int
    inner: int
    rollout: int
    judge: int
    queue: int
    item: int


def blind_world(store: Store, good: bool) -> Secret:
    """Fill an empty store; ``good`` turns every secret around. Eve has one of two items in her hands."""
    word = f"{CANARY}-{good}"
    run = add_run(store)
    problems = store.add_problems(
        [NewProblem("nano", "p", "What is 1 + 1?", word), NewProblem("nano", "q", "What is 2 + 2?", "4")],
        run_id=run,
        actor="ann",
    ).ids
    problem = problems["nano", "p"]
    start, inner = add_prefix(store, problem), add_prefix(store, problem, "inner")
    outcome = "correct" if good else "wrong"
    hidden = store.add_trajectories(
        [
            _solution(problem, word, outcome, prefix_id=start, draw=0, seed=1, token_ids=(1, 2)),
            _solution(problem, "2", "correct", prefix_id=start, draw=1, seed=2, token_ids=(1, 3)),
        ],
        run_id=run,
        actor="ann",
    )[0].id
    plain = store.add_trajectories(
        [_solution(problems["nano", "q"], "4", "correct")], run_id=run, actor="ann"
    )[0].id
    chunks = tuple(chunk.id for chunk in store.stage_trajectories([hidden])[0].chunks)
    store.set_chunk_prefixes([(chunks[0], inner)])
    store.set_value_prefixes([(hidden, start)])
    store.add_rollouts(
        [
            NewRollout(inner, draw, outcome, 3, f"so {word}", word, "stop" if good else "length", draw)
            for draw in range(4)
        ],
        run_id=run,
    )
    _label(store, chunks, good)
    judge = _judge(store, run, chunks, good, word)
    _say(store, chunks, good, word)
    queue = store.make_queue(
        NewQueue("by disagreement", blind=True, chunk_ids=chunks[:2], reviews_per_item=3), "ann"
    )
    store.put_draft("bob", chunks[0], word)
    item = store.next_item(queue, VIEWER)
    assert item is not None
    with store.read() as db:
        rollout = db.exec_driver_sql("SELECT min(id) FROM rollouts").scalar_one()
    return Secret(run, problem, hidden, plain, chunks, start, inner, rollout, judge, queue, item.id)


def _solution(problem: int, answer: str, outcome: str, **more: object) -> NewTrajectory:
    chunks = tuple(NewChunk("<chunk>", f"step {i}", "</chunk>\n") for i in range(3))
    tail = f"\\boxed{{{answer}}}"
    values: dict[str, object] = {"policy": "nano", "finish_reason": "stop", "cutter": "tags"}
    if outcome == "wrong":
        values |= {"finish_reason": "length", "note": CANARY}
    return NewTrajectory(
        problem_id=problem,
        text="".join(c.lead + c.text + c.close for c in chunks) + tail,
        tail=tail,
        chunks=chunks,
        outcome=outcome,
        answer=answer,
        **(values | more),  # type: ignore[arg-type]
    )


def _label(store: Store, chunks: tuple[int, ...], good: bool) -> None:
    sign, other = ("+", "-") if good else ("-", "+")
    low, high = (0.25, 0.75) if good else (0.75, 0.25)
    store.put_labels(
        [
            Label(
                chunk, 1, 4, 3, 4, None, low, high, low - high, high / low, sign, low, sign, low, sign, high
            )
            for chunk in chunks[:2]
        ]
        + [Label(chunks[2], q_before=high, q_after=low, drop=high - low, rel_ratio=other, rel_ratio_conf=low)]
    )


def _judge(store: Store, run: int, chunks: tuple[int, ...], good: bool, word: str) -> int:
    judge, other = add_judge(store), add_judge(store, "other", "e")
    verdicts = ("positive", "negative") if good else ("negative", "positive")
    store.add_judgments(
        [
            NewJudgment(
                judge_id, chunk, draw, verdict, f"because {word}", 5, "stop", draw, 0.9 if good else 0.1
            )
            for chunk in chunks
            for judge_id, verdict in zip((judge, other), verdicts, strict=True)
            for draw in range(2)
        ],
        run_id=run,
    )
    return judge


def _say(store: Store, chunks: tuple[int, ...], good: bool, word: str) -> None:
    """Bob and Ann disagree on one chunk; Eve has said something herself, which she may see."""
    sign = 1 if good else -1
    details = ReviewDetails(flag="flag" if good else "bad-problem", correction=word)
    first = store.add_review(chunks[0], "b1", "bob", -sign, f"first {word}", details=details)
    store.add_review(chunks[0], "b2", "bob", sign, f"then {word}", supersedes=first.id, details=details)
    store.undo("b3", "bob", chunks[0])
    store.add_review(chunks[0], "a1", "ann", sign, word)
    store.add_review(chunks[1], "b4", "bob", sign, word)
    store.add_review(chunks[0], "e1", VIEWER, 1, "eve's own")
