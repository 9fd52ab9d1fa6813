"""Made-up solutions that both sides are given, each with one chunk to be reviewed. Not: either side's file format."""

from __future__ import annotations

import random
from dataclasses import dataclass

COUNT_CHUNKS = 6
ASKED = 2
"""Index of the chunk that is reviewed."""


@dataclass(frozen=True)
class Task:
    """``mark`` stands in the asked chunk and nowhere else: by it a browser knows which item is on screen."""

    number: int
    mark: str
    problem: str
    answer: str
    chunks: tuple[str, ...]


def make_tasks(count: int, seed: int = 7) -> list[Task]:
    """``count`` solutions of six chunks; some calculations are wrong, as in life."""
    rng = random.Random(seed)
    return [_task(number, rng) for number in range(count)]


def _task(number: int, rng: random.Random) -> Task:
    start, names = rng.randrange(10, 90), ("Ada", "Ben", "Cleo", "Dan")
    who, value, mark = names[number % 4], start, f"item-{number:05d}"
    chunks = [f"{who} starts with {start} stamps, and we follow the count from there."]
    while len(chunks) < COUNT_CHUNKS:
        more, slip = rng.randrange(2, 40), rng.random() < 0.1
        now = value + more + (1 if slip else 0)
        note = f" ({mark})" if len(chunks) == ASKED else ""
        chunks.append(f"Then {more} more are added{note}: {value} + {more} = {now}.")
        value = now
    problem = f"{who} collects stamps, album {number}. How many are there in the end?"
    return Task(number, mark, problem, str(value), tuple(chunks))
