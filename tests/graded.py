"""What the tests of grading share: a grader, an answer in its box, and one that no worker ever finishes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.answers import Grader

ENDLESS = "9**9**9**9"


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(limit_s=20) as grader:  # generous: the machine may be busy, and most tests want no time limit
        yield grader


def boxed(answer: str) -> str:
    return f"So the answer is $\\boxed{{{answer}}}$."
