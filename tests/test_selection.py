"""Data selection: the best mean chunk score, and ties that only the lot decides."""

from __future__ import annotations

from engine.selection import Candidate, select_solutions

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
