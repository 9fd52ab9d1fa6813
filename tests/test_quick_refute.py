"""What numbers refute without simplifying is what math-verify alone finds unequal; near and strange things it decides."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import math_verify
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from math_verify import grader as compares

from engine.boxes import last_box
from engine.verifiers import math as mathematics
from engine.verifiers import quick_parse, quick_refute

quick_parse.install()
quick_refute.install()


def read(text: str) -> list[Any]:
    return mathematics._read(mathematics.clean(text))


def verdict(answer: str, reference: str) -> bool | str:
    """With what is installed, whether equal, or the error's name."""
    try:
        return math_verify.verify(read(reference), read(answer), timeout_seconds=None, raise_on_error=True)
    except (ValueError, TypeError, AttributeError, ArithmeticError) as problem:
        return type(problem).__name__


def verdict_of_math_verify_alone(answer: str, reference: str) -> bool | str:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("sympy_symbolic_eq", "sympy_solve_and_compare"):
            patch.setattr(compares, name, getattr(compares, name).__wrapped__)
        return verdict(answer, reference)


leaves = st.sampled_from(
    ["0", "1", "2", "7", "0.5", "1.25", "0.333333", "x", "y", r"\pi", "e", "i", r"\sqrt{2}", r"\sqrt[3]{5}"]
)


def joined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    sums = ("{}+{}", "{}-({})", r"2^{{{}}}-({})", r"|{}|+{}", r"\sqrt{{{}}}+{}")
    products = (r"\frac{{{}}}{{{}}}", "({})({})", "({})^{{2}}{}", "({})^{{-1}}+{}")
    return st.builds(str.format, st.sampled_from(sums + products), parts, parts)


expressions = st.recursive(leaves, joined, max_leaves=2)
rewritten = (
    "{0}", "0+{0}", "({0})+x-x", r"\frac{{2({0})}}{{2}}", "3({0})-2({0})", r"\sqrt{{({0})^{{2}}}}", "({0})^{{1}}",
    r"\frac{{({0})^{{2}}}}{{{0}}}", r"({0})(1+\sqrt{{2}})(\sqrt{{2}}-1)", "({0})+0.000001", "({0})+0.0000001", "({0})1.0000001",
    "x+{0}", "-({0})", "2({0})", "({0})+1",
)  # fmt: skip
"""Some keep the value, some change it a little, some change it."""
forms = ("{0}", "{0}", "{0}", "x={0}", "y={0}", r"{0}\%", "({0},1)", r"\{{{0},2\}}", "[0,{0})", "x<{0}")


@settings(max_examples=25, deadline=None)
@given(expressions, expressions, st.sampled_from(rewritten), st.sampled_from(forms), st.sampled_from(forms))
def test_outcomes_are_those_of_math_verify_alone(
    first: str, other: str, way: str, form: str, other_form: str
) -> None:
    pairs = [
        (form.format(way.format(first)), form.format(first)),
        (other_form.format(first), form.format(other)),
    ]
    assert [verdict(*pair) for pair in pairs] == [verdict_of_math_verify_alone(*pair) for pair in pairs]


REFUTED = [
    ("x^2+3x+99", "3+99x+x^2"), (r"52\sqrt{2}", r"51\sqrt{2}"), (r"51\sqrt[3]{2}", r"51\sqrt{2}"), (r"10\pi", r"\frac{\pi}{4}"),
    (r"\frac{x+11}{63}", r"\frac{x+63}{11}"), (r"9.5\%", r"9\%"), ("x=67", "x=7"), ("y=8", "x=7"), ("y=7", "x=7"), ("2^x", "2^{x+1}"),
    ("e^2", "e^3"), ("x=0.5", "x=1/3"), (r"(\sqrt{2}, 3)", r"(\sqrt{3}, 3)"), (r"\frac{1}{1+\sqrt{5}}", r"1+\sqrt{5}"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reference"), REFUTED)
def test_different_sides_are_never_simplified_nor_solved(
    answer: str, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verdict_of_math_verify_alone(answer, reference) is False
    dear: list[object] = []
    monkeypatch.setattr(compares, "simplify", dear.append)
    monkeypatch.setattr(compares, "solve", lambda *given: dear.append(given))
    assert verdict(answer, reference) is False
    assert dear == []


LEFT_ALONE = [
    (r"\sqrt{8}", r"2\sqrt{2}"), ("(x+1)^2", "x^2+2x+1"), (r"\frac{x^2-1}{x-1}", "x+1"), ("0.3333333", "1/3"), ("x+0.000001", "x"),
    ("10^{20}+1", "10^{20}"), ("10^{-9}", "2(10^{-9})"), (r"\frac{1}{0}", "5"), (r"\frac{x}{x-x}", "x"), (r"\sin(x)", "x"),
    (r"\sqrt{-2}", "1"), ("x^{99}", "x"), (r"\{1\}", "2"), (r"\begin{pmatrix}1\end{pmatrix}", "2"), (r"(-8)^{\frac{1}{3}}", "2"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reference"), LEFT_ALONE)
def test_equal_near_and_strange_things_are_left_to_math_verify(answer: str, reference: str) -> None:
    left, right = read(answer)[0], read(reference)[0]
    assert not quick_refute.apart(left, right) and not quick_refute.apart(right, left)
    assert verdict(answer, reference) == verdict_of_math_verify_alone(answer, reference)


def test_bounds_hold_the_value() -> None:
    """The interval is certain: a hundred digits of the value lie within it, and it is not much wider."""
    from mpmath import mp
    from sympy import E, Integer, Pow, pi

    one = Pow(pi, E, evaluate=False) / 3 + Integer(7) ** Integer(-20)
    held = quick_refute._bounded(one)
    with mp.workdps(100):
        assert held.a <= mp.pi**mp.e / 3 + mp.mpf(7) ** -20 <= held.b
    assert held.delta < 1e-10


def test_field_answers_to_other_problems_are_told_apart_as_math_verify_does() -> None:
    folder = os.environ.get("STEPWISER_FIELD_DATA")
    if not folder:
        pytest.skip("STEPWISER_FIELD_DATA is not set")
    path = Path(folder, "dev_slices", "math500_instruct_outputs_20.jsonl")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    references = [row["answer"] for row in rows]
    answers = [answer for row in rows if (answer := last_box(row["code"][0])) is not None]
    pairs = [(answer, references[(n + step) % 20]) for n, answer in enumerate(answers) for step in (0, 3, 8)]
    assert len(pairs) > 30
    unlike = [pair for pair in pairs if verdict(*pair) != verdict_of_math_verify_alone(*pair)]
    assert unlike == []
