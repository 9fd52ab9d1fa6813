"""What pages show that a solution is checked against, for each verifier."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.widgets.reference import MOST_TESTS, reference_line, written_out
from db.rows import NewChunk, NewProblem, NewTrajectory
from engine.test_suites import parse_suite
from tests.page_support import Open, pages, words
from tests.store_world import new_store

__all__ = ["pages"]
SUITE = {
    "tests": [
        {"call": "add", "args": [3, "`<b>`"], "returns": 7},
        "assert add(0, 0) == 0",
        {"input": "3 4\n", "output": "7\n"},
    ],
    "seconds": 2,
}
SHOWN = {
    "choice": ("B. blue", "Right option `B. blue`"),
    "text": ("ab`c *d*", "Right answer, word for word `abˋc *d*`"),
    "code": (json.dumps(SUITE), "Checked by tests: passes 3 tests&#44; each within 2 s"),
}


@pytest.mark.parametrize("verifier", SHOWN)
def test_the_trajectory_page_shows_the_reference_as_what_it_is(verifier: str, tmp_path: Path, pages: Open):
    folder = tmp_path / "store"
    folder.mkdir()
    store = new_store(folder / "store.db")
    reference, said = SHOWN[verifier]
    run = store.start_run("import", {}, "ada", pid=1)
    row = NewProblem("d", "p", "Which?", reference, {"verifier": verifier})
    problem = store.add_problems([row], run_id=run, actor="ada").ids["d", "p"]
    solution = NewTrajectory(
        problem, "human", "blue", "", (NewChunk("", "blue"),), "blank-line", "correct", "B"
    )
    (stored,) = store.add_trajectories([solution], run_id=None, actor="ada")
    store.close()
    shown = words(pages("trajectory", f"sqlite:///{folder / 'store.db'}", {"traj": stored.id}))
    assert said in shown and "this solution's answer `B`" in shown
    if verifier == "code":
        assert '{"tests"' not in shown
        assert 'add(3, "`<b>`")  # returns 7\nassert add(0, 0) == 0\n# test 3: standard input\n3 4' in shown


def test_long_suites_are_cut_and_counted():
    suite = parse_suite(json.dumps({"tests": [f"assert f({i})" for i in range(MOST_TESTS + 7)]}))
    text = written_out(suite)
    assert text.count("assert") == MOST_TESTS and text.endswith("… and 7 more")
    long = parse_suite(json.dumps({"tests": ["assert 1 # " + "x" * 5000] * 3}))
    assert written_out(long).endswith("… and 2 more")


def test_a_reference_that_is_no_suite_and_an_unknown_verifier_are_shown_as_text():
    assert "not a suite" in reference_line("not a suite", "code")
    assert "Checked by later" in reference_line("x", "later")
