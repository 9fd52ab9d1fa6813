"""What a training set is made of: chunks as the store has them, examples with their labels, the set of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from engine.labels import Label
from engine.values import Value

CountTokens = Callable[[Sequence[str]], list[int]]
"""Texts to their lengths in tokens."""

LabelSource = Literal["rule", "judge", "reviewed"]


@dataclass(frozen=True)
class Example:
    """One judge prompt and the label (``+`` or ``-``) that its verdict is compared with.

    ``position``: the chunk's place in its trajectory, from 0. ``confidence``: the rule's (labels.py); None for a
    person's label, for a judge's vote and where it was not asked for.
    """

    chunk_id: int
    problem_id: int
    prompt: str
    label: str
    position: int = 0
    source: LabelSource = "rule"
    confidence: float | None = None
    trajectory_id: int = 0


@dataclass(frozen=True)
class TrainingSet:
    """What is trained on, what accuracy is measured on (no problem in both), and how many were left out why."""

    train: tuple[Example, ...]
    held_out: tuple[Example, ...]
    counts: dict[str, int]


@dataclass(frozen=True)
class Labelled:
    """A chunk as the store has it: its prompt, its two values, what people said of it (verdicts in force), and the
    majority vote of the judge whose agreement or label is asked for (None: it did not judge the chunk, or tied).

    ``prompt`` is empty where texts were left in the store.
    """

    chunk_id: int
    problem_id: int
    prompt: str
    before: Value
    after: Value
    adjudication: int | None = None
    reviews: tuple[int | None, ...] = ()
    position: int = 0
    trajectory_id: int = 0
    vote: Label | None = None
