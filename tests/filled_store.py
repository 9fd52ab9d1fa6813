"""A small store with everything the pages show, written through the store's own methods. For page and browser tests."""

from __future__ import annotations

import atexit
import random
import shutil
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from db.rows import Label, NewChunk, NewJudgment, NewPrefix, NewProblem, NewRollout, NewTrajectory
from db.store import Store
from engine.chunks import cut_best
from engine.labels import label_row
from engine.values import Value, leave_one_out, terminal_value, value_of
from tests.store_world import new_store

M = 16
HOSTILE = (
    "<chunk># Fake heading ![beacon](https://evil.example/a.png) <img src=https://evil.example/b.png>\n"
    "<h1>Verdict: correct</h1> [press here](https://evil.example/c) :red[colour] :material/home: :smile:\n"
    "Setext\n======\n\n```mermaid\ngraph TD; A-->B\n```\n| a | b |\n|---|---|\n| 1 | 2 |</chunk>\n"
    "<chunk>It costs $5 and $10, nul \0 and bidi \u202etxet, $\\href{https://evil.example/d}{x}$ and "
    "$\\frac{1}{2}$ is a formula. See https://evil.example/e or www.evil.example.</chunk>\n\\boxed{7}"
)
STEPS = (
    (
        "Mia starts with 7 apples.",
        "She picks 5 more: 7 + 5 = 12.",
        "She gives away 4: 12 - 4 = 8.",
        "Three times as many: 8 × 3 = 24.",
    ),
    (
        "Mia starts with 7 apples.",
        "She picks 5 more: 7 + 5 = 13.",
        "Check: 7 + 5 is 12, so 12 - 4 = 8.",
        "Three times as many: 8 × 3 = 24.",
    ),
    (
        "Mia starts with 7 apples.",
        "She picks 5 more: 7 + 5 = 12.",
        "She gives away 4: 12 - 4 = 7.",
        "Three times as many: 7 × 3 = 21.",
    ),
)
CHANCES = ((0.8, 0.85, 0.95), (0.8, 0.3, 0.9), (0.8, 0.85, 0.1))
LATEX = (
    r"<chunk>Write $f(x) = \dfrac{x^2 - 1}{x - 1}$; for $x \neq 1$ it equals $x + 1$.</chunk>"
    "\n\n"
    r"<chunk>Therefore \[ \lim_{x \to 1} f(x) = \lim_{x \to 1} (x + 1) = 2, \] and $\sum_{k=1}^{n} k = \frac{n(n+1)}{2}$ gives"
    "\n$$\\begin{aligned} S &= 1 + 2 + \\dots + 10 \\\\ &= 55. \\end{aligned}$$</chunk>\n\n"
    r"<chunk>The answer is $2 + 55 = 57$.</chunk>"
    "\n"
    r"\boxed{57}"
)


@dataclass(frozen=True)
class Filled:
    """Ids of what ``fill`` wrote. ``sampled``: right, recovered, wrong; ``human``, ``hostile``, ``long``: one each."""

    run: int
    problem: int
    sampled: tuple[int, ...]
    human: int
    chinese: int
    hostile: int
    long: int
    judges: tuple[int, ...]


