"""Alarms over a run's curves: each names in words what went wrong in reinforcement learning, and which field to change.

Pure functions of numbers: the trainer writes them into the run's log once, the Runs page shows those that hold now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Series = Sequence[tuple[int, float]]
"""Points of one curve, (step, value), in the order of steps."""

WINDOW = 5
"""Points of a curve whose mean is looked at: a single batch is noise."""
AGREE = 0.9
ONE_VERDICT = 0.97
ENTROPY_LEFT = 0.25
NO_VERDICT = 0.5
AT_LIMIT = 0.3
LOGP_DIFFERENCE = 0.1
"""Mean difference of log-probabilities between sampler and trainer; rounding alone stays well below it."""


@dataclass(frozen=True)
class Alarm:
    """What holds at ``step``, in words, and which recipe field to change."""

    name: str
    step: int
    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.text} (step {self.step}). {self.remedy}"


def alarms(series: Mapping[str, Series]) -> list[Alarm]:
    """The alarms that hold at the end of the curves (names as TRL logs them). Too few points give none."""
    return [alarm for rule in RULES if (alarm := rule(series))]


@dataclass
class Alarms:
    """The curves of a run in progress; ``add`` returns each alarm the first time that it holds."""

    series: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    raised: set[str] = field(default_factory=set)

    def add(self, step: int, metrics: Mapping[str, float]) -> list[Alarm]:
        for name, value in metrics.items():
            self.series.setdefault(name, []).append((step, value))
        new = [alarm for alarm in alarms(self.series) if alarm.name not in self.raised]
        self.raised |= {alarm.name for alarm in new}
        return new


def no_gradient(series: Mapping[str, Series]) -> Alarm | None:
    """Groups whose rewards are all equal have no advantage: nothing is learnt from them."""
    share = _last(series, "frac_reward_zero_std")
    if share is None or share < AGREE:
        return None
    verdicts = _last(series, "reward")
    text = f"{share:.0%} of groups agree: no gradient"
    if verdicts is not None and verdicts > 0.95:
        return _alarm(
            series,
            "frac_reward_zero_std",
            f"{text}, and the reward is {verdicts:.2f}: little is left to learn here",
            "Stop, or train on harder labels (select, labels.min_confidence)",
        )
    return _alarm(
        series,
        "frac_reward_zero_std",
        text,
        "Raise grpo.epsilon_high, grpo.generations or grpo.temperature, or lower grpo.learning_rate, in a new run",
    )


def one_verdict(series: Mapping[str, Series]) -> Alarm | None:
    """A judge that says the same of everything."""
    positive, none = _last(series, "verdicts/positive"), _last(series, "verdicts/none") or 0.0
    if positive is None or none > NO_VERDICT:
        return None
    share = positive / (1 - none)
    if 1 - ONE_VERDICT < share < ONE_VERDICT:
        return None
    word, part = ("Positive", share) if share > 0.5 else ("Negative", 1 - share)
    who = f"{part:.0%} of verdicts are" if part < 0.995 else "every verdict is"
    return _alarm(
        series,
        "verdicts/positive",
        f"{who} {word}",
        "Lower grpo.learning_rate, raise grpo.generations, or switch labels.balance on, in a new run",
    )


def entropy_collapse(series: Mapping[str, Series]) -> Alarm | None:
    """Nothing else is tried any more. Of a run with rewards only: fine-tuning is meant to lower the entropy."""
    if "reward" not in series:
        return None
    now, first = _last(series, "entropy"), _first(series, "entropy")
    if now is None or first is None or first <= 0 or now > ENTROPY_LEFT * first:
        return None
    return _alarm(
        series,
        "entropy",
        f"entropy fell to {now:.3g}, from {first:.3g} at the start",
        "Raise grpo.epsilon_high or grpo.temperature, or lower grpo.learning_rate, in a new run",
    )


def no_verdict(series: Mapping[str, Series]) -> Alarm | None:
    """Completions that cannot be rewarded for what they say."""
    return _too_much(
        series,
        "verdicts/none",
        NO_VERDICT,
        "{:.0%} of completions have no verdict",
        "Check the prompt, raise grpo.max_tokens, set rewards.format, or begin with a warm_start",
    )


def at_token_limit(series: Mapping[str, Series]) -> Alarm | None:
    """Completions cut off before their end."""
    return _too_much(
        series,
        "completions/clipped_ratio",
        AT_LIMIT,
        "{:.0%} of completions hit the token limit",
        "Raise grpo.max_tokens, or set rewards.length, in a new run",
    )


def sampling_differs(series: Mapping[str, Series]) -> Alarm | None:
    """What generates is not what is trained: stale or un-merged weights in the sampler train silently wrong."""
    return _too_much(
        series,
        "sampling/sampling_logp_difference/mean",
        LOGP_DIFFERENCE,
        "sampling differs from training: sampling_logp_difference is {:.2g}",
        "Set hardware.vllm to off, in a new run: vLLM does not hold the weights that are trained",
    )


RULES: tuple[Callable[[Mapping[str, Series]], Alarm | None], ...] = (
    no_gradient,
    one_verdict,
    entropy_collapse,
    no_verdict,
    at_token_limit,
    sampling_differs,
)


def _too_much(series: Mapping[str, Series], curve: str, bar: float, text: str, remedy: str) -> Alarm | None:
    """An alarm where the curve's last points reach ``bar``; ``text`` with a place for their mean."""
    now = _last(series, curve)
    return None if now is None or now < bar else _alarm(series, curve, text.format(now), remedy)


def _alarm(series: Mapping[str, Series], curve: str, text: str, remedy: str) -> Alarm:
    return Alarm(curve, series[curve][-1][0], text, remedy)


def _last(series: Mapping[str, Series], name: str) -> float | None:
    """Mean of the last points, None while there are too few."""
    return _mean(series.get(name, ())[-WINDOW:])


def _first(series: Mapping[str, Series], name: str) -> float | None:
    return _mean(series.get(name, ())[:WINDOW])


def _mean(points: Series) -> float | None:
    return sum(value for _, value in points) / WINDOW if len(points) == WINDOW else None
