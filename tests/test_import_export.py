"""Import of one's own solutions into a store and export of effective labels: what is taken, named, and given back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from db.check import check
from db.store import Store, open_store
from engine import sandbox
from engine.errors import InputError, RecipeError
from engine.pipeline.export import export_labels
from engine.pipeline.imports import import_file
from engine.pipeline.rolling import roll_out
from engine.pipeline.sampling import sample_with
from tests import little_world as little

LINES = [
    {
        "id": "one",
        "problem": "Was ist 2+2?",
        "answer": "4",
        "solutions": [
            {
                "text": "<chunk>2+2 is 4.</chunk>\n<chunk>So 4.</chunk>\n\\boxed{4}",
                "policy": "ada",
                "reviews": [
                    {
                        "chunk": 0,
                        "verdict": 1,
                        "comment": "fine",
                        "reviewer": "emil",
                        "at": "2026-10-05T09:00:00Z",
                    },
                    {"chunk": 1, "verdict": 1, "reviewer": "emil"},
                    {"chunk": 1, "verdict": -1, "reviewer": "noor"},
                ],
            },
            {"steps": ["2+2 is 5.", "So \\boxed{5}"]},
            "no tags here\n\nbut a blank line \\boxed{4.0}",
        ],
    },
    {
        "id": "two",
        "problem": "计算 1/2 + 1/3。",
        "answer": "\\frac{5}{6}",
        "solution": "通分。\n\n得 \\boxed{\\frac{5}{6}}",
    },
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path / 'store.db'}", migrate=True)


def write(path: Path, lines: list[object]) -> Path:
    path.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines),
        "utf-8",
    )
    return path


def test_own_solutions_are_graded_cut_and_reviewed(store: Store, tmp_path: Path):
    report = import_file(store, write(tmp_path / "mine.jsonl", LINES), dataset=None, cutter=None, actor="ada")
    assert (report.problems, report.trajectories, report.reviews, report.rejected) == (2, 4, 3, [])
    assert report.outcomes == {"correct": 3, "wrong": 1}
    rows = store.stage_trajectories(store.trajectory_ids(dataset="mine"))
    assert [row.policy for row in rows] == ["ada", "human", "human", "human"]
    assert [row.cutter for row in rows] == ["tags", "steps", "blank-line", "blank-line"]
    assert store.run(report.run_id).status == "done" and store.run(report.run_id).kind == "import"
    assert check(store) == []


def test_importing_twice_adds_nothing(store: Store, tmp_path: Path):
    path = write(tmp_path / "mine.jsonl", LINES)
    import_file(store, path, dataset=None, cutter=None, actor="ada")
    before = store.counts()
    again = import_file(store, path, dataset=None, cutter=None, actor="ada")
    assert (again.problems, again.trajectories, again.reviews) == (0, 0, 0) and again.known_problems == 2
    assert store.counts() == before


def test_a_problem_that_is_another_under_the_same_id_is_left_out(store: Store, tmp_path: Path):
    line = {"id": "one", "problem": "2+2?", "answer": "4", "solutions": ["two\n\ntwo \\boxed{4}"]}
    import_file(store, write(tmp_path / "d.jsonl", [line]), dataset=None, cutter=None, actor="ada")
    others = [{"answer": "5"}, {"problem": "2+3?"}, {"verifier": "text"}]
    for other in others:
        changed = line | other | {"solutions": ["three\n\n\\boxed{5}"]}
        report = import_file(
            store, write(tmp_path / "d.jsonl", [changed]), dataset=None, cutter=None, actor="ada"
        )
        assert (report.problems, report.trajectories) == (0, 0)
        assert "d.jsonl:1" in str(report.rejected[0]) and "'one'" in str(report.rejected[0])
        assert "'d' has a problem with this id and another text" in str(report.rejected[0])
    assert len(store.trajectory_ids()) == 1


def test_of_two_problems_under_one_id_in_a_file_the_second_is_left_out(store: Store, tmp_path: Path):
    lines = [
        {"id": "1", "dataset": "a", "problem": "2+2?", "answer": "4", "solution": "\\boxed{4}"},
        {"id": "1", "dataset": "b", "problem": "2+3?", "answer": "5", "solution": "\\boxed{5}"},
    ]
    path = write(tmp_path / "two.jsonl", lines)
    report = import_file(store, path, dataset="both", cutter=None, actor="ada")
    assert (report.problems, report.trajectories) == (1, 1)
    assert "two.jsonl:2" in str(report.rejected[0]) and "give this one another id" in str(report.rejected[0])
    apart = import_file(store, path, dataset=None, cutter=None, actor="ada")
    assert (apart.problems, apart.trajectories, apart.rejected) == (2, 2, [])


def test_reviews_of_a_solution_that_is_stored_in_other_chunks_go_to_none_of_them(
    store: Store, tmp_path: Path
):
    text = "First a. Then b.\n\nSo c. \\boxed{1}"
    line = {"id": "1", "problem": "1?", "answer": "1", "solutions": [text]}
    import_file(store, write(tmp_path / "d.jsonl", [line]), dataset=None, cutter=None, actor="ada")
    reviews = [{"chunk": 2, "verdict": -1, "reviewer": "emil"}]
    lines = [line | {"solutions": [{"text": text, "reviews": reviews}]}, line | {"id": "2"}]
    path = write(tmp_path / "d.jsonl", lines)
    report = import_file(store, path, dataset=None, cutter="sentence", actor="ada")
    assert (report.reviews, report.problems) == (0, 1)
    assert "d.jsonl:1" in str(report.rejected[0]) and "cut into other chunks" in str(report.rejected[0])
    reviews[0]["chunk"] = 1
    again = import_file(store, write(path, lines), dataset=None, cutter=None, actor="ada")
    assert (again.reviews, again.rejected) == (1, [])


def test_bad_lines_are_named_and_the_rest_is_taken(store: Store, tmp_path: Path):
    bad: list[object] = [
        '{"id": "broken", "problem": ',
        {"id": "no-answer", "problem": "x?"},
        {"id": "empty", "problem": " ", "answer": "1"},
        {"id": "one", "problem": "again?", "answer": "4"},
        {"id": "nul", "problem": "a\u0000b", "answer": "1"},
        {"id": "tags", "problem": "3?", "answer": "3", "solutions": ["<chunk>a <chunk>b</chunk> \\boxed{3}"]},
    ]
    path = write(tmp_path / "mine.jsonl", [LINES[0], *bad, LINES[1]])
    report = import_file(store, path, dataset=None, cutter=None, actor="ada")
    said = [str(row) for row in report.rejected]
    assert report.problems == 3 and len(said) == 5
    for line, item in ((2, None), (3, "no-answer"), (4, "empty"), (5, "one"), (6, "nul")):
        message = next(text for text in said if f"mine.jsonl:{line}" in text)
        assert item is None or f"'{item}'" in message
    nested = store.stage_trajectories(store.trajectory_ids())[3]
    assert nested.cutter == "blank-line"


def test_an_answer_that_would_never_end_is_left_out_or_an_error_and_delays_nothing(
    store: Store, tmp_path: Path
):
    lines = [
        {"id": "tower", "problem": "big?", "answer": "1", "solution": "\\boxed{9**9**9**9}"},
        {"id": "power", "problem": "big?", "answer": "1", "solution": "\\boxed{9^{9^{9^{9}}}}"},
        LINES[1],
    ]
    report = import_file(store, write(tmp_path / "big.jsonl", lines), dataset=None, cutter=None, actor="ada")
    assert report.trajectories == 3 and report.outcomes["correct"] == 1
    assert set(report.outcomes) <= {"correct", "error", "wrong"}


def test_a_missing_file_is_an_error_before_there_is_a_run(store: Store, tmp_path: Path):
    with pytest.raises(InputError, match=r"nowhere\.jsonl"):
        import_file(store, tmp_path / "nowhere.jsonl", dataset=None, cutter=None, actor="ada")
    assert store.runs() == []


def test_export_gives_the_effective_label_and_where_it_comes_from(store: Store, tmp_path: Path):
    import_file(store, write(tmp_path / "mine.jsonl", LINES), dataset=None, cutter=None, actor="ada")
    out = tmp_path / "labels.jsonl"
    count = export_labels(store, out, dataset="mine", rule="rel-ratio:gamma=0.8")
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert len(rows) == count == 8
    reviewed = {row["chunk"]: row for row in rows if row["policy"] == "ada"}
    assert (reviewed[0]["label"], reviewed[0]["source"]) == ("+", "review")
    assert (reviewed[1]["label"], reviewed[1]["source"]) == (None, "disagreement")
    assert {row["source"] for row in rows if row["policy"] == "human"} == {"none"}
    assert rows[-1]["problem"] == "计算 1/2 + 1/3。" and not list(tmp_path.glob("*.part"))
    with pytest.raises(RecipeError):
        export_labels(store, out, dataset=None, rule="rel-ratio:delta=1")


def test_exported_counts_and_labels_agree_with_the_rule(tmp_path: Path):
    store = little.open_little(tmp_path)
    sample_with(little.context(store, little.sample_recipe(), tmp_path), little.scripted_policy())
    roll_out(little.context(store, little.rollout_recipe(m=8), tmp_path), little.scripted_policy())
    out = tmp_path / "labels.jsonl"
    export_labels(store, out, dataset=little.DATASET, rule="abs-q")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 36
    for row in rows:
        after = row["q_after"]
        k = after["exact"] if "exact" in after else after["successes"]
        assert row["label"] == ("+" if k > 0 else "-") and row["source"] == "rule"


def test_problems_keep_their_verifier_and_solutions_are_graded_by_it(store: Store, tmp_path: Path):
    """From the file to the stage that grades rollouts, which reads the program from prefix and rollout together."""
    if reason := sandbox.refusal():
        pytest.skip(reason)
    program = "```python\ndef add(a, b):\n\n    return a {} b\n```"
    lines = [
        {"id": "c", "problem": "?", "choices": ["red", "blue"], "answer": "blue", "verifier": "choice"}
        | {"solutions": ["It is \\boxed{B}", "It is \\boxed{A}"]},
        {"id": "f", "problem": "Add.", "tests": ["assert add(1, 1) == 2"], "verifier": "code"}
        | {"solutions": [program.format("+"), program.format("-")]},
    ]
    report = import_file(store, write(tmp_path / "v.jsonl", lines), dataset="v", cutter=None, actor="ada")
    assert report.outcomes == {"correct": 2, "wrong": 2} and report.rejected == []
    (pages,) = store.iterate_trajectories(dataset="v", batch=10)
    assert [(one.verifier, one.reference) for one in pages[::2]] == [
        ("choice", "B. blue"),
        ("code", json.dumps({"tests": ["assert add(1, 1) == 2"], "seconds": 5})),
    ]
    assert [problem.meta for problem in store.problems()] == [{"verifier": "choice"}, {"verifier": "code"}]
    assert [one.answer for one in pages[:2]] == ["B", "A"]
