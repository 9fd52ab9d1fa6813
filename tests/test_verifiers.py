"""Verifiers of multiple choice, exact text and code: what is taken as the answer, and what counts as right.

Mathematics is in test_answers.py, the sandbox in test_sandbox.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from engine import sandbox
from engine.answers import Grade, Grader, Reference, cache_key
from engine.errors import InputError
from engine.verifiers import VERIFIERS, choice, code, text, verifier


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(limit_s=20) as grader:
        yield grader


def test_a_name_that_is_none_is_refused() -> None:
    assert set(VERIFIERS) == {"math", "choice", "text", "code"}
    with pytest.raises(InputError, match="verifier is 'maths'; use one of math, choice, text, code"):
        verifier("maths")


# Multiple choice


@pytest.mark.parametrize(
    ("solution", "outcome"),
    [
        (r"\boxed{B}", "correct"),
        (r"\boxed{b}", "correct"),
        (r"\boxed{(B)}", "correct"),
        (r"\boxed{\text{(B)}}", "correct"),
        (r"\boxed{\textbf{B.}}", "correct"),
        (r"\boxed{B) blue}", "correct"),
        (r"\boxed{(B) blue}", "correct"),
        (r"\boxed{\textbf{(B)}\ blue}", "correct"),
        (r"\boxed{\text{(B)}~\frac{1}{2}}", "correct"),
        (r"\boxed{\text{(A)}\,blue}", "wrong"),
        (r"\boxed{\text{Blue}}", "correct"),
        (r"\boxed{option B}", "correct"),
        (r"\boxed{A} or rather \boxed{B}", "correct"),
        (r"\boxed{B} or rather \boxed{A}", "wrong"),
        (r"\boxed{A. blue}", "wrong"),  # the letter counts
        (r"\boxed{A blue bird}", "wrong"),
        (r"\boxed{AB}", "wrong"),
        (r"\boxed{}", "unparsed"),
        ("Thus the answer is (B) because it is.", "correct"),
        ("**Answer:** B", "correct"),
        ("Answer: A.\nNo: the answer is B.", "correct"),
        ("<chunk>The answer is A.</chunk>\n<chunk>No, the answer is B</chunk>\n", "correct"),
        ("The answer is blue.", "correct"),
        ("The answer is a mystery", "wrong"),
        ("B", "unparsed"),
    ],
)
def test_choice(grader: Grader, solution: str, outcome: str) -> None:
    (grade,) = grader.grade_many([(solution, Reference("B. blue", "choice"), "stop")])
    assert grade.outcome == outcome
    assert outcome != "correct" or grade.answer in ("B", "Blue", "blue.")


@pytest.mark.parametrize("name", ["choice", "text"])
def test_lines_without_end_behind_an_answer_are_read_in_time(name: str) -> None:
    """Work that grows with the square of the length would outlast the test's limit."""
    assert verifier(name).extract("The answer is:" + "\n" * 400_000) is None


def test_a_letter_alone_is_a_reference_and_a_rollout_is_read_without_what_came_before(grader: Grader) -> None:
    alone = Reference("C", "choice", before=r"\boxed{C}")
    found = grader.grade_many(
        [(r"\boxed{c}", alone, "stop"), ("", alone, "stop"), (r"\boxed{C}", alone, "length")]
    )
    assert found == [Grade("correct", "C"), Grade("unparsed", None), Grade("truncated", "C")]
    assert grader.grade_many([(r"\boxed{C}", Reference("nothing", "choice"), "stop")]) == [
        Grade("error", "C")
    ]


