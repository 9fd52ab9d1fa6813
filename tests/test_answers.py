"""Grading: five outcomes, the last box, what counts as equal, and answers that would never finish."""

from __future__ import annotations

import json
import os
from fractions import Fraction
from pathlib import Path

import math_verify
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.answers import Grade, Grader, Reference, check_reference, extract
from engine.errors import InputError
from engine.verifiers import math as mathematics
from tests.graded import ENDLESS, boxed, grader

__all__ = ["grader"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", None),
        ("no box: 5", None),
        (r"\boxed{}", None),
        (r"\boxed{ }", None),
        (r"\boxed{5}", "5"),
        (r"first \boxed{4}, no: \boxed{5} it is", "5"),
        (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{4} and then \boxed{5", "4"),
        ("所以答案是\\boxed{12}元。谢谢！", "12"),
        ("\0\\boxed{5}\0", "5"),
        ("<chunk>2+3=5</chunk>\n\\boxed{5}", "5"),
    ],
)
def test_extract(text: str, answer: str | None) -> None:
    assert extract(text) == answer


@pytest.mark.parametrize(
    ("text", "finish_reason", "expected"),
    [
        ("", "stop", Grade("unparsed", None)),
        ("\0", "stop", Grade("unparsed", None)),
        ("the answer is 5", "stop", Grade("unparsed", None)),
        (r"\boxed{5}", "stop", Grade("correct", "5")),
        (r"\boxed{5}", None, Grade("correct", "5")),
        (r"\boxed{6}", "stop", Grade("wrong", "6")),
        (r"\boxed{6} or rather \boxed{5}", "stop", Grade("correct", "5")),
        (r"\boxed{5} or rather \boxed{6}", "stop", Grade("wrong", "6")),
        (r"\boxed{5} and on and on", "length", Grade("truncated", "5")),
        ("on and on", "length", Grade("truncated", None)),
        ("", "error", Grade("error", None)),
        (r"\boxed{5}", "error", Grade("error", None)),
    ],
)
def test_five_outcomes(text: str, finish_reason: str | None, expected: Grade) -> None:
    with Grader(workers=1) as grader:
        assert grader.grade_many([(text, Reference("5"), finish_reason)]) == [expected]
        assert grader._alive == set()  # nothing here needs a process


EQUAL = [
    # plain numbers
    ("5", "5"), ("5.0", "5"), ("005", "5"), ("1,000", "1000"), ("1,234.50", "1234.5"), ("-3", "-3"), (".5", "1/2"),
    ("1/2", r"\frac{1}{2}"), ("6/8", r"\frac34"), (r"\dfrac{3}{4}", "0.75"), ("$5$", "5"), ("-1/2", r"-\frac{1}{2}"),
    (r"10\,000", "10000"), (r"1\,234\,567.5", "1234567.5"), ("10 000", "10,000"), (r"\frac{1\ 000}{3}", "1000/3"),
    (r"(1, 2~000)", "(1,2000)"), ("0.333333", "1/3"), ("5.", "5"), ("5。", "5"), ("５", "5"), (r"\$5", "5"), ("−5", "-5"),
    # e-notation
    ("1e3", "1000"), ("1E3", "1000"), ("1.5e-3", "0.0015"), ("2.5e2", "250"), ("6.02e23", r"6.02 \times 10^{23}"),
    ("1000", "1e3"), ("2e-9", r"2 \times 10^{-9}"), ("-1e-2", r"-\frac{1}{100}"),
    (r"2 \times 10^3", "2000"), ("1.5×10^4", "15,000"), ("1e3", r"100\sqrt{100}"), ("1.e2", "100"),
    # per cent
    ("50%", "50%"), (r"50\%", "0.5"), ("50", r"50\%"), ("0.5", "50%"), (r"12.5\%", r"\frac{1}{8}"),
    # surds, powers
    (r"\sqrt{8}", r"2\sqrt{2}"), (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}"), (r"2^{10}", "1024"), ("2**3", "8"),
    # sets, tuples, intervals
    (r"\{1,2\}", r"\{2,1\}"), ("1, 2", r"\{1,2\}"), ("(1,2)", "(1,2)"), ("[0, 1)", "[0,1)"),
    (r"(-\infty, 2]", r"(-\infty,2]"), (r"\left( 3, \frac{\pi}{2} \right)", r"(3, \frac{\pi}{2})"),
    # equations, units, words
    ("x=5", "5"), (r"5\text{ cm}", "5"), ("12元", "12"), ("12 平方厘米", "12"), (r"\text{East}", "East"), ("星期三", "星期三"),
    ("$5$;$10$", "$5$;$10$"), ("4-i", r"$4-\mathrm{i}$"), ("\0007", "7"),
]  # fmt: skip

DIFFERENT = [
    ("5", "6"), (r"10\,000", "0"), ("10 000", "10"), (r"\begin{pmatrix}1 \\ 234\end{pmatrix}", "1234"), ("0.333", "1/3"), ("1,000", "1"), ("-5", "5"), ("1e3", "1"), ("1e3", "1001"), ("2e-9", "3e-9"),
    ("2e-9", "0"), ("2e-9", r"3 \times 10^{-9}"), (r"2.5 \times 10^{-9}", r"2.6 \cdot 10^{-9}"), ("2.718", "1e1"), (r"\sqrt{8}", r"2\sqrt{3}"), (r"\{1,2\}", r"\{1,3\}"),
    ("[0,1]", "[0,1)"), ("50%", "5"), ("5万", "5"), ("星期三", "星期四"), ("?", "5"), ("I don't know", "5"), ("x", "5"),
    (r"\{1,2", "5"), (r"\frac{1}{0}", "5"),
]  # fmt: skip


def test_what_counts_as_equal(grader: Grader) -> None:
    grades = grader.grade_many([(boxed(answer), Reference(reference), "stop") for answer, reference in EQUAL])
    assert [pair for pair, grade in zip(EQUAL, grades, strict=True) if grade.outcome != "correct"] == []


def test_what_counts_as_different(grader: Grader) -> None:
    grades = grader.grade_many(
        [(f"\\boxed{{{answer}}}", Reference(reference), "stop") for answer, reference in DIFFERENT]
    )
    unlike = [
        (*pair, grade.outcome)
        for pair, grade in zip(DIFFERENT, grades, strict=True)
        if grade.outcome != ("unparsed" if pair[0] == r"\{1,2\\" else "wrong")
    ]
    assert unlike == []


# The exact path


def written(value: Fraction) -> st.SearchStrategy[str]:
    ways = [str(value), f"{value.numerator:,}" if value.denominator == 1 else str(value)]
    sign = "-" if value < 0 else ""
    ways += [f"{sign}\\{frac}{{{abs(value.numerator)}}}{{{value.denominator}}}" for frac in ("frac", "dfrac")]
    ways += [f"${value}$", f" {value} ", f"{sign}0{abs(value)}"]
    ways += [f"{float(value):.{digits}f}" for digits in (1, 2, 6, 7)]
    ways += [f"{float(value):.2f}".replace("0.", ".", 1)]
    # what math-verify errs at
    ways += [
        f"{value}.",
        f"{float(value):.3e}",
        f"{value}".translate({48 + i: 0xFF10 + i for i in range(10)}),
    ]
    return st.sampled_from(ways)


numbers = st.fractions(min_value=-2000, max_value=2000, max_denominator=12)
ERRS_AT = {
    "e-notation": lambda text: "e" in text.replace("frac", ""),
    "a full stop behind": lambda text: text.strip().endswith("."),
    "full-width digits": lambda text: not text.isascii(),
}
"""Where math-verify reads a plain number as something else, and the exact path does not follow it."""


@settings(max_examples=300, deadline=None)
@given(st.data(), numbers, numbers, st.booleans())
def test_exact_path_says_what_math_verify_says(
    data: st.DataObject, first: Fraction, second: Fraction, same: bool
) -> None:
    answer, reference = data.draw(written(first)), data.draw(written(first if same else second))
    quick = mathematics.compare_here(answer, reference)
    if quick is None:
        return
    if any(errs(text) for errs in ERRS_AT.values() for text in (answer, reference)):
        read = [mathematics._number(mathematics.clean(text)) for text in (answer, reference)]
        assert None not in read and (quick == "correct") == (read[0].value == read[1].value)  # type: ignore[union-attr]
        return
    gold, target = (
        math_verify.parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (reference, answer)
    )
    assert (quick == "correct") == math_verify.verify(gold, target, timeout_seconds=None)


@pytest.mark.parametrize(("text", "value"), [("1e3", 1000), ("5.", 5), ("５", 5), ("2.5e-1", 0.25)])
def test_math_verify_errs_at_what_is_listed(text: str, value: float) -> None:
    """Should a newer math-verify read these, the list can be shortened."""
    assert any(errs(text) for errs in ERRS_AT.values())
    assert mathematics.compare_here(text, str(value)) == "correct"
    gold, target = (
        math_verify.parse(f"\\boxed{{{one}}}", parsing_timeout=None) for one in (str(value), text)
    )
    assert not math_verify.verify(gold, target, timeout_seconds=None)


@given(numbers)
def test_numbers_equal_themselves_without_a_worker(value: Fraction) -> None:
    assert mathematics.compare_here(str(value), str(value)) == "correct"
    assert mathematics.compare_here(str(value), str(value + 1)) == "wrong"


@pytest.mark.parametrize(
    ("answer", "reference"),
    [("5", "x"), ("50%", "50"), ("1/0", "5"), ("9" * 31, "5"), ("", "5"), ("0.3333333", "1/3")],
)
def test_exact_path_leaves_the_rest_to_math_verify(answer: str, reference: str) -> None:
    assert mathematics.compare_here(answer, reference) is None


# Answers that do not finish


def test_endless_answers_are_errors_and_delay_no_other(grader: Grader) -> None:
    """The others come out while an endless one is still being worked on, and their order does not matter."""
    with Grader(workers=2, limit_s=30) as own:
        own.grade_many([(boxed(f"x+{i}"), Reference("x"), "stop") for i in range(2)])  # both workers are up
        own.submit("endless", boxed(ENDLESS), Reference("5"), "stop")
        others = {i: (f"{i}+\\sqrt{{2}}", f"\\sqrt{{2}}+{i}") for i in range(20)}
        own.submit_many(
            (i, boxed(answer), Reference(reference), "stop") for i, (answer, reference) in others.items()
        )
        done: list[object] = []
        grades = {}
        while len(grades) < 21:
            for key, grade in own.results():
                done.append(key)
                grades[key] = grade
        assert grades.pop("endless") == Grade("error", ENDLESS)
        assert {grade.outcome for grade in grades.values()} == {"correct"}


@pytest.mark.parametrize(
    "answer",
    [ENDLESS, "9^{9^{9^{9}}}", "10^{10^{10}}", "99999999!", "(" * 300 + "1" + ")" * 300, "\\frac{1}{" * 200 + "2" + "}" * 200],
    ids=["python power", "tower", "googolplex", "factorial", "parentheses", "fractions"],
)  # fmt: skip
def test_hostile_answers_are_errors_or_wrong_in_time(grader: Grader, answer: str) -> None:
    hostile, plain = grader.grade_many(
        [(boxed(answer), Reference("5"), "stop"), (boxed("x+x"), Reference("2x"), "stop")]
    )
    assert hostile.outcome in (
        "error",
        "wrong",
    )  # the nested fractions are a number, if there is time to find it
    assert plain.outcome == "correct"


# References


@pytest.mark.parametrize(
    "reference", [r"\frac{1}{2}", "(1,2)", "50%", "东", "two words", "1e3", "18", r"\text{(C)}"]
)
def test_good_references(grader: Grader, reference: str) -> None:
    check_reference(Reference(reference), grader)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("", "the answer is empty"),
        ("  。", "the answer is empty"),
        (r"\frac{1}{", "braces that do not match"),
        ("5}", "braces that do not match"),
        ("?", "cannot be read as mathematics"),
        (r"\frac{1}{0}", "cannot be computed"),
        (ENDLESS, "cannot be computed"),
        ("10^{10^{10}}", "cannot be computed"),
    ],
)
def test_bad_references(grader: Grader, reference: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_reference(Reference(reference), grader)


def test_check_reference_opens_its_own_grader() -> None:
    check_reference(Reference("5"))
    check_reference(Reference("2x"))


# The field's own answers


def test_field_answers_equal_themselves(grader: Grader) -> None:
    folder = os.environ.get("STEPWISER_FIELD_DATA")
    if not folder:
        pytest.skip("STEPWISER_FIELD_DATA is not set")
    lines = Path(folder, "dev_slices", "math500_20.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert grader.reference_problems([Reference(row["answer"]) for row in rows]) == [None] * 20
    grades = grader.grade_many([(row["solution"], Reference(row["answer"]), None) for row in rows])
    assert {grade.outcome for grade in grades} == {"correct"}
    lines = Path(folder, "cjk", "mgsm_zh.jsonl").read_text(encoding="utf-8").splitlines()
    answers = [json.loads(line)["answer"] for line in lines]
    grades = grader.grade_many(
        [(f"所以一共是\\boxed{{{answer}元}}。", Reference(answer), None) for answer in answers]
    )
    assert {grade.outcome for grade in grades} == {"correct"}


def test_field_model_outputs_are_graded_as_their_authors_graded_them(grader: Grader) -> None:
    folder = os.environ.get("STEPWISER_FIELD_DATA")
    if not folder:
        pytest.skip("STEPWISER_FIELD_DATA is not set")
    path = Path(folder, "dev_slices", "math500_instruct_outputs_20.jsonl")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert {"code", "answer", "score"} <= set(rows[0])
    grades = grader.grade_many([(row["code"][0], Reference(row["answer"]), None) for row in rows])
    assert [grade.outcome == "correct" for grade in grades] == [row["score"][0] for row in rows]
