"""The sentence of a rationale that names the error: found by its words, never where none is named."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.rationale import error_sentence, sentences


@pytest.mark.parametrize(
    ("rationale", "sentence"),
    [
        (
            "Goal: add 13. I get 32+13=45. The chunk says 19. Not the same. \\boxed{Negative}",
            "The chunk says 19. Not the same.",
        ),
        (
            "Goal: multiply 3. I find 13×3=29. The chunk says 39. It differs. \\boxed{Negative}",
            "The chunk says 39. It differs.",
        ),
        (
            "The chunk sets out to factor the quadratic. The logic is in line with the problem. However, "
            "“$x^2 - 4 = (x-2)^2$” is wrong: it should be $(x-2)(x+2)$. So the chunk contains an error.\n\\boxed{Negative}",
            "However, “$x^2 - 4 = (x-2)^2$” is wrong: it should be $(x-2)(x+2)$.",
        ),
        (
            "There is no error in the method. The sum does not hold: 7 + 5 is 12, not 13. \\boxed{Negative}",
            "The sum does not hold: 7 + 5 is 12, not 13.",
        ),
        (
            "先求和。这里 7 + 5 应为 12，而不是 13，计算有误。\\boxed{Negative}",
            "这里 7 + 5 应为 12，而不是 13，计算有误。",
        ),
        ("Check whether there is an error. The step doesn't follow.", "The step doesn't follow."),
        ("One line.\nThe claim is false.\nDone.", "The claim is false."),
        (r"It uses \(a. b \neq c\) here. All else holds.", r"It uses \(a. b \neq c\) here."),
    ],
)
def test_the_sentence_that_names_the_error(rationale: str, sentence: str) -> None:
    found = error_sentence(rationale)
    assert found and rationale[slice(*found)] == sentence


@pytest.mark.parametrize(
    "rationale",
    [
        "",
        "\\boxed{Negative}",
        "Goal: subtract 7. I get 32. The chunk says 32. The same.",
        "The chunk has no arithmetic error. It does not contain any mistake and is not wrong.",
        "没有错误。",
    ],
)
def test_where_no_error_is_named_nothing_is_marked(rationale: str) -> None:
    assert error_sentence(rationale) is None


def test_full_stops_without_end_are_read_in_time() -> None:
    """Work that grows with the square of the length would outlast the test's limit."""
    assert error_sentence("." * 400_000 + "x 2 is wrong") is not None


@given(st.text(alphabet="ab 1.!?\n$\\{}not wrong错误。", max_size=80))
def test_sentences_are_in_order_on_one_line_and_hold_every_word(text: str) -> None:
    found = sentences(text)
    assert all(a < b for a, b in found) and all(x[1] <= y[0] for x, y in pairwise(found))
    assert all(text[a:b] == text[a:b].strip() for a, b in found)
    marked = error_sentence(text)
    assert marked is None or (0 <= marked[0] < marked[1] <= len(text))
