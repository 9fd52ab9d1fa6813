"""Word problems in plain English, solved in chunks: what SmolLM2 is fine-tuned on, as policy and as judge.

The problems are the nano world's templated stories; a chunk repeats the sentence that it works on and calculates.
Solutions are right (a policy is fine-tuned on correct ones); half of the chunks to judge are not.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from engine.judge import fill, load_prompt, render
from engine.worlds.nano import NanoProblem, apply, draw

POLICY_PROMPT, JUDGE_PROMPT = "policy_smollm2", "judge_smollm2"
SLIPS = (-10, -2, -1, 1, 2, 10)


def chunk_texts(problem: NanoProblem) -> list[str]:
    """One chunk an operation: "Mia buys 7 more. So 12 + 7 = 19."."""
    return [chunk_text(problem, i, value) for i, value in enumerate(problem.values)]


def chunk_text(problem: NanoProblem, i: int, claimed: int) -> str:
    """The chunk of operation i with the result that it claims."""
    sentence = problem.text.split(". ")[i + 1]
    return f"{sentence}. So {_link(problem, i)} = {claimed}."


def _link(problem: NanoProblem, i: int) -> str:
    op, b = problem.ops[i]
    return f"{(problem.start, *problem.values)[i]} {op} {b}"


def solution(problem: NanoProblem) -> str:
    """The chunked solution and its boxed answer."""
    tagged = "".join(f"<chunk>{text}</chunk>\n" for text in chunk_texts(problem))
    return f"{tagged}\\boxed{{{problem.answer}}}"


def judgment(problem: NanoProblem, i: int, claimed: int) -> str:
    """An analysis of operation i's chunk: calculate, compare, then the verdict."""
    right = problem.values[i]
    verdict = "The same. \\boxed{Positive}" if claimed == right else "Not the same. \\boxed{Negative}"
    return f"I get {_link(problem, i)} = {right}. The step says {claimed}. {verdict}"


def wrong_result(problem: NanoProblem, i: int, rng: random.Random) -> int:
    """A result of operation i that is off by one, two or ten, or comes from another operation."""
    (op, b), before = problem.ops[i], (problem.start, *problem.values)[i]
    others = [apply(other, before, b) for other in "+-" if other != op]
    found = [value for value in [problem.values[i] + slip for slip in SLIPS] + others if value >= 0]
    return rng.choice([value for value in found if value != problem.values[i]])


def examples(lengths: Sequence[int], judge_share: float, seed: int) -> Iterator[tuple[str, str]]:
    """Endless (prompt, completion) pairs from training problems, the same for the same seed."""
    rng = random.Random(f"smollm2/{seed}")
    policy, judge = load_prompt(POLICY_PROMPT, needs=("problem",)), load_prompt(JUDGE_PROMPT)
    while True:
        problem = draw(rng, ("word",), "train", lengths)
        if rng.random() >= judge_share:
            yield render(policy, problem=problem.text), solution(problem)
            continue
        i = rng.randrange(len(problem.ops))
        claimed = problem.values[i] if rng.random() < 0.5 else wrong_result(problem, i, rng)
        prompt = fill(judge, problem.text, chunk_texts(problem)[:i], chunk_text(problem, i, claimed))
        yield prompt, judgment(problem, i, claimed)
