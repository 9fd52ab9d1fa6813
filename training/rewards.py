"""Rewards of the judge's trainer: plain functions of completions and labels, in TRL's signature; no model is loaded.

``answer`` is the form that is asked for: ``analysis`` (reasons, then the boxed verdict) or ``verdict`` (the box alone).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from db.rows import NewRunSample
from engine.boxes import find_boxes
from engine.judge import Verdict, parse_verdict

if TYPE_CHECKING:
    from training.jobs import Rewards

Answer = Literal["analysis", "verdict"]
VERDICT_OF: dict[str, Verdict] = {"+": "positive", "-": "negative"}
"""The verdict that agrees with a label."""
LENGTH_FREE = 0.5
"""Share of the token limit from which on ``length_penalty`` grows."""


def read_verdict(completion: str, answer: Answer = "analysis") -> Verdict | None:
    """The verdict of a completion; with ``answer`` verdict only if the completion is the box and nothing else."""
    if answer == "verdict":
        boxes = find_boxes(completion)
        alone = len(boxes) == 1 and not (completion[: boxes[0].start] + completion[boxes[0].end :]).strip()
        return parse_verdict(completion) if alone else None
    return parse_verdict(completion)


def verdict_reward(
    completions: Sequence[str], label: Sequence[str], answer: Answer = "analysis", **_: Any
) -> list[float]:
    """1 where the verdict equals the label (``+`` or ``-``), else 0; no verdict is 0 (StepWiser §3.3).

    ``completions`` and ``label`` have one entry a completion; TRL passes more that is not used here.
    """
    verdicts = [read_verdict(text, answer) for text in completions]
    return [float(v == VERDICT_OF[wanted]) for v, wanted in zip(verdicts, label, strict=True)]


def format_penalty(completions: Sequence[str], answer: Answer = "analysis", **_: Any) -> list[float]:
    """−1 where the completion has no verdict in the form that is asked for, else 0 (no-CoT ablation of StepWiser)."""
    return [-1.0 if read_verdict(text, answer) is None else 0.0 for text in completions]


def length_penalty(completion_ids: Sequence[Sequence[int]], limit: int, **_: Any) -> list[float]:
    """0 up to half of ``limit`` tokens, then falling evenly to −1 at ``limit`` (soft overlong punishment of DAPO,
    2503.14476, with its cushion at half)."""
    free = LENGTH_FREE * limit
    return [-min(1.0, max(0.0, (len(ids) - free) / (limit - free))) for ids in completion_ids]


@dataclass(frozen=True)
class Samples:
    """Which completions are kept for people to read: the first ``count`` of a generation batch, every ``every`` steps.

    A generation batch is ``batch_steps`` optimizer steps; a resumed run keeps those of the same steps.
    """

    keep: Callable[[int, list[NewRunSample]], None]
    every: int
    batch_steps: int
    count: int

    def add(
        self,
        steps_done: int,
        prompts: Sequence[str],
        completions: Sequence[str],
        label: Sequence[str | None],
        rewards: Sequence[float],
    ) -> None:
        """Keep them if they are due; their step is the one that is now trained on them."""
        if steps_done and steps_done // self.every == (steps_done - self.batch_steps) // self.every:
            return
        rows = zip(prompts, completions, label, rewards, strict=True)
        self.keep(steps_done + 1, [NewRunSample(*row) for row in islice(rows, self.count)])


class JudgeReward:
    """The weighted sum of the rewards that a recipe switches on: one reward function for TRL.

    Logs the mean of each that is on (``rewards/…``) and the shares of verdicts (``verdicts/…``). ``limit``: the most
    new tokens a completion may have.
    """

    __name__ = "judge"

    def __init__(self, weights: Rewards, answer: Answer, limit: int, samples: Samples | None = None):
        self.answer, self.limit, self.samples = answer, limit, samples
        parts: dict[str, Callable[..., list[float]]] = {
            "verdict": verdict_reward,
            "format": format_penalty,
            "length": length_penalty,
        }
        weighted = {name: (getattr(weights, name), function) for name, function in parts.items()}
        self.parts = {name: part for name, part in weighted.items() if part[0]}

    def __call__(
        self,
        prompts: Sequence[str],
        completions: Sequence[str],
        label: Sequence[str],
        trainer_state: Any = None,
        log_metric: Callable[[str, float], None] = lambda name, value: None,
        **columns: Any,
    ) -> list[float | None]:
        total = [0.0] * len(completions)
        asked = {"label": label, "answer": self.answer, "limit": self.limit}
        for name, (weight, function) in self.parts.items():
            values = function(completions=completions, **asked, **columns)
            total = [before + weight * value for before, value in zip(total, values, strict=True)]
            log_metric(f"rewards/{name}", sum(values) / len(values))
        verdicts = [read_verdict(text, self.answer) for text in completions]
        log_metric("verdicts/none", verdicts.count(None) / len(verdicts))
        log_metric("verdicts/positive", verdicts.count("positive") / len(verdicts))
        if self.samples and trainer_state is not None:
            self.samples.add(trainer_state.global_step, prompts, completions, label, total)
        return [*total]
