"""The judge's rewards: verdict, form and length, each by itself; and their weighted sum as TRL calls it."""

from __future__ import annotations

import pytest

from db.rows import NewRunSample
from training.jobs import Rewards
from training.rewards import JudgeReward, Samples, format_penalty, length_penalty, verdict_reward


@pytest.mark.parametrize(
    ("completion", "label", "reward"),
    [
        (r"Fine. \boxed{Positive}", "+", 1.0),
        (r"Fine. \boxed{Positive}", "-", 0.0),
        (r"Wrong sum. \boxed{Negative}", "-", 1.0),
        (r"Wrong sum. \boxed{Negative}", "+", 0.0),
        (r"\boxed{\text{positive}}", "+", 1.0),
        (r"\boxed{Positive} no: \boxed{Negative}", "-", 1.0),
        (r"\boxed{Positive} no: \boxed{Negative}", "+", 0.0),
        (r"\boxed{42}", "+", 0.0),
        (r"\boxed{Positive or Negative}", "+", 0.0),
        ("Positive", "+", 0.0),
        ("no verdict at all", "-", 0.0),
        (r"\boxed{Posi", "+", 0.0),
        ("", "-", 0.0),
    ],
)
def test_reward_of_one_completion(completion: str, label: str, reward: float) -> None:
    assert verdict_reward([completion], label=[label]) == [reward]


@pytest.mark.parametrize(
    ("completion", "verdict", "form"),
    [
        (r"\boxed{Positive}", 1.0, 0.0),
        (" \\boxed{Positive}\n", 1.0, 0.0),
        (r"\boxed{Negative}", 0.0, 0.0),
        (r"Fine. \boxed{Positive}", 0.0, -1.0),
        (r"\boxed{Positive} I think", 0.0, -1.0),
        (r"\boxed{Positive}\boxed{Positive}", 0.0, -1.0),
        (r"\boxed{42}", 0.0, -1.0),
        ("Positive", 0.0, -1.0),
        ("", 0.0, -1.0),
    ],
)
def test_without_a_chain_of_thought_any_other_form_is_penalised(
    completion: str, verdict: float, form: float
) -> None:
    assert verdict_reward([completion], label=["+"], answer="verdict") == [verdict]
    assert format_penalty([completion], answer="verdict") == [form]


def test_with_an_analysis_only_a_missing_verdict_is_penalised() -> None:
    assert format_penalty([r"Fine. \boxed{Negative}", "fine", r"\boxed{both}"]) == [0.0, -1.0, -1.0]


def test_length_costs_nothing_up_to_half_of_the_limit_and_one_at_the_limit() -> None:
    rows = [[0] * n for n in (0, 50, 75, 100, 120)]
    assert length_penalty(completion_ids=rows, limit=100) == [0.0, 0.0, -0.5, -1.0, -1.0]


COMPLETIONS = [r"\boxed{Positive}", r"\boxed{Negative}", "…", r"\boxed{Positive}"]
CALL = {
    "prompts": ["p"] * 4,
    "completions": COMPLETIONS,
    "completion_ids": [[1], [1], [1] * 10, [1]],
    "label": ["+", "+", "-", "-"],
}


def test_the_sum_has_the_recipes_weights_and_logs_what_is_switched_on() -> None:
    logged: dict[str, float] = {}
    plain = JudgeReward(Rewards(), "analysis", limit=10)
    assert plain(**CALL, log_metric=logged.__setitem__) == [1.0, 0.0, 0.0, 0.0]
    assert logged == {"rewards/verdict": 0.25, "verdicts/none": 0.25, "verdicts/positive": 0.5}

    logged.clear()
    weighted = JudgeReward(Rewards(verdict=2, format=0.5, length=3), "verdict", limit=10)
    assert weighted(**CALL, log_metric=logged.__setitem__) == [2.0, 0.0, -3.5, 0.0]
    assert logged["rewards/format"] == -0.25 and logged["rewards/length"] == -0.25


def test_all_rewards_off_is_refused() -> None:
    with pytest.raises(ValueError, match="every reward is switched off"):
        Rewards(verdict=0)


def test_samples_are_kept_of_the_same_steps_in_a_resumed_run() -> None:
    kept: dict[int, list[NewRunSample]] = {}

    def add(steps: range) -> list[int]:
        kept.clear()
        samples = Samples(kept.__setitem__, every=10, batch_steps=4, count=3)
        for done in steps:
            samples.add(done, ["p"] * 4, COMPLETIONS, ["+"] * 4, [1.0, 0.0, 0.0, 1.0])
        return list(kept)

    assert add(range(0, 41, 4)) == [1, 13, 21, 33, 41], "the first batch at or after each tenth step"
    assert kept[13] == [
        NewRunSample("p", text, "+", r) for text, r in zip(COMPLETIONS[:3], (1.0, 0.0, 0.0), strict=True)
    ]
    assert add(range(16, 41, 4)) == [21, 33, 41]