def test_options_and_the_right_one() -> None:
    colours = choice.options(["red", "blue"])
    assert colours == choice.options({"a": "red", "B": " blue "}) == {"A": "red", "B": "blue"}
    for given in ("B", "b", "(B)", "Blue", 1):
        assert choice.reference_of(given, colours) == "B. blue"
    assert choice.reference_of("2", choice.options([3, 2])) == "B. 2"
    for given in ("C", "green", 2, -1):
        with pytest.raises(InputError, match="is none of the choices; give a letter of A, B"):
            choice.reference_of(given, colours)
    with pytest.raises(InputError, match="may be option B by its number or A by its text; give the letter"):
        choice.reference_of(1, choice.options([1, 2]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("red, blue", "a list of texts was expected"),
        (["red"], "there are 1 choices; two are the least"),
        (["red", " Red. "], "two of the choices say the same"),
        (["red", ""], "choice B is '', and a text was expected"),
        (["red", None], "choice B is None"),
        (["B", "C"], "choice A reads 'B', which is also the letter of another choice"),
        ({"A": "red", "1": "blue"}, "named by different single letters"),
        ([str(n) for n in range(27)], "there are 27 choices; 26 are the most"),
    ],
)
def test_choices_that_cannot_be_used(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        choice.options(given)


# Exact text


@pytest.mark.parametrize(
    ("solution", "reference", "outcome"),
    [
        (r"\boxed{Paris}", "paris", "correct"),
        (r"\boxed{\text{ New  York }.}", "new york", "correct"),
        (r"\boxed{“Ｐａｒｉｓ”}", "Paris", "correct"),
        (r"\boxed{straße}", "STRASSE", "correct"),
        ("Answer: **Paris**\n", "Paris", "correct"),
        ("the answer is `Paris`.</chunk>", "Paris", "correct"),
        (r"\boxed{Paris, France}", "Paris", "wrong"),
        (r"\boxed{the Paris}", "Paris", "wrong"),
        (r"\boxed{6}", "6.0", "wrong"),  # no mathematics here
        (r"\boxed{?}", "!", "wrong"),
        ("Paris", "Paris", "unparsed"),
        (r"The answer is Paris \boxed{}", "Paris", "unparsed"),
    ],
)
def test_text(grader: Grader, solution: str, reference: str, outcome: str) -> None:
    (grade,) = grader.grade_many([(solution, Reference(reference, "text"), "stop")])
    assert grade.outcome == outcome


# Code


ADD = "```python\ndef add(a, b):\n    return a + b\n```"


def suite(*tests: Any, seconds: int = 20) -> Reference:
    return Reference(json.dumps({"tests": tests, "seconds": seconds}), "code")


def test_which_block_is_the_program() -> None:
    assert code.extract("no code") is None
    assert code.extract("```python\na\n```\nand\n```python\nb\n```\nprints\n```\nc\n```") == "b\n"
    assert code.extract("```\na\n```\n```text\nb\n```") == "a\n"
    assert code.extract("<chunk>```python\na\n</chunk>\n<chunk>b") == "a\n\nb"
    assert code.extract("```python\n```") is None
    assert code.extract("1. So:\n\n  ```py\n  if a:\n    b\n  ```\n") == "if a:\n  b\n"
    assert code.extract("```py\r\na\r\nb\r\n```\r\nDone.\r\n") == "a\nb\n"
    assert code.kept("a\nb\n").startswith("2 lines of Python (") and code.kept("a") == code.kept("a\n")


@pytest.fixture
def isolated() -> None:
    if reason := sandbox.refusal():
        pytest.skip(reason)


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize(
    ("program", "tests", "outcome"),
    [
        ("a, b = map(int, input().split())\nprint(a + b, '\\n')", [{"input": "3 4\n", "output": "7"}], "correct"),
        ("print(input())", [{"input": "a", "output": "a"}, {"input": "b", "output": "c"}], "wrong"),
        ("def add(a, b): return a + b", ["assert add(3, 4) == 7", {"call": "add", "args": [1, 2], "returns": 3}], "correct"),
        ("def add(a, b): return a - b", ["assert add(3, 4) == 7"], "wrong"),
        ("class Solution:\n  def f(self, *, x): return {x: (x / 3, {3, 1})}", [{"call": "Solution().f", "kwargs": {"x": 1}, "returns": {"1": [0.33333333333333, [1, 3]]}}], "correct"),
        ("print('7'); f = lambda: 8", [{"call": "f", "returns": 7}], "wrong"),
        ("f = lambda: True", [{"call": "f", "returns": 1}], "wrong"),
        ("f = lambda: object()", [{"call": "f", "returns": 1}], "wrong"),
        ("import sys; sys.exit(0)", ["assert add(3, 4) == 7"], "wrong"),
        ("import os; os._exit(0)", ["assert add(3, 4) == 7"], "wrong"),
        ("print('[7]'); import os; os.write(1, b'7'); os._exit(0)", [{"call": "f", "returns": 8}], "wrong"),
        ("from dataclasses import dataclass\nimport pickle\n@dataclass\nclass A:\n  x: int\nf = lambda: pickle.loads(pickle.dumps(A(7))).x", [{"call": "f", "returns": 7}, "assert f() == 7"], "correct"),
        ("(", [{"input": "", "output": ""}], "wrong"),
        ("import socket; socket.create_connection(('127.0.0.1', 80))", [{"input": "", "output": ""}], "wrong"),
    ],
)  # fmt: skip
def test_code(grader: Grader, program: str, tests: list[Any], outcome: str) -> None:
    (grade,) = grader.grade_many([(f"```python\n{program}\n```", suite(*tests), "stop")])
    assert grade.outcome == outcome


@pytest.mark.usefixtures("isolated")
def test_a_program_that_does_not_finish_is_wrong_and_delays_no_other(grader: Grader) -> None:
    endless = suite({"input": "", "output": "1"}, seconds=1)
    grader.submit("endless", "```python\nwhile True: pass\n```", endless, "stop")
    grader.submit("good", ADD, suite("assert add(1, 1) == 2"), "stop")
    assert grader.waiting == 2
    assert {key: grade.outcome for key, grade in grader.drain()} == {"endless": "wrong", "good": "correct"}
    assert grader.waiting == 0


@pytest.mark.usefixtures("isolated")
def test_a_program_that_began_in_the_prefix_is_read_whole(grader: Grader) -> None:
    begun = Reference(
        suite("assert add(1, 1) == 2").answer, "code", before="<chunk>```python\ndef add(a, b):\n</chunk>"
    )
    found = grader.grade_many(
        [("<chunk>    return a + b\n```</chunk>", begun, "stop"), ("nothing", begun, "length")]
    )
    assert [grade.outcome for grade in found] == ["correct", "truncated"]


def test_keys_of_the_cache_name_the_verifier() -> None:
    keys = {cache_key("a", Reference("b", name)) for name in VERIFIERS}
    assert len(keys) == len(VERIFIERS)
    assert cache_key("a", Reference("b", before="c")) == cache_key("a", Reference("b"))


def test_what_a_reader_is_told() -> None:
    one = suite("assert True")
    assert code.words(one.answer) == "passes 1 test, each within 20 s of processor time"
    assert code.words("nothing") == "nothing"
    assert [VERIFIERS[name].words("B. blue") for name in ("math", "choice", "text")] == ["B. blue"] * 3
    assert text.refusal() is None


def test_same_values() -> None:
    assert code.same([1, 2.0, "a", None, {"k": True}], [1.0, 2, "a", None, {"k": True}])
    for found, expected in (
        (1, True),
        (0.1, 0.2),
        ([1], [1, 2]),
        ({"a": 1}, {"b": 1}),
        ("1", 1),
        (10**400, 1.0),
        ([], {}),
    ):
        assert not code.same(found, expected)


# Mathematics read quickly

READ = [
    "5", "x^2+3x-4", r"\frac{1}{2}", r"\sqrt[3]{8}", r"(1, 2)", r"[0, 1)", r"\{1, 2\}", "1, 2", r"x=5", r"x \le 5",
    r"2\pi r", r"\frac{x+1}{y}", r"5\%", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\sin(x)+\cos 2x", r"|x-1|",
    r"(-\infty, 2] \cup [3, 4)", r"x \in \{1\}", r"\log_2 8", r"n!", r"\int_0^1 x dx", r"a_{1}+b", r"2\frac{1}{2}",
    r"\text{East}", r"f(x)=2x", r"1{,}000", "(", r"\frac{1}{", "^^", "x y z", r"-\frac{3}{4}i", r"\binom{5}{2}",
]  # fmt: skip


def test_the_quick_way_of_reading_gives_the_same_trees() -> None:
    from latex2sympy2_extended.latex2sympy2 import _Latex2Sympy
    from sympy import sympify
    from sympy.parsing import sympy_parser

    from engine.verifiers import quick_parse

    quick_parse.install()
    quick: Any = _Latex2Sympy.create_parser

    def tree(make: Any, latex: str) -> str:
        parser = make(_Latex2Sympy(), latex)
        try:
            return str(parser.math().toStringTree(recog=parser))
        except Exception as problem:  # noqa: BLE001  the listener raises nothing better
            return f"{type(problem).__name__}: {problem}"

    assert [tree(quick, latex) for latex in READ] == [tree(quick.__wrapped__, latex) for latex in READ]
    dear: Any = sympy_parser.parse_expr
    dear = dear.__wrapped__
    for written in ("x + 1/2", "max(1, y)", "2.50", "sin(pi/2)", "Integer(7)"):
        found, expected = sympify(written), dear(written)
        assert (found, type(found)) == (expected, type(expected))
