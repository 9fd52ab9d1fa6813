"""Demonstrations that the nano base is trained on: chunked solutions that slip, and judgments of them.

The error process is the whole design of the world: where a demonstration slips, how it recovers and
how unsure a judgment is decide how good the trained policy and judge are. Tokens, model and loss are
elsewhere (tokenizer.py, train.py); the prompts' wording is in engine/prompts.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.worlds.nano import MAX_VALUE, NanoProblem, apply

Share = Field(ge=0, le=1)


class PolicyRates(BaseModel):
    """How often solutions slip and recover; every number is a probability."""

    model_config = ConfigDict(extra="forbid")
    easy: float = Share  # + and - without carry or borrow
    carry: float = Share
    times: float = Share
    check_slip: float = Share  # factor on the three above inside a final check
    notice_small: float = Share  # a slip of one is noticed and put right at once
    notice_large: float = Share  # a slip of ten, or a wrong operation
    plan: float = Share
    check: dict[int, float]  # by number of operations: a last chunk works all of it out again


class JudgeRates(BaseModel):
    """How unsure judgments are. Verdicts always follow from the comparison: flipped ones teach nothing."""

    model_config = ConfigDict(extra="forbid")
    slip: float = Share  # on a right chunk: the judge's own calculation is wrong
    stamp: float = Share  # on a wrong chunk: the judge repeats what the chunk says
    slip_on_wrong: float = Share  # on a wrong chunk: a third value (the verdict is right all the same)


@dataclass(frozen=True)
class Link:
    """One calculation `a op b = claimed`."""

    a: int
    op: str
    b: int
    claimed: int

    def __str__(self) -> str:
        return f"{self.a}{self.op}{self.b}={self.claimed}"


@dataclass(frozen=True)
class DemoChunk:
    """One chunk of a demonstration; `expected` is what its goal gives, worked out from where it starts.

    A chunk that goes on correctly from an earlier wrong value is right here: only its own links count.
    `op` and `b` are the operation that the problem asks for, which a slip may have replaced in `links`.
    """

    kind: Literal["plan", "step", "wait", "check"]
    text: str
    links: tuple[Link, ...] = ()
    expected: tuple[Link, ...] = ()

    @property
    def right(self) -> bool:
        return not self.links or self.links[-1].claimed == self.expected[-1].claimed


@dataclass(frozen=True)
class Demo:
    """A solution: its chunks, and the answer it boxes."""

    problem: NanoProblem
    chunks: tuple[DemoChunk, ...]
    boxed: int

    @property
    def correct(self) -> bool:
        return str(self.boxed) == self.problem.answer

    def completion(self) -> str:
        return "".join(f"<chunk>{c.text}</chunk>\n" for c in self.chunks) + f"\\boxed{{{self.boxed}}}"


NOUNS = {"+": "add", "-": "subtract", "×": "multiply"}
LEADS = {"+": "Add {b}: ", "-": "Subtract {b}: ", "×": "Multiply by {b}: "}


def _difficulty(op: str, a: int, b: int, rates: PolicyRates) -> float:
    if op == "×":
        return rates.times
    hard = a % 10 + b % 10 > 9 if op == "+" else a % 10 < b % 10
    return rates.carry if hard else rates.easy


def _slips(op: str, a: int, b: int) -> list[tuple[Link, str]]:
    """Plausible wrong links with their size, those outside 0 … 99 left out."""
    truth = apply(op, a, b)
    found = [(Link(a, op, b, truth + d), "small") for d in (-1, 1)]
    found += [(Link(a, op, b, truth + d), "large") for d in (-10, 10)]
    other = {"+": "-", "-": "+", "×": "+"}[op]
    found.append((Link(a, other, b, apply(other, a, b)), "large"))
    return [(link, size) for link, size in found if 0 <= link.claimed <= MAX_VALUE and link.claimed != truth]


def _fits(value: int, rest: Sequence[tuple[str, int]]) -> bool:
    """Whether going on correctly from `value` stays within 0 … 99."""
    for op, b in rest:
        value = apply(op, value, b)
        if not 0 <= value <= MAX_VALUE:
            return False
    return True


def _calculate(
    a: int, i: int, problem: NanoProblem, rates: PolicyRates, rng: random.Random, factor: float = 1.0
) -> tuple[Link, str | None]:
    """The i-th operation from value `a`, with a slip at the stated rate; the size of the slip or None."""
    op, b = problem.ops[i]
    right = Link(a, op, b, apply(op, a, b))
    if rng.random() >= factor * _difficulty(op, a, b, rates):
        return right, None
    slips = [s for s in _slips(op, a, b) if _fits(s[0].claimed, problem.ops[i + 1 :])]
    return rng.choice(slips) if slips else (right, None)


def _steps(problem: NanoProblem, rates: PolicyRates, rng: random.Random) -> tuple[list[DemoChunk], int]:
    chunks: list[DemoChunk] = []
    value = problem.start
    worded = rng.random() < 0.5
    for i, (op, b) in enumerate(problem.ops):
        link, slip = _calculate(value, i, problem, rates, rng)
        expected = (Link(value, op, b, apply(op, value, b)),)
        lead = LEADS[op].format(b=b) if worded else ""
        chunks.append(DemoChunk("step", f"{lead}{link}.", (link,), expected))
        if slip and rng.random() < (rates.notice_small if slip == "small" else rates.notice_large):
            chunks.append(DemoChunk("wait", f"Wait, {expected[0]}, not {link.claimed}.", expected, expected))
            link = expected[0]
        value = link.claimed
    return chunks, value


def _check(problem: NanoProblem, rates: PolicyRates, rng: random.Random) -> DemoChunk:
    links, value = [], problem.start
    for i in range(len(problem.ops)):
        link, _ = _calculate(value, i, problem, rates, rng, rates.check_slip)
        links.append(link)
        value = link.claimed
    starts = (problem.start, *problem.values)
    expected = tuple(Link(starts[i], op, b, starts[i + 1]) for i, (op, b) in enumerate(problem.ops))
    return DemoChunk("check", f"Check: {', '.join(map(str, links))}.", tuple(links), expected)


def solve(problem: NanoProblem, rates: PolicyRates, rng: random.Random) -> Demo:
    """One solution as the policy should write it: one operation a chunk, slips included."""
    chunks, value = _steps(problem, rates, rng)
    if rng.random() < rates.plan:
        plan = ", ".join(NOUNS[op] for op, _ in problem.ops)
        chunks.insert(0, DemoChunk("plan", f"Plan: {plan}."))
    if rng.random() < rates.check.get(len(problem.ops), 0.0):
        chunks.append(_check(problem, rates, rng))
        value = chunks[-1].links[-1].claimed
    return Demo(problem, tuple(chunks), value)


def _recompute(chunk: DemoChunk, rates: JudgeRates, rng: random.Random) -> tuple[Link, ...]:
    """The judge's own calculation: the expected links, a slip, or (on a wrong chunk) the chunk's own."""
    u = rng.random()
    if not chunk.right and u < rates.stamp:
        return chunk.links
    slip = rates.slip if chunk.right else rates.stamp + rates.slip_on_wrong
    if u >= slip:
        return chunk.expected
    last = chunk.expected[-1]
    slips = [
        link
        for link, _ in _slips(last.op, last.a, last.b)
        if link.op == last.op and link.claimed != chunk.links[-1].claimed
    ]
    return (*chunk.expected[:-1], rng.choice(slips)) if slips else chunk.expected


def judge(demo: Demo, index: int, rates: JudgeRates, rng: random.Random) -> str:
    """An analysis of chunk `index` and the verdict that its comparison gives."""
    chunk = demo.chunks[index]
    if not chunk.links:
        return "Goal: plan. No calculation here. \\boxed{Positive}"
    own = _recompute(chunk, rates, rng)
    goal = "check" if chunk.kind == "check" else f"{NOUNS[own[-1].op]} {own[-1].b}"
    said, mine = chunk.links[-1].claimed, own[-1].claimed
    start = rng.choice(("I get ", "I find "))
    verdict = (
        rng.choice(("The same. \\boxed{Positive}", "It agrees. \\boxed{Positive}"))
        if said == mine
        else rng.choice(("Not the same. \\boxed{Negative}", "It differs. \\boxed{Negative}"))
    )
    return f"Goal: {goal}. {start}{', '.join(map(str, own))}. The chunk says {said}. {verdict}"