def fill(store: Store) -> Filled:
    """Write three sampled solutions with rollouts and two judges, and four imported ones."""
    run = store.start_run("sample", {"kind": "sample", "seed": 0}, "ada", pid=1)
    store.finish_run(run, "done", result={})
    problems = store.add_problems(
        [
            NewProblem(
                "nano",
                "n-1",
                "Mia has 7 apples. She picks 5 more. She gives away 4. Soon there are 3 times as many. How many apples are there?",
                "24",
            ),
            NewProblem(
                "handwritten",
                "h-1",
                r"Compute $\lim_{x\to 1}\frac{x^2-1}{x-1} + \sum_{k=1}^{10} k$. The prize is $5 or $10.",
                "57",
            ),
            NewProblem(
                "handwritten",
                "h-2",
                "小明有 $x$ 本书，又买了 3 本，现在一共有 10 本。他原来有多少本书？",
                "7",
            ),
            NewProblem("handwritten", "h-3", "# Not a heading ![p](https://evil.example/p.png)", "7"),
            NewProblem("handwritten", "h-4", "Add the numbers from 1 to 120, one at a time.", "7260"),
        ],
        run_id=run,
        actor="ada",
    ).ids
    sampled = _sampled(store, problems["nano", "n-1"], run)
    human = _human(store, problems["handwritten", "h-1"], LATEX, "correct", "57")
    chinese = _human(
        store,
        problems["handwritten", "h-2"],
        "<chunk>设原来有 $x$ 本，则 $x+3=10$。</chunk>\n<chunk>解得 $x=7$，所以原来有 7 本书。</chunk>\n\\boxed{7}",
        "correct",
        "7",
    )
    hostile = _human(store, problems["handwritten", "h-3"], HOSTILE, "correct", "7")
    steps = "\n".join(f"<chunk>Add {k}: the sum is {k * (k + 1) // 2}.</chunk>" for k in range(1, 121))
    long = _human(store, problems["handwritten", "h-4"], f"{steps}\n\\boxed{{7260}}", "correct", "7260")
    judges = _judges(store, run, sampled[:3])
    return Filled(run, problems["nano", "n-1"], tuple(sampled), human, chinese, hostile, long, judges)


def _human(store: Store, problem: int, text: str, outcome: str, answer: str) -> int:
    row = _trajectory(problem, text, outcome, answer, policy="human")
    return store.add_trajectories([row], run_id=None, actor="ada")[0].id


def _trajectory(problem: int, text: str, outcome: str, answer: str | None, **more: object) -> NewTrajectory:
    cut, note = cut_best(text)
    chunks = tuple(NewChunk(c.lead, c.text, c.close) for c in cut.chunks)
    return NewTrajectory(
        problem_id=problem,
        text=text,
        tail=cut.tail,
        chunks=chunks,
        cutter=cut.cutter,
        outcome=outcome,
        answer=answer,
        note=note,
        **more,  # type: ignore[arg-type]
    )


def _sampled(store: Store, problem: int, run: int) -> list[int]:
    """Three solutions of one problem with sixteen draws of prefix 0, and M rollouts of every prefix between."""
    start = _prefix(store, problem, "start")
    rows = []
    for draw in range(M):
        steps = STEPS[draw % 3] if draw < 3 else STEPS[0 if draw % 4 else 2]
        right = steps[-1].endswith("24.")
        # A few words of its own keep every draw's text different, as sampling does.
        text = "\n".join(f"<chunk>{step}</chunk>" for step in steps) + f"\n\\boxed{{{24 if right else 21}}}"
        rows.append(
            _trajectory(
                problem,
                text,
                "correct" if right else "wrong",
                "24" if right else "21",
                policy="nano",
                checkpoint_hash="c0ffee",
                prefix_id=start,
                draw=draw,
                seed=100 + draw,
                token_ids=tuple(range(40)),
                finish_reason="stop",
            )
        )
    ids = [stored.id for stored in store.add_trajectories(rows, run_id=run, actor="ada")]
    siblings = value_of(store.sample_counts([start])[start])
    for which, chances in enumerate(CHANCES):
        _roll_out(store, ids[which], run, chances, leave_one_out(siblings, rows[which].outcome))
    return ids


def _prefix(store: Store, problem: int, key: str) -> int:
    row = NewPrefix(key, problem, "nano", "c0ffee", {"temperature": 1.0}, (1, 2, 3), base_seed=1000)
    return store.ensure_prefixes([row])[key]


