"""Alarms name a collapse in words and the field to change, from numbers alone; a healthy run raises none."""

from __future__ import annotations

import pytest

from training.alarms import WINDOW, Alarms, alarms


def flat(value: float, points: int = WINDOW) -> list[tuple[int, float]]:
    return [(4 * i + 1, value) for i in range(points)]


HEALTHY = {
    "frac_reward_zero_std": flat(0.5),
    "reward": flat(0.7),
    "entropy": flat(0.03),
    "verdicts/positive": flat(0.55),
    "verdicts/none": flat(0.01),
    "completions/clipped_ratio": flat(0.0),
    "sampling/sampling_logp_difference/mean": flat(0.02),
}


def test_a_healthy_run_raises_no_alarm() -> None:
    assert alarms(HEALTHY) == []


@pytest.mark.parametrize(
    ("curves", "text", "field"),
    [
        ({"frac_reward_zero_std": flat(0.93)}, "93% of groups agree: no gradient", "grpo.epsilon_high"),
        (
            {"frac_reward_zero_std": flat(0.95), "reward": flat(0.97)},
            "95% of groups agree: no gradient, and the reward is 0.97: little is left to learn",
            "harder labels",
        ),
        (
            {"verdicts/positive": flat(1.0), "verdicts/none": flat(0.0)},
            "every verdict is Positive",
            "balance",
        ),
        ({"verdicts/positive": flat(0.0)}, "every verdict is Negative", "grpo.learning_rate"),
        ({"verdicts/positive": flat(0.02)}, "98% of verdicts are Negative", "grpo.generations"),
        (
            {"entropy": [*flat(0.04), *[(30 + i, 0.005) for i in range(WINDOW)]]},
            "entropy fell to 0.005, from 0.04 at the start",
            "grpo.temperature",
        ),
        ({"verdicts/none": flat(0.62)}, "62% of completions have no verdict", "rewards.format"),
        (
            {"completions/clipped_ratio": flat(0.4)},
            "40% of completions hit the token limit",
            "grpo.max_tokens",
        ),
        (
            {"sampling/sampling_logp_difference/mean": flat(0.8)},
            "sampling differs from training: sampling_logp_difference is 0.8",
            "hardware.vllm",
        ),
    ],
)
def test_each_collapse_is_named_with_its_remedy(
    curves: dict[str, list[tuple[int, float]]], text: str, field: str
) -> None:
    (alarm,) = alarms(HEALTHY | curves)
    assert alarm.text.startswith(text) and field in alarm.remedy
    assert alarm.step == curves[next(iter(curves))][-1][0] and text in str(alarm)


def test_fine_tuning_may_lower_the_entropy() -> None:
    falling = [*flat(0.4), *[(30 + i, 0.005) for i in range(WINDOW)]]
    assert alarms({"entropy": falling, "loss": flat(0.1, 2 * WINDOW)}) == []
    assert len(alarms({"entropy": falling, "reward": flat(0.7)})) == 1


def test_a_single_bad_batch_is_noise_and_too_few_points_say_nothing() -> None:
    mostly = [(i, 0.5) for i in range(20)] + [(21, 1.0)]
    assert alarms({"frac_reward_zero_std": mostly}) == []
    assert alarms({"frac_reward_zero_std": flat(1.0, WINDOW - 1)}) == []
    assert alarms({}) == []


def test_the_share_of_positive_is_of_the_verdicts_that_were_given() -> None:
    assert alarms({"verdicts/positive": flat(0.5), "verdicts/none": flat(0.45)}) == []
    (alarm,) = alarms({"verdicts/positive": flat(0.6), "verdicts/none": flat(0.4)})
    assert alarm.text == "every verdict is Positive"


def test_a_run_in_progress_hears_each_alarm_once() -> None:
    watch = Alarms()
    said = [alarm for step in range(12) for alarm in watch.add(step, {"verdicts/none": 1.0})]
    assert [(alarm.name, alarm.step) for alarm in said] == [("verdicts/none", WINDOW - 1)]


def test_every_field_that_a_remedy_names_is_a_field_of_the_recipe() -> None:
    import re

    from training.jobs import TrainJudgeRecipe

    fields = TrainJudgeRecipe().model_dump()
    bad = {
        "frac_reward_zero_std": flat(1.0),
        "reward": flat(0.5),
        "verdicts/positive": flat(0.0),
        "entropy": [*flat(1.0), *[(30 + i, 0.0) for i in range(WINDOW)]],
        "completions/clipped_ratio": flat(1.0),
        "sampling/sampling_logp_difference/mean": flat(1.0),
    }
    found = [*alarms(bad), *alarms({"verdicts/none": flat(1.0)}), *alarms(bad | {"reward": flat(1.0)})]
    named = {name for alarm in found for name in re.findall(r"\b[a-z]+\.[a-z_]+\b", alarm.remedy)}
    assert len(named) >= 8
    for name in named:
        part, _, field = name.partition(".")
        assert field in fields[part], name
