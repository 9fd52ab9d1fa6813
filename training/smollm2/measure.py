"""What a SmolLM2 checkpoint can do: pass rate on held-out word problems, verdicts on right and wrong chunks, speed.

Through the door that it is given, sampled at temperature 1. Stores nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from engine.answers import Grader, Reference
from engine.evaluate.policy import Solved, form_of, policy_figures
from engine.evaluate.stepwise import Judged, stepwise_accuracy
from engine.judge import fill, load_prompt, parse_verdict, render
from engine.llm.base import LLM, Completion, Request, Sampling
from engine.rollouts import base_seed, prefix_key
from engine.worlds.nano import NanoProblem, generate
from training.smollm2.words import JUDGE_PROMPT, POLICY_PROMPT, chunk_text, chunk_texts, wrong_result

SOLVING, JUDGING = Sampling(max_tokens=160), Sampling(max_tokens=64)
RESAMPLES = 2000
SHOWN = (
    "accuracy",
    "interval",
    "n",
    "problems",
    "chunks",
    "blank_line_chunks",
    "well_formed",
    "mean_tokens",
    "none",
)


def measure(
    llm: LLM,
    problems: int,
    n: int,
    say: Callable[[str], None],
    lengths: Sequence[int] = (2, 3),
    seed: int = 0,
) -> dict[str, dict[str, Any]]:
    """``policy``: pass rate of ``n`` solutions of each held-out word problem, with its interval by problem, form and
    tokens a second; ``judge``: accuracy on a right and a wrong chunk of each."""
    chosen = generate(problems, seed, kinds=("word",), split="heldout", lengths=lengths)
    say(f"sampling {n} solutions of {problems} held-out word problems")
    solved, speed = _solve(llm, chosen, n, seed)
    figures = policy_figures(solved, resamples=RESAMPLES, seed=seed)
    say(f"judging {2 * problems} chunks")
    judged = stepwise_accuracy(_judge(llm, chosen, seed), resamples=RESAMPLES, seed=seed)
    return {
        "policy": {key: figures[key] for key in SHOWN if key in figures} | {"tokens_per_s": speed},
        "judge": {key: judged[key] for key in SHOWN if key in judged},
    }


def _solve(llm: LLM, problems: Sequence[NanoProblem], n: int, seed: int) -> tuple[list[Solved], float]:
    prompt = load_prompt(POLICY_PROMPT, needs=("problem",))
    started = time.monotonic()
    drawn = _draw(llm, [render(prompt, problem=p.text) for p in problems], n, seed, SOLVING)
    seconds = time.monotonic() - started
    tokens = sum(len(c.token_ids) for group in drawn for c in group)
    with Grader() as grader:
        rows = [(i, c) for i, group in enumerate(drawn) for c in group]
        grades = grader.grade_many(
            [(c.text, Reference(problems[i].answer), c.finish_reason) for i, c in rows]
        )
    solved = [
        Solved(i, grade.outcome, len(c.token_ids), form_of(c.text))
        for (i, c), grade in zip(rows, grades, strict=True)
    ]
    return solved, round(tokens / seconds, 1)


def _judge(llm: LLM, problems: Sequence[NanoProblem], seed: int) -> list[Judged]:
    prompt, rng = load_prompt(JUDGE_PROMPT), random.Random(seed)
    places, texts = [], []
    for number, problem in enumerate(problems):
        i = rng.randrange(len(problem.ops))
        for label, claimed in (("+", problem.values[i]), ("-", wrong_result(problem, i, rng))):
            places.append((number, i, label))
            texts.append(
                fill(prompt, problem.text, chunk_texts(problem)[:i], chunk_text(problem, i, claimed))
            )
    drawn = _draw(llm, texts, 1, seed, JUDGING)
    return [
        Judged(number, i, label, tuple(parse_verdict(c.text) for c in group))
        for (number, i, label), group in zip(places, drawn, strict=True)
    ]


def _draw(llm: LLM, prompts: Sequence[str], n: int, seed: int, sampling: Sampling) -> list[list[Completion]]:
    """``n`` draws of each prompt, in the prompts' order."""
    ids = [tuple(llm.encode(prompt)) for prompt in prompts]
    found: dict[str, list[Completion]] = {}
    requests = (
        Request(
            str(number), row, n, base_seed(seed, prefix_key(row, llm.info.content_hash, sampling)), sampling
        )
        for number, row in enumerate(ids)
    )
    for completions in llm.stream(requests):
        found[completions[0].request_id] = completions
    return [found[str(number)] for number in range(len(prompts))]
