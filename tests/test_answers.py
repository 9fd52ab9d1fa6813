"""Grading: five outcomes, the last box, what counts as equal, and answers that would never finish."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.answers import Grade, Grader, Reference, cache_key, check_reference, extract
from engine.errors import GraderError, InputError
from engine.verifiers import math as mathematics

ENDLESS = "9**9**9**9"


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(limit_s=20) as grader:  # generous: the machine may be busy, and most tests want no time limit
        yield grader


def boxed(answer: str) -> str:
    return f"So the answer is $\\boxed{{{answer}}}$."


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
    ("0.333333", "1/3"), ("5.", "5"), ("5。", "5"), ("５", "5"), (r"\$5", "5"), ("−5", "-5"),
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
    ("5", "6"), ("0.333", "1/3"), ("1,000", "1"), ("-5", "5"), ("1e3", "1"), ("1e3", "1001"), ("2e-9", "3e-9"),
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
    ways += [f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}", f"${value}$"]
    ways += [f"{float(value):.{digits}f}" for digits in (1, 2, 6, 7)]
    return st.sampled_from(ways)


numbers = st.fractions(min_value=-2000, max_value=2000, max_denominator=12)


@settings(max_examples=150, deadline=None)
@given(st.data(), numbers, numbers, st.booleans())
def test_exact_path_says_what_math_verify_says(
    data: st.DataObject, first: Fraction, second: Fraction, same: bool
) -> None:
    answer, reference = data.draw(written(first)), data.draw(written(first if same else second))
    quick = mathematics.compare_here(answer, reference)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mathematics, "compare_here", lambda *_: None)
        slow = mathematics.compare(answer, reference)
    assert quick is None or quick == slow


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


def test_stuck_worker_is_killed_and_replaced() -> None:
    """The hard limit is the parent's: it holds where the worker's own limit would not come."""
    with Grader(workers=1, limit_s=20) as grader:
        assert grader.grade_many([(boxed("x+x"), Reference("2x"), "stop")])[0].outcome == "correct"
        (worker,) = grader._alive
        psutil.Process(worker.process.pid).suspend()  # as deaf as a long computation in C
        grader.limit_s = 0.5
        assert grader.grade_many([(boxed("x+2x"), Reference("3x"), "stop")]) == [Grade("error", "x+2x")]
        assert worker.process.poll() is not None
        grader.limit_s = 20
        assert grader.grade_many([(boxed("x+3x"), Reference("4x"), "stop")]) == [Grade("correct", "x+3x")]
        assert worker not in grader._alive and len(grader._alive) == 1


def test_worker_that_died_while_idle_costs_no_answer() -> None:
    with Grader(workers=1, limit_s=20) as grader:
        grader.grade_many([(boxed("x+x"), Reference("2x"), "stop")])
        (worker,) = grader._alive
        worker.process.kill()
        worker.process.wait()
        assert grader.grade_many([(boxed("x+2x"), Reference("3x"), "stop")]) == [Grade("correct", "x+2x")]


def test_close_ends_workers_even_stuck_ones() -> None:
    grader = Grader(workers=2, limit_s=60)
    grader.grade_many([(boxed(f"x+{i}"), Reference("x"), "stop") for i in range(2)])
    processes = [worker.process for worker in grader._alive]
    for process in processes:
        psutil.Process(process.pid).suspend()
    grader.submit("stuck", boxed("y"), Reference("x"), "stop")
    grader.close()
    assert processes and all(process.poll() is not None for process in processes)


def test_worker_that_cannot_start_is_a_named_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'No module named math_verify' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with (
        Grader(workers=1) as grader,
        pytest.raises(GraderError, match="a grading worker did not start: No module named math_verify"),
    ):
        grader.grade_many([(boxed("x+x"), Reference("2x"), "stop")])


def test_in_process_grading_outside_the_main_thread_says_what_to_use() -> None:
    caught: list[Exception] = []

    def work() -> None:
        try:
            mathematics.compare("x+x", "2x")
        except GraderError as problem:
            caught.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "use a Grader" in str(caught[0])
    assert mathematics.compare("x+x", "2x") == "correct"
    with pytest.raises(GraderError, match="not compared within"):
        mathematics.compare(ENDLESS, "5")


# Streams and the cache


class Kept:
    """A cache that counts."""

    def __init__(self) -> None:
        self.stored: dict[str, str] = {}
        self.asked: list[str] = []

    def get_many(self, keys: Sequence[str]) -> Mapping[str, str]:
        self.asked += keys
        return {key: self.stored[key] for key in keys if key in self.stored}

    def put_many(self, outcomes: Mapping[str, str]) -> None:
        self.stored.update(outcomes)


def test_cache_is_asked_once_and_keeps_no_errors() -> None:
    kept = Kept()
    items = [(boxed("x+x"), Reference("2x"), "stop")] * 5 + [
        (boxed(ENDLESS), Reference("5"), "stop"),
        (boxed("5"), Reference("5"), "stop"),
    ]
    with Grader(workers=1, limit_s=30, cache=kept) as grader:
        first = grader.grade_many(items)
        again = grader.grade_many(items)
    assert first == again
    assert [grade.outcome for grade in first] == ["correct"] * 5 + ["error", "correct"]
    assert kept.stored == {cache_key("x+x", Reference("2x")): "correct"}
    assert sorted(kept.asked) == sorted(
        [cache_key("x+x", Reference("2x")), cache_key(ENDLESS, Reference("5"))]
    )
    with Grader(cache=kept) as grader:  # another process: the cache answers, no worker starts
        assert grader.grade_many(items[:5]) == first[:5]
        assert grader._alive == set()


def test_keys_tell_answer_and_reference_apart() -> None:
    assert (
        len(
            {
                cache_key("a", Reference("b")),
                cache_key("b", Reference("a")),
                cache_key("ab", Reference("")),
                cache_key("", Reference("ab")),
            }
        )
        == 4
    )
    assert len(cache_key("\ud800", Reference("\0"))) == 64


def test_submitted_and_whole_batches_do_not_mix(grader: Grader) -> None:
    grader.submit("mine", boxed("5"), Reference("5"), "stop")
    assert grader.grade_many([(boxed("6"), Reference("5"), "stop")]) == [Grade("wrong", "6")]
    assert grader.results() == [("mine", Grade("correct", "5"))]
    assert grader.results() == grader.drain() == []


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(["5", "x+x", "2x", "no box", "y"]), max_size=8),
    st.randoms(use_true_random=False),
)
def test_every_key_comes_out_once_whatever_the_order(
    grader: Grader, answers: list[str], random: object
) -> None:
    expected = {"5": "wrong", "x+x": "correct", "2x": "correct", "no box": "unparsed", "y": "wrong"}
    keyed = list(enumerate(answers))
    random.shuffle(keyed)  # type: ignore[attr-defined]
    for key, answer in keyed:
        grader.submit(key, answer if answer == "no box" else boxed(answer), Reference("2x"), "stop")
    assert sorted((key, grade.outcome) for key, grade in grader.drain()) == [  # type: ignore[type-var]
        (key, expected[answer]) for key, answer in enumerate(answers)
    ]


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


# Where the workers come from


@pytest.mark.parametrize("way", ["-m", "script", "-c"])
def test_workers_import_little_and_start_from_any_main_module(way: str, tmp_path: Path) -> None:
    """From ``python -m``, a console script and ``-c``; the worker imports neither torch nor the main module."""
    program = tmp_path / "a_program.py"
    program.write_text(
        "import sys\n"
        "print('imported', __name__)\n"
        "from engine.answers import Grader, Reference\n"
        "import psutil\n"
        "with Grader(workers=1, limit_s=30) as grader:\n"
        "    print(grader.grade_many([(r'\\boxed{x+x}', Reference('2x'), 'stop')])[0].outcome)\n"
        "    (worker,) = grader._alive\n"
        "    maps = {m.path for m in psutil.Process(worker.process.pid).memory_maps()}\n"
        "    print('torch' if any('/torch/' in path for path in maps) else 'no torch')\n"
        "print('torch' if 'torch' in sys.modules else 'no torch')\n"
    )
    command = {"-m": ["-m", "a_program"], "script": [str(program)], "-c": ["-c", program.read_text()]}[way]
    root = str(Path(__file__).resolve().parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), root])}
    out = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert out.stdout.split("\n")[:-1] == ["imported __main__", "correct", "no torch", "no torch"]


# The field's own answers


def test_field_answers_equal_themselves(grader: Grader) -> None:
    folder = os.environ.get("STEPWISER_FIELD_DATA")
    if not folder:
        pytest.skip("STEPWISER_FIELD_DATA is not set")
    lines = Path(folder, "dev_slices", "math500_20.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert grader.reference_problems([row["answer"] for row in rows]) == [None] * 20
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