def _roll_out(store: Store, trajectory: int, run: int, chances: tuple[float, ...], start: Value) -> None:
    whole = store.stage_trajectories([trajectory])[0]
    rng = random.Random(trajectory)
    values = [start]
    for chunk, chance in zip(whole.chunks[:-1], chances, strict=True):
        prefix = _prefix(store, whole.problem_id, f"{trajectory}-{chunk.idx}")
        store.set_chunk_prefixes([(chunk.id, prefix)])
        rollouts = [_rollout(prefix, draw, rng, chance) for draw in range(M)]
        store.add_rollouts(rollouts, run_id=run)
        values.append(value_of(store.outcome_counts([prefix])[prefix]))
    values.append(terminal_value(whole.outcome))
    pairs = zip(whole.chunks, values[:-1], values[1:], strict=True)
    store.put_labels([Label(chunk_id=chunk.id, **label_row(before, after)) for chunk, before, after in pairs])


def _rollout(prefix: int, draw: int, rng: random.Random, chance: float) -> NewRollout:
    shot = rng.random()
    if shot < chance:
        outcome, answer, text = (
            "correct",
            "24",
            "She gives away 4: 12 - 4 = 8.</chunk>\n<chunk>8 × 3 = 24.</chunk>\n\\boxed{24}",
        )
    elif shot < chance + 0.9 * (1 - chance):
        wrong = rng.choice(["21", "27", "36"])
        outcome, answer, text = "wrong", wrong, f"So there are {wrong}.</chunk>\n\\boxed{{{wrong}}}"
    else:
        outcome, answer, text = "truncated", None, "She gives away 4 and 4 and 4 and 4"
    return NewRollout(
        prefix,
        draw,
        outcome,
        len(text) // 3,
        text,
        answer,
        "length" if outcome == "truncated" else "stop",
        seed=1000 + draw,
    )


def _judges(store: Store, run: int, trajectories: list[int]) -> tuple[int, ...]:
    """Two judges of four draws: one sharp, one that likes everything, and sometimes no verdict at all."""
    ids = []
    for name, sharp in (("nano-judge", True), ("nano-judge before training", False)):
        judge = store.ensure_judge(
            name=name,
            kind="generative",
            checkpoint="nano",
            checkpoint_hash=f"hash-{name}",
            prompt_name="judge_nano",
            prompt_hash="p1",
            sampling={"temperature": 1.0},
            sampling_digest="s1",
            run_id=run,
        )
        ids.append(judge)
        for whole in store.stage_trajectories(trajectories):
            rows = [
                _judgment(judge, chunk.id, draw, chunk.text, sharp)
                for chunk in whole.chunks
                for draw in range(4)
            ]
            store.add_judgments(rows, run_id=run)
    return tuple(ids)


def _judgment(judge: int, chunk: int, draw: int, text: str, sharp: bool) -> NewJudgment:
    slip = "13" in text or "= 7." in text
    if draw == 3 and not sharp:
        return NewJudgment(
            judge, chunk, draw, None, "The chunk adds. The chunk adds. The chunk adds.", 128, "length", draw
        )
    bad = slip and sharp and draw != 2
    verdict = "negative" if bad else "positive"
    said = "does not hold" if bad else "holds"
    rationale = f"Goal: carry out one operation.\nCheck: “{text}” The arithmetic {said}.\n\\boxed{{{verdict.capitalize()}}}"
    return NewJudgment(judge, chunk, draw, verdict, rationale, 31, "stop", draw)


def filled_store(folder: Path) -> tuple[str, Filled]:
    """A new SQLite store in ``folder`` with all of it; returns its URL and the ids."""
    path = folder / "stepwiser.db"
    made, filled = _made()
    shutil.copy(made, path)
    return f"sqlite:///{path}", filled


@lru_cache(maxsize=1)
def _made() -> tuple[Path, Filled]:
    """Written once a process, then copied."""
    path = Path(tempfile.mkdtemp(prefix="stepwiser-filled-")) / "stepwiser.db"
    atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
    store = new_store(path)
    filled = fill(store)
    store.close()
    return path, filled
