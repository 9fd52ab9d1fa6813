"""Problems from files: every kind of bad line is named with its place, and the rest carries on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.answers import Grader
from engine.errors import InputError
from engine.formats.rows import Rejected, Row, read_rows
from engine.problems import ProblemRow, read_problems

GOOD: dict[str, Any] = {"id": "good", "problem": "What is 2 + 2?", "answer": "4"}


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(workers=1, limit_s=20) as grader:
        yield grader


def lines(path: Path, *rows: dict[str, Any] | str | bytes) -> Path:
    encoded = [
        row if isinstance(row, bytes) else row.encode() if isinstance(row, str) else json.dumps(row).encode()
        for row in rows
    ]
    path.write_bytes(b"\n".join(encoded) + b"\n")
    return path


BAD_LINES = [
    ('{"problem": "p", "answer": = 4}', "broken JSON at column 28: Expecting value", None),
    ('{"problem": "p", "answer": "4"', "broken JSON at column 31: Expecting ','", None),
    ('["p", "4"]', "a JSON object was expected, and this is a list", None),
    ('{"n": ' + "1" * 5000 + "}", "JSON that cannot be read", None),
    ("[" * 100_000, "JSON that cannot be read", None),
    (b'{"problem": "\xff", "answer": "4"}', "not UTF-8 at byte 13", None),
    ({"id": "bad", "answer": "4"}, "the field 'problem' or 'question' is missing", "bad"),
    ({"id": "bad", "problem": None, "answer": "4"}, "the field 'problem' or 'question' is missing", "bad"),
    ({"id": "bad", "problem": "p"}, "the field 'answer' is missing", "bad"),
    ({"id": "bad", "problem": "", "answer": "4"}, "problem is empty", "bad"),
    ({"id": "bad", "question": " \n", "answer": "4"}, "question is empty", "bad"),
    ({"id": 7, "problem": ["p"], "answer": "4"}, r"problem is \['p'\], and a text was expected", "7"),
    ({"id": "bad", "problem": "p", "answer": ""}, "answer is empty", "bad"),
    ({"id": "bad", "problem": "p", "answer": True}, "answer is True, and a text was expected", "bad"),
    ('{"id": "bad", "problem": "p", "answer": NaN}', "answer is nan, and a text was expected", "bad"),
    ({"id": "bad", "problem": "p", "answer": r"\frac{1}{"}, "braces that do not match", "bad"),
    ({"id": "bad", "problem": "p", "answer": "?"}, r"'\?' cannot be read as mathematics", "bad"),
    ({"id": "bad", "problem": "p", "answer": "9**9**9**9"}, "cannot be computed", "bad"),
    ({"id": "bad", "problem": "p\0q", "answer": "4"}, "problem holds the character NUL at position 1", "bad"),
    ({"id": "bad", "problem": "p", "answer": "4\0"}, "answer holds the character NUL at position 1", "bad"),
    ({"id": "a\0b", "problem": "p", "answer": "4"}, "id holds the character NUL", "a\0b"),
    ({"id": "bad", "problem": "p \ud800", "answer": "4"}, "problem is not valid text at position 2", "bad"),
    ({"id": "x" * 201, "problem": "p", "answer": "4"}, "the id has 201 characters", "x" * 200),
    ({"id": "good", "problem": "p", "answer": "4"}, "the id was used in line 1 already", "good"),
    ({"problem": "Again?", "answer": "4"}, "the same problem and answer as line 2", None),
]


@pytest.mark.parametrize(("bad", "message", "item_id"), BAD_LINES)
def test_bad_line_is_named_and_the_rest_carries_on(
    tmp_path: Path, grader: Grader, bad: dict[str, Any] | str | bytes, message: str, item_id: str | None
) -> None:
    again = {"problem": "Again?", "answer": "4"}
    path = lines(tmp_path / "mine.jsonl", GOOD, again, bad, {**GOOD, "id": "after"})
    found = list(read_problems(path, grader))
    (rejected,) = [row for row in found if isinstance(row, Rejected)]
    assert (rejected.file, rejected.line, rejected.id) == (str(path), 3, item_id)
    with pytest.raises(InputError, match=message):
        raise InputError(rejected.reason)
    place = f"mine.jsonl:3{f', id {item_id!r}' if item_id else ''}: "
    assert place in str(rejected)
    assert [row.key for row in found if isinstance(row, ProblemRow)][::2] == ["good", "after"]


def test_what_is_read(tmp_path: Path, grader: Grader) -> None:
    path = lines(
        tmp_path / "mine.jsonl",
        b"\xef\xbb\xbf" + json.dumps({"question": " 1 + 1? ", "answer": 2, "more": [1]}).encode(),
        "",
        {"id": 5, "dataset": "d", "problem": "甲乙？", "answer": "\\frac{1}{2}"},
        {"id": 5, "dataset": "e", "problem": "甲乙？", "answer": "0.5"},
        {"id": "", "dataset": "", "problem": "p", "answer": "2 + 1 = <<2+1=3>>3\n#### 1,003"},
    )
    found = [row for row in read_problems(path, grader) if isinstance(row, ProblemRow)]
    assert [(row.dataset, row.text, row.answer, row.row.line) for row in found] == [
        (None, "1 + 1?", "2", 1),
        ("d", "甲乙？", "\\frac{1}{2}", 3),
        ("e", "甲乙？", "0.5", 4),
        (None, "p", "1,003", 5),
    ]
    assert [row.key for row in found][1:3] == ["5", "5"]
    again = [row.key for row in read_problems(path, grader) if isinstance(row, ProblemRow)]
    assert again == [row.key for row in found]  # an id made up for a line is the same another time
    assert len({row.key for row in found}) == 3


def test_more_problems_than_are_checked_at_once_keep_their_order(tmp_path: Path, grader: Grader) -> None:
    rows = [{"id": i, "problem": f"p{i}", "answer": "?" if i % 50 == 3 else f"{i}"} for i in range(200)]
    found = list(read_problems(lines(tmp_path / "many.jsonl", *rows), grader))
    assert [row.row.line if isinstance(row, ProblemRow) else row.line for row in found] == list(range(1, 201))
    assert [row.line for row in found if isinstance(row, Rejected)] == [4, 54, 104, 154]


def test_tables(tmp_path: Path, grader: Grader) -> None:
    path = tmp_path / "mine.csv"
    path.write_bytes(
        "\ufeffid,problem,answer\r\n"
        'a,"Two lines,\r\nand a comma",4\r\n'
        "b,too,many,fields\r\n"
        "c,no answer\r\n"
        "d,,4\r\n"
        'e,"broken"quote,4\r\n'
        "f,last,0.5\r\n".encode()
        + b"g,\xff,4\r\n"
    )
    found = list(read_problems(path, grader))
    assert [(row.key, row.text, row.answer) for row in found if isinstance(row, ProblemRow)] == [
        ("a", "Two lines,\r\nand a comma", "4"),
        ("f", "last", "0.5"),
    ]
    assert [(row.line, row.id, row.reason.split(":")[0]) for row in found if isinstance(row, Rejected)] == [
        (4, "b", "more fields than the header names"),
        (5, "c", "the field 'answer' is missing"),
        (6, "d", "problem is empty"),
        (7, None, "broken table row, read up to line 7"),
        (9, "g", "problem is not valid text at position 0"),
    ]
    tabs = tmp_path / "mine.tsv"
    tabs.write_text("problem\tanswer\nsum, of 2\t4\n")
    assert [row.text for row in read_problems(tabs, grader) if isinstance(row, ProblemRow)] == ["sum, of 2"]


def test_lines_of_a_table_are_those_of_the_file(tmp_path: Path) -> None:
    """Behind the header, blank lines and a broken row, and in front of an unclosed quotation mark."""
    path = tmp_path / "lines.csv"
    path.write_text('\n\nproblem,answer\na,1\n\n\n"b\nb",2\n"c"c,3\nd,4\n"e,5\nf,6\n')
    found = list(read_rows(path))
    assert [(row.line, row.fields["problem"]) for row in found if isinstance(row, Row)] == [
        (4, "a"),
        (7, "b\nb"),
        (10, "d"),
    ]
    assert [(row.line, row.reason.split(":")[0]) for row in found if isinstance(row, Rejected)] == [
        (9, "broken table row, read up to line 9"),
        (11, "broken table row, read up to line 12"),
    ]


def test_a_long_cell_of_a_table_is_one_cell(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    long = "x" * 200_000 + "\nnot,a row\n"
    path.write_text(f'problem,answer\n"{long}",1\n')
    assert [row.fields for row in read_rows(path) if isinstance(row, Row)] == [
        {"problem": long, "answer": "1"}
    ]


def test_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.jsonl: cannot read the file: No such file"):
        list(read_problems(tmp_path / "nowhere.jsonl"))
    with pytest.raises(InputError, match="cannot read the file: Is a directory"):
        list(read_problems(tmp_path))


def test_empty_file_has_no_problems(tmp_path: Path) -> None:
    for name in ("empty.jsonl", "empty.csv"):
        (tmp_path / name).touch()
        assert list(read_problems(tmp_path / name)) == []


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=40), max_size=8), st.sampled_from([".jsonl", ".csv"]))
def test_any_bytes_are_read_or_rejected(tmp_path: Path, content: list[bytes], suffix: str) -> None:
    path = tmp_path / f"bytes{suffix}"
    path.write_bytes(b"\n".join(content))
    assert all(isinstance(row, Row | Rejected) for row in read_rows(path))


@pytest.mark.parametrize("line", [120, 750])
def test_broken_line_of_the_field(grader: Grader, line: int) -> None:
    folder = os.environ.get("STEPWISER_FIELD_DATA")
    if not folder:
        pytest.skip("STEPWISER_FIELD_DATA is not set")
    found = list(read_problems(Path(folder, "nasty", f"gsm8k_broken_line_{line}.jsonl"), grader))
    (rejected,) = [row for row in found if isinstance(row, Rejected)]
    assert rejected.line == 11 and "broken JSON at column" in str(rejected)
    assert len(found) == 21


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("nasty/nan_mmlu_stem.jsonl", 10),
        ("dev_slices/gsm8k_test_20.jsonl", 20),
        ("dev_slices/math500_20.jsonl", 20),
        ("cjk/gaokao_math_cloze.jsonl", 110),
    ],
)
def test_problems_of_the_field(grader: Grader, name: str, taken: int) -> None:
    folder = os.environ.get("STEPWISER_FIELD_DATA")
    if not folder:
        pytest.skip("STEPWISER_FIELD_DATA is not set")
    found = list(read_problems(Path(folder, name), grader))
    assert sum(isinstance(row, ProblemRow) for row in found) >= taken
    if "gsm8k" in name:
        assert [row.answer for row in found if isinstance(row, ProblemRow)][:3] == ["18", "3", "70000"]


# Problems of other verifiers than mathematics


TESTS = [
    "assert add(1, 2) == 3",
    {"input": "1 2", "output": "3"},
    {"call": "add", "args": [1, 2], "returns": 3},
]


def test_problems_name_their_verifier(tmp_path: Path, grader: Grader) -> None:
    path = lines(
        tmp_path / "mixed.jsonl",
        {"problem": "m", "answer": "2", "verifier": ""},
        {"problem": "c", "answer": 1, "verifier": "choice", "choices": ["red", "blue"]},
        {"problem": "d", "answer": "(b)", "verifier": "choice"},
        {"problem": "t", "answer": "#### Paris?", "verifier": "text"},
        {"problem": "f", "verifier": "code", "tests": TESTS, "seconds": 2},
    )
    found = list(read_problems(path, grader))
    assert [(row.verifier, row.text, row.answer) for row in found if isinstance(row, ProblemRow)] == [
        ("math", "m", "2"),
        ("choice", "c\n\nA. red\nB. blue", "B. blue"),
        ("choice", "d", "B"),
        ("text", "t", "#### Paris?"),
        ("code", "f", json.dumps({"tests": TESTS, "seconds": 2})),
    ]
    again = [{"problem": row.text, "answer": row.answer, "verifier": row.verifier} for row in found]  # type: ignore[union-attr]
    read = read_problems(lines(tmp_path / "again.jsonl", *again), grader)
    assert [row.answer for row in read] == [row.answer for row in found]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"verifier": "maths", "answer": "4"}, "verifier is 'maths'; use one of math, choice, text, code"),
        ({"verifier": 7, "answer": "4"}, "verifier is '7'; use one of"),
        ({"verifier": "choice", "answer": "blue"}, "'blue' is no letter of an option; give a letter such as B"),
        ({"verifier": "choice", "answer": "C", "choices": ["red", "blue"]}, "is none of the choices"),
        ({"verifier": "choice", "answer": "A", "choices": ["red", "b\0"]}, "choice B holds the character NUL"),
        ({"verifier": "choice", "answer": "A", "choices": "red"}, "a list of texts was expected"),
        ({"verifier": "text", "answer": " "}, "answer is empty"),
        ({"verifier": "code"}, "the field 'tests' is missing: a list of tests that a program must pass"),
        ({"verifier": "code", "answer": "4"}, "the tests must stand in an object"),
        ({"verifier": "code", "answer": "x"}, "the tests are no JSON: Expecting value"),
        ({"verifier": "code", "tests": []}, "tests must be a list of at least one test"),
        ({"verifier": "code", "tests": ["1"] * 201}, "there are 201 tests; 200 are the most"),
        ({"verifier": "code", "tests": ["1"], "seconds": 0}, "seconds is 0; give whole seconds from 1 to 60"),
        ({"verifier": "code", "tests": [7]}, "test 1: 7 is no test; give an object, or an assertion as a text"),
        ({"verifier": "code", "tests": [{}]}, "test 1: a test needs input and output, call and returns, or assert"),
        ({"verifier": "code", "tests": ["1", "a b"]}, "test 2: 'a b' is no Python: invalid syntax"),
        ({"verifier": "code", "tests": [" "]}, "test 1: assert is empty"),
        ({"verifier": "code", "tests": [{"input": "1"}]}, "test 1: output is None, and a text was expected"),
        ({"verifier": "code", "tests": [{"call": "f"}]}, "test 1: a call needs returns, the value that is right"),
        ({"verifier": "code", "tests": [{"call": "f", "returns": 1, "args": 2}]}, "args must be a list"),
        ({"verifier": "code", "tests": [{"input": "", "output": "", "x": 1}]}, "unknown field 'x'; such a test has"),
        ({"verifier": "code", "tests": ["'" + "x" * (1 << 20) + "'"]}, "1,048,576 are the most"),
    ],
)  # fmt: skip
def test_what_another_verifier_cannot_use_is_named(
    tmp_path: Path, grader: Grader, fields: dict[str, Any], message: str
) -> None:
    (rejected,) = read_problems(
        lines(tmp_path / "bad.jsonl", {"id": "bad", "problem": "p", **fields}), grader
    )
    assert isinstance(rejected, Rejected) and message in rejected.reason
