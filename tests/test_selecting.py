"""Selection worked out by hand, and the kind of run that freezes what was chosen."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from db.rows import NewJudgment
from db.store import Store
from engine.errors import RecipeError, TrainingError
from engine.llm.scripted import ScriptedLLM
from engine.pipeline.judging import judge_with
from engine.pipeline.sampling import sample_with
from engine.recipes import Selection, resolve
from engine.selection import Candidate, select_solutions
from tests import little_world as little
from training.policy_recipes import SelectRecipe
from training.selecting import run
from training.sets.frozen import read_manifest, read_rows

JUDGE = "little judge"


def test_the_highest_mean_chunk_score_is_chosen_whatever_the_length():
    candidates = [
        Candidate(1, 7, (1.0, 0.5)),
        Candidate(2, 7, (0.8,)),
        Candidate(3, 7, (1.0, 1.0, 1.0, 0.1)),
        Candidate(4, 8, (0.0,)),
    ]
    assert [c.trajectory_id for c in select_solutions(candidates, "stepwise", seed=0)] == [2, 4]


def test_solutions_that_are_not_judged_whole_are_passed_over():
    assert Candidate(1, 1, (1.0, None)).mean_score is None and Candidate(1, 1, ()).mean_score is None
    candidates = [Candidate(1, 1, (1.0, None)), Candidate(2, 1, (0.25,)), Candidate(3, 2, ())]
    assert [c.trajectory_id for c in select_solutions(candidates, "stepwise", seed=0)] == [2]
    assert {c.problem_id for c in select_solutions(candidates, "outcome", seed=0)} == {1, 2}


def test_ties_and_outcome_are_lots_drawn_from_the_seed():
    candidates = [Candidate(i, i % 50, (0.5,)) for i in range(200)]
    for how in ("stepwise", "outcome"):
        drawn = [tuple(c.trajectory_id for c in select_solutions(candidates, how, seed)) for seed in range(4)]
        assert drawn[0] == tuple(c.trajectory_id for c in select_solutions(candidates[::-1], how, 0))
        assert len(set(drawn)) == 4
        # no place among a problem's four solutions is favoured: 200 lots, 50 expected each
        places = Counter(i // 50 for one in drawn for i in one)
        assert all(30 < places[place] < 70 for place in range(4)), places


def swapping(prompt: str, seed: int) -> str:
    """The little policy, that now and then writes a sum the other way round: several ways to be right."""
    text = little.policy(prompt, seed)
    swapped = (seed // 7) % 3
    return re.sub(r"(\d+)\+(\d+)=", r"\2+\1=", text, count=swapped) if swapped else text


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("judged")
    store = little.open_little(folder, problems=6)
    policy = ScriptedLLM(swapping, name="little-policy")
    sample_with(little.context(store, little.sample_recipe(n=12), folder), policy)
    asked = little.judge_recipe(k=4, name=JUDGE)
    judge_with(little.context(store, asked, folder), ScriptedLLM(little.judge, name="little-judge"))
    return store


def recipe(**fields: Any) -> SelectRecipe:
    given = {"name": "chosen", "select": Selection(dataset=little.DATASET), "judge": JUDGE, "held_out": 0.2}
    return SelectRecipe(**(given | fields))


def test_a_run_freezes_the_best_correct_solution_of_each_problem(judged: Store, tmp_path: Path):
    result = run(little.context(judged, recipe(), tmp_path))
    manifest = read_manifest(tmp_path, "chosen")
    rows = [row for part in ("train", "held_out") for row in read_rows(tmp_path, "chosen", part)]
    assert manifest.form == "completion" and result["set"] == "chosen" and len(rows) == result["chosen"] > 2
    votes: dict[int, list[float]] = {}
    for trajectory in judged.stage_trajectories(judged.trajectory_ids()):
        counts = judged.votes([chunk.id for chunk in trajectory.chunks])
        votes[trajectory.id] = [next(iter(counts[c.id].values()))[0] / 4 for c in trajectory.chunks]
    best: dict[int, dict[str, float]] = defaultdict(dict)
    for trajectory in judged.stage_trajectories(judged.trajectory_ids()):
        if trajectory.outcome == "correct":
            mean = sum(votes[trajectory.id]) / len(votes[trajectory.id])
            best[trajectory.problem_id].setdefault(trajectory.text, mean)
    for row in rows:
        of_problem = best[row["problem_id"]]
        assert len(of_problem) > 1 and row["completion"] in of_problem
        assert row["score"] == pytest.approx(max(of_problem.values()))
        (trajectory,) = judged.stage_trajectories([row["trajectory_id"]])
        assert row["prompt"].startswith(f"<solve>{trajectory.problem}")
    assert result["score_chosen"] > result["score_all"]


def test_outcome_only_takes_the_same_problems(judged: Store, tmp_path: Path):
    run(little.context(judged, recipe(), tmp_path))
    run(little.context(judged, recipe(name="lots", how="outcome"), tmp_path))
    names = ("chosen", "lots")
    problems = [{row["problem_id"] for row in read_rows(tmp_path, name, "train")} for name in names]
    assert problems[0] == problems[1]
    run(
        little.context(
            judged, recipe(name="all", how="outcome", judge=None, same_problems=False, held_out=0.0), tmp_path
        )
    )
    assert len(read_rows(tmp_path, "all", "train")) == 6


def test_a_score_of_the_judges_own_counts_instead_of_its_verdict(judged: Store, tmp_path: Path):
    (trajectory, *_) = judged.stage_trajectories(judged.trajectory_ids())
    judge_id = judged.ensure_judge(
        name="p(+)",
        kind="discriminative",
        checkpoint="c",
        checkpoint_hash="h",
        prompt_name="",
        prompt_hash="",
        sampling={},
        sampling_digest="",
    )
    chunk = trajectory.chunks[0].id
    row = NewJudgment(judge_id, chunk, 0, "positive", "", 1, "stop", 0, score=0.7)
    run_id = little.context(judged, recipe(), tmp_path).run_id
    judged.add_judgments([row], run_id=run_id)
    assert judged.chunk_scores(judge_id, [c.id for c in trajectory.chunks]) == {chunk: pytest.approx(0.7)}


def test_what_cannot_be_chosen_is_named(judged: Store, tmp_path: Path):
    with pytest.raises(TrainingError, match=r"there are .*little judge"):
        run(little.context(judged, recipe(judge="nobody"), tmp_path))
    with pytest.raises(TrainingError, match="nothing to choose from"):
        run(little.context(judged, recipe(select=Selection(policy="nobody")), tmp_path))
    run(little.context(judged, recipe(), tmp_path))
    with pytest.raises(TrainingError, match="already a training set 'chosen'"):
        run(little.context(judged, recipe(), tmp_path))
    with pytest.raises(RecipeError, match="name the judge"):
        resolve(SelectRecipe, {"how": "stepwise"})
    with pytest.raises(RecipeError, match="name the judge"):
        resolve(SelectRecipe, {"how": "outcome"})
