"""A store in which three people, two judges and a rule speak of the same chunks, and a table of what each said.

For the tests of agreement, comparison and adjudication: what the pages show is worked out again from the table.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from db.queue_rows import NewQueue
from db.rows import Label, NewJudgment, NewProblem
from db.store import Store
from tests.store_world import add_run, solution

PROBLEMS, STEPS = 10, 4
PEOPLE = {"ada": 0.9, "bob": 0.8}
"""How often each is right about a chunk; cyd reviews few, and outside the queue."""
VERDICTS = {"+": 1, "-": -1, "0": 0, "?": None}
RATIONALE = "Goal: one step.\nCheck of chunk {chunk} by {name}, draw {draw}: it {does}.\n\\boxed{{{verdict}}}"


@dataclass
class Raters:
    """Ids, and ``said[rater][chunk id]`` as texts of ``db.agreement_reads`` (``person:ada``, ``judge:1``, …)."""

    queue: int
    judges: tuple[int, int]
    runs: tuple[int, int]
    chunks: list[int]
    problem_of: dict[int, int]
    place_of: dict[int, tuple[int, int]]
    said: dict[str, dict[int, str]] = field(default_factory=dict)

    @property
    def disputed(self) -> list[int]:
        """Chunks of which somebody says + and somebody −."""
        found = []
        for chunk in self.chunks:
            given = {by[chunk] for who, by in self.said.items() if who.startswith("person:") and chunk in by}
            if {"+", "-"} <= given:
                found.append(chunk)
        return found

    def pairs(self, first: str, second: str, classes: str = "+-") -> list[tuple[int, str, str]]:
        """(chunk, what the first said, what the second said) where both gave one of the ``classes``."""
        one, other = self.said[first], self.said[second]
        return [
            (chunk, one[chunk], other[chunk])
            for chunk in self.chunks
            if one.get(chunk, "") in classes and other.get(chunk, "") in classes
            if chunk in one and chunk in other
        ]


def fill_raters(store: Store, seed: int = 4) -> Raters:
    """Write it all, through the store's own methods."""
    rng = random.Random(seed)
    found = _chunks(store)
    truth = {chunk: "-" if rng.random() < 0.4 else "+" for chunk in found.chunks}
    _labels(store, found, truth, rng)
    _judge(store, found, truth, rng)
    for actor, skill in PEOPLE.items():
        said = {
            chunk: rng.choice("0?") if rng.random() < 0.12 else _noisy(truth[chunk], skill, rng)
            for chunk in found.chunks
        }
        found.said[f"person:{actor}"] = said
        while (item := store.next_item(found.queue, actor)) is not None:
            assert item.chunk_id is not None
            comment = f"{actor} on chunk {item.chunk_id}"
            store.answer(
                item.id, f"{actor}-{item.id}", actor, VERDICTS[said[item.chunk_id]], comment, supersedes=None
            )
    few = found.chunks[::5]
    found.said["person:cyd"] = {chunk: _noisy(truth[chunk], 0.6, rng) for chunk in few}
    for chunk, sign in found.said["person:cyd"].items():
        store.add_review(chunk, f"cyd-{chunk}", "cyd", VERDICTS[sign])
    found.said["people"] = {chunk: _consensus(found, chunk) for chunk in found.chunks}
    return found


def _noisy(sign: str, skill: float, rng: random.Random) -> str:
    return sign if rng.random() < skill else "+-"[sign == "+"]


def _consensus(found: Raters, chunk: int) -> str:
    given = [by[chunk] for who, by in found.said.items() if who.startswith("person:") and chunk in by]
    signs = {sign for sign in given if sign in "+-"}
    return signs.pop() if len(signs) == 1 else "?"


def _chunks(store: Store) -> Raters:
    ids = store.add_problems(
        [NewProblem("raters", f"r-{i}", f"Problem {i}: add the numbers.", "2") for i in range(PROBLEMS)],
        run_id=None,
        actor="ann",
    ).ids
    rows = [
        solution(ids["raters", f"r-{i}"], steps=STEPS, words=f"<b>r{i}</b> step") for i in range(PROBLEMS)
    ]
    stored = [one.id for one in store.add_trajectories(rows, run_id=None, actor="ann")]
    wholes = store.stage_trajectories(stored)
    chunks = [chunk.id for whole in wholes for chunk in whole.chunks]
    queue = store.make_queue(
        NewQueue("double <i>read</i>", order="reading", chunk_ids=chunks, reviews_per_item=3), "ann"
    )
    return Raters(
        queue,
        (0, 0),
        (add_run(store, "judge"), add_run(store, "judge")),
        chunks,
        {chunk.id: whole.problem_id for whole in wholes for chunk in whole.chunks},
        {chunk.id: (whole.id, chunk.idx) for whole in wholes for chunk in whole.chunks},
    )


def _labels(store: Store, found: Raters, truth: dict[int, str], rng: random.Random) -> None:
    signs = {chunk: _noisy(truth[chunk], 0.85, rng) for chunk in found.chunks if rng.random() < 0.9}
    found.said["rule:rel-ratio"] = signs
    store.put_labels(
        [
            Label(chunk, rel_ratio=signs.get(chunk), abs_q="+" if chunk in signs else None)
            for chunk in found.chunks
        ]
    )


def _judge(store: Store, found: Raters, truth: dict[int, str], rng: random.Random) -> None:
    """A weak judge reads every chunk in the first run, a better one every third not, in the second."""
    ids = []
    for place, (name, skill) in enumerate((("weak <i>judge</i>", 0.65), ("better judge", 0.85))):
        judge = store.ensure_judge(
            name=name,
            kind="generative",
            checkpoint="nano",
            checkpoint_hash=name,
            prompt_name="judge_nano",
            prompt_hash="p",
            sampling={},
            sampling_digest="s",
        )
        ids.append(judge)
        said: dict[int, str] = {}
        rows = []
        for number, chunk in enumerate(found.chunks):
            if place and number % 3 == 2:
                continue
            none = rng.random() < 0.1
            said[chunk] = "?" if none else _noisy(truth[chunk], skill, rng)
            for draw in range(3):
                verdict = None if none else {"+": "positive", "-": "negative"}[said[chunk]]
                rows.append(_judgment(judge, chunk, draw, verdict, name))
        store.add_judgments(rows, run_id=found.runs[place])
        found.said[f"judge:{judge}"] = said
        found.said[f"run:{found.runs[place]}"] = said
    found.judges = (ids[0], ids[1])


def _judgment(judge: int, chunk: int, draw: int, verdict: str | None, name: str) -> NewJudgment:
    text = RATIONALE.format(
        chunk=chunk,
        name=name,
        draw=draw,
        does="does not hold" if verdict == "negative" else "holds",
        verdict=(verdict or "nothing").capitalize(),
    )
    return NewJudgment(judge, chunk, draw, verdict, text, 20, "stop", draw)
