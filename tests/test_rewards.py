"""The judge's reward: 1 for the verdict that the label asks for, 0 for the other one and for none."""

from __future__ import annotations

import pytest

from training.rewards import verdict_reward


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


def test_rewards_stay_in_order_and_shares_are_logged() -> None:
    logged: dict[str, float] = {}
    rewards = verdict_reward(
        completions=[r"\boxed{Positive}", r"\boxed{Negative}", "…", r"\boxed{Positive}"],
        label=["+", "+", "-", "-"],
        log_metric=logged.__setitem__,
        prompts=["p"] * 4,
        completion_ids=[[1]] * 4,
    )
    assert rewards == [1.0, 0.0, 0.0, 0.0]
    assert logged == {"verdicts/none": 0.25, "verdicts/positive": 0.5}
