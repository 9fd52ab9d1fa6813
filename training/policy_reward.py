"""The policy's reward in training: completions → chunks → a judge's scores and a grade → rewards and token advantages.

``PolicyReward`` is one reward function in TRL's signature; ``token_advantages`` spreads chunk advantages over tokens. The
arithmetic is ``process_rewards``; the trainer is ``grpo_policy``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.answers import Grade, Grader, Reference, words
from engine.chunks import Cut, cut_best
from engine.judges import Judge, ToRead, scores_of
from engine.segmentation import well_formed
from training.guards import Guards, Habits, chunk_prices, habits_of, solution_price
from training.process_rewards import Scored, aggregate, chunk_advantages, trajectory_reward
from training.rewards import Samples

if TYPE_CHECKING:
    from engine.llm.tokens import Tokens
    from training.policy_recipes import ProcessReward


@dataclass(frozen=True)
class Read:
    """One completion as the reward saw it; ``scored`` is None where the grader failed: nothing is known then."""

    token_ids: tuple[int, ...]
    cut: Cut
    habits: Habits
    grade: Grade
    scored: Scored | None


@dataclass(frozen=True)
class Setting:
    """What a reward needs to know of its run."""

    reward: ProcessReward
    guards: Guards
    k: int
    seed: int
    limit: int
    end_ids: frozenset[int]


class PolicyReward:
    """(1 − w)·process + w·outcome − penalties for every completion; None where the grader failed.

    ``last`` keeps what the last generation batch was read as, for advantages by chunk. Without a judge
    (``outcome_weight`` 1) only the outcome counts. Draws of the judge depend on step and place in the batch, so a resumed
    run draws the same ones; torch's own random state is left alone.
    """

    __name__ = "policy"

    def __init__(
        self, setting: Setting, tokens: Tokens, judge: Judge | None, grader: Grader, samples: Samples
    ):
        self.setting, self.tokens, self.judge, self.grader = setting, tokens, judge, grader
        self.samples = samples
        self.last: list[Read] = []

    def __call__(
        self,
        prompts: Sequence[str],
        completion_ids: Sequence[Sequence[int]],
        problem: Sequence[str],
        reference: Sequence[str],
        verifier: Sequence[str],
        trainer_state: Any,
        log_metric: Callable[[str, float], None],
        **_: Any,
    ) -> list[float | None]:
        """``completion_ids``, ``problem``, ``reference`` and ``verifier`` have one entry a completion; TRL passes more."""
        texts = [self.tokens.decode(ids) for ids in completion_ids]
        references = [Reference(*one) for one in zip(reference, verifier, strict=True)]
        self.last = self._read(texts, completion_ids, problem, references, trainer_state.global_step)
        reward = self.setting.reward
        rewards = [
            None
            if read.scored is None
            else trajectory_reward(
                read.scored, aggregation=reward.aggregation, outcome_weight=reward.outcome_weight
            )
            for read in self.last
        ]
        for name, values in self._curves().items():
            if values:
                log_metric(name, sum(values) / len(values))
        shown = [
            f"answer {words(one)}: {read.grade.outcome}"
            for one, read in zip(references, self.last, strict=True)
        ]
        self.samples.add(trainer_state.global_step, prompts, texts, shown, [r or 0.0 for r in rewards])
        return rewards

    def _read(
        self,
        texts: Sequence[str],
        completion_ids: Sequence[Sequence[int]],
        problems: Sequence[str],
        references: Sequence[Reference],
        step: int,
    ) -> list[Read]:
        ends = ["stop" if ids and ids[-1] in self.setting.end_ids else "length" for ids in completion_ids]
        grades = self.grader.grade_many(list(zip(texts, references, ends, strict=True)))
        cuts = [cut_best(text, truncated=end == "length")[0] for text, end in zip(texts, ends, strict=True)]
        chunks = [tuple(chunk.text for chunk in cut.chunks) for cut in cuts]
        scores = self._scores(chunks, problems, step)
        found = []
        for text, end, ids, cut, own, score, grade in zip(
            texts, ends, completion_ids, cuts, chunks, scores, grades, strict=True
        ):
            form = well_formed(text, truncated=end == "length")
            habits = habits_of(own, well_formed=form, tokens=len(ids), guards=self.setting.guards)
            found.append(Read(tuple(ids), cut, habits, grade, self._scored(score, habits, grade)))
        return found

    def _scores(
        self, chunks: Sequence[tuple[str, ...]], problems: Sequence[str], step: int
    ) -> list[tuple[float | None, ...]]:
        if self.judge is None:
            return [(None,) * len(own) for own in chunks]
        import torch

        solutions = [
            ToRead(f"{step}:{place}", problem, own)
            for place, (problem, own) in enumerate(zip(problems, chunks, strict=True))
        ]
        with torch.random.fork_rng():  # the trainer's next draws must not hang on how the judge draws
            return scores_of(self.judge, solutions, k=self.setting.k, seed=self.setting.seed)

    def _scored(self, scores: tuple[float | None, ...], habits: Habits, grade: Grade) -> Scored | None:
        if grade.outcome == "error":
            return None
        return Scored(
            scores,
            float(grade.outcome == "correct"),
            chunk_prices(habits, self.setting.guards),
            solution_price(habits, self.setting.guards, self.setting.limit),
        )

    def _curves(self) -> dict[str, list[float]]:
        """What is logged: the parts of the reward, and the habits that a judge could be pleased by."""
        scored = [read.scored for read in self.last if read.scored is not None]
        curves: dict[str, list[float]] = {
            "rewards/outcome": [one.outcome for one in scored],
            "guards/penalty": [sum(one.chunk_penalties) + one.penalty for one in scored],
        }
        if self.judge is not None:
            how = self.setting.reward.aggregation
            curves["rewards/process"] = [aggregate(one.scores, how) for one in scored]
        for read in self.last:
            for name, value in read.habits.curves.items():
                curves.setdefault(f"guards/{name}", []).append(value)
        return curves


def token_advantages(
    group: Sequence[Read], reward: ProcessReward, decode: Callable[[Sequence[int]], str], *, scale: bool
) -> list[list[float]]:
    """An advantage a token for completions of one problem: the tokens of a chunk, and of what leads to it, have the
    chunk's; those behind the last chunk the tail's. 0 for a completion that the grader failed on."""
    known = [read for read in group if read.scored is not None]
    advantages = iter(
        chunk_advantages(
            [read.scored for read in known if read.scored is not None],
            outcome_weight=reward.outcome_weight,
            baseline=reward.baseline,
            scale=scale,
        )
    )
    rows = []
    for read in group:
        if read.scored is None:
            rows.append([0.0] * len(read.token_ids))
            continue
        own = next(advantages)
        row = [own.tail] * len(read.token_ids)
        start = 0
        for end, advantage in zip(chunk_ends(read, decode), own.chunks, strict=True):
            row[start:end] = [advantage] * (end - start)
            start = end
        rows.append(row)
    return rows


def chunk_ends(read: Read, decode: Callable[[Sequence[int]], str]) -> list[int]:
    """For each chunk the number of tokens up to and with its last character."""
    ends: list[int] = []
    characters, low = 0, 0
    for chunk in read.cut.chunks:
        characters += len(chunk.whole)
        places = range(low, len(read.token_ids) + 1)
        low += bisect_left(places, characters, key=lambda n: len(decode(read.token_ids[:n])))
        ends.append(min(low, len(read.token_ids)))
    return ends
