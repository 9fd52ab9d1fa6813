"""Data selection: the best mean chunk score, and ties that only the lot decides."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from engine.selection import Candidate, select_solutions
from training.policy_recipes import SelectRecipe
from training.selecting import _candidates

UP, DOWN = (0.1, 0.2, 0.3), (0.3, 0.2, 0.1)


def chosen(candidates: list[Candidate], how: str, seed: int = 0) -> list[int]:
    return [one.trajectory_id for one in select_solutions(candidates, how, seed)]  # type: ignore[arg-type]


def test_the_best_mean_is_taken_and_what_has_none_is_passed_over() -> None:
    candidates = [
        Candidate(1, 7, (1.0, 0.5)),
        Candidate(2, 7, (0.5, 0.5)),
        Candidate(3, 7, (1.0, None)),
        Candidate(4, 5, (0.0,)),
        Candidate(5, 9),
    ]
    assert chosen(candidates, "stepwise") == [4, 1]
    assert {chosen(candidates, "outcome", seed)[1] for seed in range(30)} == {1, 2, 3}


def test_the_order_of_equal_scores_decides_no_tie() -> None:
    """Added up one by one, 0.1, 0.2 and 0.3 are more than 0.3, 0.2 and 0.1."""
    both = [Candidate(1, 7, UP), Candidate(2, 7, DOWN)]
    assert both[0].mean_score == both[1].mean_score
    assert {chosen(both, "stepwise", seed)[0] for seed in range(30)} == {1, 2}


def test_of_solutions_with_one_text_the_one_that_was_judged_stands_for_them() -> None:
    def solution(number: int, text: str) -> Any:
        chunks = [SimpleNamespace(id=number)]
        return SimpleNamespace(id=number, problem_id=7, outcome="correct", text=text, chunks=chunks)

    rows = [solution(1, "a"), solution(2, "a"), solution(3, "b"), solution(4, "b")]
    store = SimpleNamespace(
        iterate_trajectories=lambda **_: [rows],
        judges=lambda: [SimpleNamespace(name="j", id=1)],
        chunk_scores=lambda judge, chunks: {2: 0.9, 3: 0.5},
    )
    ctx: Any = SimpleNamespace(recipe=SelectRecipe(judge="j"), store=store)
    found, counts = _candidates(ctx)
    assert {one.trajectory_id: one.scores for one in found} == {2: (0.9,), 3: (0.5,)}
    assert counts == {"same_text": 2, "correct": 2, "not_judged": 0, "nothing_to_choose": 0}
