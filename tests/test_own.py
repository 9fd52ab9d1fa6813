"""One's own solutions: every way to write them, and what is wrong with one leaves the others alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from engine.answers import Grader
from engine.chunks import rejoin
from engine.errors import InputError
from engine.formats.own import OwnProblem, OwnReview, OwnSolution, read_own
from engine.formats.rows import Rejected

TAGGED = "<chunk>2 + 2</chunk>\n<chunk>is 4</chunk>\n\\boxed{4}"
PROBLEM: dict[str, Any] = {"id": "p", "problem": "What is 2 + 2?", "answer": "4"}


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(workers=1, limit_s=20) as grader:
        yield grader


def read(
    tmp_path: Path, grader: Grader, *rows: dict[str, Any] | str, cutter: str | None = None
) -> tuple[list[OwnProblem], list[Rejected]]:
    path = tmp_path / "own.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    found = list(read_own(path, cutter, grader))
    return [row for row in found if isinstance(row, OwnProblem)], [
        row for row in found if isinstance(row, Rejected)
    ]


def chunks(solution: OwnSolution) -> list[str]:
    return [chunk.text for chunk in solution.cut.chunks]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []),
        ({"solutions": []}, []),
        ({"solution": TAGGED}, [["2 + 2", "is 4"]]),
        ({"steps": ["2 + 2", "is \\boxed{4}"]}, [["2 + 2", "is \\boxed{4}"]]),
        ({"solutions": [TAGGED]}, [["2 + 2", "is 4"]]),
        ({"solutions": [{"text": TAGGED}, {"steps": ["a"]}]}, [["2 + 2", "is 4"], ["a"]]),
        ({"solution": TAGGED, "solutions": ["a\n\nb"]}, [["2 + 2", "is 4"], ["a", "b"]]),
        ({"solution": "a\n\nb\n\n\\boxed{4}"}, [["a", "b"]]),
    ],
)
def test_ways_to_write_solutions(
    tmp_path: Path, grader: Grader, fields: dict[str, Any], expected: list[list[str]]
) -> None:
    (problem,), rejected = read(tmp_path, grader, {**PROBLEM, **fields})
    assert rejected == []
    assert (problem.key, problem.dataset, problem.text, problem.answer) == ("p", None, "What is 2 + 2?", "4")
    assert [chunks(solution) for solution in problem.solutions] == expected
    assert {solution.policy for solution in problem.solutions} <= {"human"}
    assert all(solution.note is None for solution in problem.solutions)


def test_texts_rejoin_with_all_their_white_space(tmp_path: Path, grader: Grader) -> None:
    text = "  <chunk>a </chunk>\r\n\n" + "\\boxed{4}\n "
    (problem,), _ = read(tmp_path, grader, {**PROBLEM, "solution": text})
    assert rejoin(problem.solutions[0].cut) == text


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("<chunk>a\n\nb \\boxed{4}", "<chunk> is never closed at character 0"),
        ("<chunk>a<chunk>b</chunk></chunk>", "<chunk> inside the chunk opened at character 0 at character 8"),
        ("a</chunk>", "</chunk> without <chunk> before it at character 1"),
    ],
)
def test_malformed_tags_are_noted_with_their_place_and_the_text_is_kept(
    tmp_path: Path, grader: Grader, text: str, note: str
) -> None:
    (problem,), rejected = read(tmp_path, grader, {**PROBLEM, "solutions": [TAGGED, text]})
    assert rejected == []
    solution = problem.solutions[1]
    assert solution.cut.cutter == "blank-line" and rejoin(solution.cut) == text
    assert solution.note is not None
    assert solution.note.startswith("own.jsonl:1, solution 2: chunk tags unusable") and note in solution.note


def test_a_named_cutter_is_used_and_named_tags_are_insisted_on(tmp_path: Path, grader: Grader) -> None:
    row = {**PROBLEM, "solutions": ["One. Two.", "<chunk>a", {"steps": ["One. Two."]}]}
    (problem,), rejected = read(tmp_path, grader, row, cutter="sentence")
    assert [chunks(solution) for solution in problem.solutions] == [
        ["One.", "Two."],
        ["<chunk>a"],
        ["One. Two."],
    ]
    assert rejected == []
    (problem,), rejected = read(tmp_path, grader, row, cutter="tags")
    assert [str(row).split("own.jsonl")[1] for row in rejected] == [
        ":1, id 'p': solution 2: <chunk> is never closed at character 0"
    ]
    assert len(problem.solutions) == 2


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("", "solution 2: its text is empty"),
        (" \n", "solution 2: its text is empty"),
        ("a\0b", "solution 2: its text holds the character NUL at position 1"),
        ("a\ud800", "solution 2: its text is not valid text"),
        (5, "solution 2: a text, "),
        (None, "solution 2: a text, "),
        ({}, "solution 2: a text, "),
        ({"text": ["a"]}, "solution 2: a text, "),
        ({"steps": []}, "solution 2: steps must be a list of texts"),
        ({"steps": ["a", 2]}, "solution 2: steps must be a list of texts"),
        ({"steps": ["a", ""]}, "solution 2: step 1 is empty"),
        ({"text": "a", "policy": 5.5e400}, "solution 2: policy is inf"),
        ({"text": "a", "policy": "p" * 201}, "solution 2: the policy's name has 201 characters"),
    ],
)
def test_bad_solution_is_named_and_the_others_are_kept(
    tmp_path: Path, grader: Grader, bad: object, message: str
) -> None:
    problems, rejected = read(
        tmp_path, grader, {**PROBLEM, "solutions": [TAGGED, bad, "other"]}, {**PROBLEM, "id": "q"}
    )
    assert [len(problem.solutions) for problem in problems] == [2, 0]
    assert [(row.line, row.id) for row in rejected] == [(1, "p")]
    assert rejected[0].reason.startswith(message)


def test_solutions_that_are_no_list(tmp_path: Path, grader: Grader) -> None:
    (problem,), rejected = read(tmp_path, grader, {**PROBLEM, "solutions": "text"})
    assert problem.solutions == ()
    assert [row.reason for row in rejected] == ["solutions is no list; put the solutions into [ ]"]


def test_reviews(tmp_path: Path, grader: Grader) -> None:
    reviews = [
        {"chunk": 0, "verdict": 1, "comment": " good ", "reviewer": "ada", "at": "2026-10-05T09:00:00Z"},
        {"chunk": 1, "verdict": -1, "reviewer": "ada", "at": "2026-10-05T09:00:00+02:00"},
        {"chunk": 1, "verdict": 0, "reviewer": "emil", "at": "2026-10-05"},
        {"chunk": 1, "verdict": None, "comment": "", "reviewer": "noor"},
    ]
    row = {**PROBLEM, "solution": TAGGED, "policy": "ada", "reviews": reviews}
    (problem,), rejected = read(tmp_path, grader, row)
    assert rejected == []
    assert problem.solutions[0].policy == "ada"
    assert problem.solutions[0].reviews == (
        OwnReview(0, 1, "good", "ada", datetime(2026, 10, 5, 9, tzinfo=UTC)),
        OwnReview(1, -1, "", "ada", datetime(2026, 10, 5, 9, tzinfo=timezone(timedelta(hours=2)))),
        OwnReview(1, 0, "", "emil", datetime(2026, 10, 5, tzinfo=UTC)),
        OwnReview(1, None, "", "noor", None),
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chunk": 2}, "chunk is 2, and the solution has the chunks 0 to 1"),
        ({"chunk": -1}, "chunk is -1"),
        ({"chunk": "0"}, "chunk is '0'"),
        ({"chunk": True}, "chunk is True"),
        ({"verdict": 2}, "verdict is 2; use 1, 0, -1, or null"),
        ({"verdict": "good"}, "verdict is 'good'"),
        ({"verdict": True}, "verdict is True"),
        ({"reviewer": ""}, "reviewer is empty"),
        ({"reviewer": None}, "the field 'reviewer' is missing"),
        ({"reviewer": "r" * 201}, "the reviewer's name has 201 characters"),
        ({"comment": "a\0"}, "comment holds the character NUL"),
        ({"at": "yesterday"}, "at is 'yesterday'"),
        ({"at": 5}, "at is 5"),
        ({"at": "0001-01-01T00:00:00+01:00"}, "at is '0001-01-01T00:00:00+01:00'"),
        ({"at": "9999-12-31T23:59:59-01:00"}, "at is '9999-12-31T23:59:59-01:00'"),
    ],
)
def test_bad_review_is_named_and_the_others_are_kept(
    tmp_path: Path, grader: Grader, change: dict[str, Any], message: str
) -> None:
    review = {"chunk": 0, "verdict": 1, "reviewer": "ada"}
    row = {
        **PROBLEM,
        "solutions": ["first", {"text": TAGGED, "reviews": [review, {**review, **change}, review]}],
    }
    (problem,), rejected = read(tmp_path, grader, row)
    assert [len(solution.reviews) for solution in problem.solutions] == [0, 2]
    assert [row.id for row in rejected] == ["p"]
    assert rejected[0].reason.startswith(f"solution 2, review 2: {message}")


def test_a_policy_beside_solutions_is_theirs_and_reviews_there_are_nobodys(
    tmp_path: Path, grader: Grader
) -> None:
    review = {"chunk": 0, "verdict": 1, "reviewer": "ada"}
    solutions = ["a", {"text": "b", "policy": "emil"}, {"steps": ["c"], "reviews": [review]}, 5]
    (problem,), rejected = read(
        tmp_path, grader, {**PROBLEM, "policy": "qwen", "reviews": [review], "solutions": solutions}
    )
    assert [(one.policy, len(one.reviews)) for one in problem.solutions] == [
        ("qwen", 0),
        ("emil", 0),
        ("qwen", 1),
    ]
    assert [row.reason.split(";")[0].split(",")[0] for row in rejected] == [
        "reviews stand beside no solution",
        "solution 4: a text",
    ]


def test_verdict_left_out_and_reviews_that_are_no_list(tmp_path: Path, grader: Grader) -> None:
    for reviews, message in (
        ([{"chunk": 0, "reviewer": "ada"}], "solution 1, review 1: verdict is 'missing'"),
        (["good"], "solution 1, review 1: an object with chunk"),
        ("good", "solution 1: reviews is no list"),
    ):
        (problem,), rejected = read(tmp_path, grader, {**PROBLEM, "solution": TAGGED, "reviews": reviews})
        assert problem.solutions[0].reviews == ()
        assert rejected[0].reason.startswith(message)


def test_lines_without_id_may_bring_more_solutions_of_a_problem(tmp_path: Path, grader: Grader) -> None:
    row = {"problem": "p", "answer": "4"}
    problems, rejected = read(
        tmp_path,
        grader,
        {**row, "solution": "a"},
        {**row, "solution": "b"},
        row,
        {**PROBLEM, "solution": "c"},
        PROBLEM,
    )
    assert [chunks(problem.solutions[0]) for problem in problems] == [["a"], ["b"], ["c"]]
    assert problems[0].key == problems[1].key != problems[2].key
    assert [(row.line, row.reason.split(";")[0]) for row in rejected] == [
        (3, "the same problem and answer as line 1"),
        (5, "the id was used in line 4 already"),
    ]


def test_bad_lines_are_reported_in_place(tmp_path: Path, grader: Grader) -> None:
    problems, rejected = read(
        tmp_path, grader, "{broken", {**PROBLEM, "solution": TAGGED}, {"id": "q", "problem": "?"}
    )
    assert [problem.key for problem in problems] == ["p"]
    assert [row.line for row in rejected] == [1, 3]


def test_table_with_a_solution_column(tmp_path: Path, grader: Grader) -> None:
    path = tmp_path / "own.csv"
    path.write_text(f'problem,answer,solution\np,4,"{TAGGED}"\nq,5,\n')
    problems = [row for row in read_own(path, None, grader) if isinstance(row, OwnProblem)]
    assert [len(problem.solutions) for problem in problems] == [1, 0]
    assert rejoin(problems[0].solutions[0].cut) == TAGGED


def test_empty_cells_of_a_table_say_nothing(tmp_path: Path, grader: Grader) -> None:
    path = tmp_path / "own.csv"
    path.write_text(f'problem,answer,solution,steps,solutions,policy,reviews\np,4,"{TAGGED}",,,,\n')
    (problem,) = read_own(path, None, grader)
    assert isinstance(problem, OwnProblem)
    assert [rejoin(solution.cut) for solution in problem.solutions] == [TAGGED]


def test_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the file"):
        next(read_own(tmp_path / "nowhere.jsonl"))


def test_the_handwritten_sample_is_read_whole(grader: Grader) -> None:
    path = Path(__file__).parent.parent / "app" / "sample" / "handwritten.jsonl"
    found = list(read_own(path, None, grader))
    assert [str(row) for row in found if isinstance(row, Rejected)] == []
    problems = [row for row in found if isinstance(row, OwnProblem)]
    assert len(problems) >= 30
    assert sum(bool(solution.reviews) for problem in problems for solution in problem.solutions) >= 10
