"""Search at test time: one algorithm a file, all with the signature of ``Search``.

A search takes tasks (a problem, to be solved once), a policy and a judge behind their doors, and yields solutions as
they finish, with what it dropped on the way. It works on as many tasks at once as keep the policy's door full, and
everything it draws follows from the tasks and the seed, not from the order in which answers come. Not: grading, and
where results are kept (``engine.pipeline.searching``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from engine.judge import Verdict
from engine.judges import Judge, never
from engine.llm.base import LLM, FinishReason, Sampling


@dataclass(frozen=True)
class Task:
    """One solution to find. ``draw`` tells apart the solutions of one problem: each is drawn independently."""

    problem_id: int
    draw: int
    problem: str
    prompt_token_ids: tuple[int, ...]


@dataclass(frozen=True)
class Drawing:
    """How a search draws: the policy's settings (``max_tokens`` for a whole solution), ``k`` judgments a chunk, the
    run's seed; when ``stopping`` turns true, unfinished tasks are dropped."""

    sampling: Sampling
    k: int
    seed: int
    stopping: Callable[[], bool] = never


@dataclass(frozen=True)
class Tried:
    """A chunk that was written for place ``position``, and whether it was kept. ``attempt`` counts from 0.

    ``verdict`` and ``score`` are None where no judge read it, or where it said nothing.
    """

    position: int
    attempt: int
    text: str
    tokens: int
    kept: bool
    verdict: Verdict | None = None
    score: float | None = None


@dataclass(frozen=True)
class Found:
    """A solution: its text and token ids without the prompt, how it ended, and every chunk that was tried.

    ``rejected_tokens`` were drawn and dropped, ``judge_tokens`` were drawn by the judge; ``error`` is set where the
    policy's door could not go on.
    """

    task: Task
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    tried: tuple[Tried, ...]
    rejected_tokens: int
    judge_tokens: int
    error: str | None = None


class Search(Protocol):
    """The signature that all search algorithms share; what is an algorithm's own lies in its fields."""

    def search(
        self, tasks: Iterable[Task], policy: LLM, judge: Judge | None, drawing: Drawing
    ) -> Iterator[Found]:
        """Solve every task. Without a judge nothing is rejected: plain sampling, chunk by chunk."""
        ...
