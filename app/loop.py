"""The continual loop: k rounds of sampling, rolling out, training the judge on all labels so far, and with that judge
the policy, which the next round samples with. Each round is a set of runs that can be looked at and resumed.

A judge's training chooses its labels when it starts: what people reviewed until then is taken in. Not: how any of it
is done (the kinds of run), or how a plan goes on (``app.plans``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from engine.checkpoints import resolve_checkpoint
from engine.judge import load_prompt
from engine.labels import parse_rule
from engine.recipes import Draws, Generate, Part, Recipe
from training.grpo_parts import Grpo
from training.guards import Guards
from training.parts import Hardware, LabelChoice, Sft
from training.policy_recipes import ProcessReward

if TYPE_CHECKING:
    from db.rows import RunRow
    from engine.runs import RunContext


class Improve(Part):
    """How a round's judge makes the policy better."""

    how: Literal["grpo", "selection", "nothing"] = Field(
        "grpo",
        description="grpo: GRPO with the judge's scores as rewards; selection: fine-tune on each problem's correct "
        "solution that the judge likes best; nothing: only the judge is trained, on ever more labels",
    )
    grpo: Grpo = Field(
        default_factory=lambda: Grpo(
            steps=80, prompts_per_batch=8, generations=8, learning_rate=2e-5, max_tokens=256
        ),
        description="With grpo",
    )
    reward: ProcessReward = Field(default_factory=ProcessReward, description="With grpo")
    guards: Guards = Field(default_factory=Guards, description="With grpo")
    sft: Sft = Field(
        default_factory=lambda: Sft(steps=100, batch=32, learning_rate=3e-4), description="With selection"
    )
    k: int = Field(
        4, ge=1, le=256, description="With selection: judgments a chunk that solutions are chosen by"
    )


class LoopRecipe(Recipe):
    """Sample, roll out, train the judge, train the policy, and again with the new policy."""

    kind: Literal["loop"] = "loop"
    rounds: int = Field(2, ge=1, le=100, description="How often all of it is done")
    pause: bool = Field(
        False,
        description="Stop after every round, so that people can review; Resume goes on with the next one",
    )
    policy: str = Field("nano", description="Checkpoint that the first round samples with")
    policy_prompt: str = Field("policy_nano", description="Prompt of the policy, by name")
    judge: str = Field("nano", description="Checkpoint that judges are trained from")
    judge_prompt: str = Field("judge_nano", description="Prompt of the judge, by name")
    judge_from: Literal["base", "last"] = Field(
        "base",
        description="From the second round on: train the base anew on all labels so far, or the last round's judge "
        "further (its held-out chunks may have been trained on before: its accuracy flatters)",
    )
    dataset: str = Field("loop", description="Data set of the loop; all its labels train the judge")
    generate: Generate = Field(
        default_factory=lambda: Generate(count=100),
        description="New problems of every round: round r's have the seed + r − 1",
    )
    n: int = Field(16, ge=2, le=4096, description="Solutions a problem")
    m: int = Field(16, ge=1, le=4096, description="Rollouts a prefix")
    per_problem: int = Field(2, ge=1, description="Solutions a problem that are rolled out")
    draws: Draws = Field(default_factory=lambda: Draws(max_tokens=256))
    labels: LabelChoice = Field(default_factory=LabelChoice)
    grpo: Grpo = Field(default_factory=Grpo, description="GRPO of the judge")
    improve: Improve = Field(default_factory=Improve)
    test: Generate = Field(
        default_factory=lambda: Generate(count=60, seed=900_000),
        description="Problems on which every round's policy is measured. Their seed is no round's, but beside thousands of "
        "problems a few short ones were written by a round as well: they are trained on",
    )
    test_n: int = Field(8, ge=1, le=4096, description="Solutions of each of them")
    hardware: Hardware = Field(default_factory=Hardware)

    @model_validator(mode="after")
    def _test_is_apart(self) -> LoopRecipe:
        if self.generate.seed <= self.test.seed < self.generate.seed + self.rounds:
            raise ValueError(
                f"test.seed {self.test.seed} is the seed of a round's problems: they would be trained on"
            )
        return self

    def check(self, home: Path) -> None:
        resolve_checkpoint(self.policy, home)
        resolve_checkpoint(self.judge, home)
        load_prompt(self.policy_prompt, needs=("problem",))
        load_prompt(self.judge_prompt)
        parse_rule(self.labels.rule)

    @property
    def parts(self) -> int:
        """How many runs that makes."""
        from app.loop_parts import loop_rounds  # it needs the kinds of run, and this is one of them

        return sum(map(len, loop_rounds(self)))


def run(ctx: RunContext[LoopRecipe]) -> dict[str, Any]:
    """Work round after round. Returns each round's figures and the last checkpoints; a resumed loop goes on."""
    from app.loop_parts import loop_rounds
    from app.plans import execute

    rounds = loop_rounds(ctx.recipe)
    total = sum(map(len, rounds))
    told = ctx.store.run(ctx.run_id).result  # what an earlier attempt ended with
    done: dict[str, RunRow] = {}
    for number in range(1, len(rounds)):
        parts = [part for some in rounds[: number + 1] for part in some]
        done = execute(ctx, parts, total=total)
        _log_figures(ctx, done)
        if ctx.stopping:
            break
        # not whether this attempt did any of it: a round may have ended while the loop itself was killed
        new = told.get(f"round {number}") != figures(ctx.recipe, done).get(number)
        if new and ctx.recipe.pause and number < ctx.recipe.rounds:
            ctx.log(f"round {number} is done: pausing for reviews; resume goes on with round {number + 1}")
            ctx.stop()
            break
    return summary(ctx.recipe, done)


def figures(recipe: LoopRecipe, done: Mapping[str, RunRow]) -> dict[int, dict[str, Any]]:
    """Each round's figures, as far as its runs are done: ``pass_rate`` of the solutions that the round began with,
    ``judge_accuracy`` on held-out chunks before and after, ``policy_accuracy`` on the test problems."""
    from app.loop_parts import name_of

    found: dict[int, dict[str, Any]] = {}
    for number in range(recipe.rounds + 1):
        own: dict[str, Any] = {}
        if sampled := done.get(name_of(number, "sample")):
            own["pass_rate"] = sampled.result["pass_rate"]
        if judge := done.get(name_of(number, "train judge")):
            for when in ("before", "after"):
                if measured := judge.result.get(f"held_out_{when}"):
                    own[f"judge_accuracy_{when}"] = measured["single"]
            own["judge"] = judge.result["checkpoint"]
        if policy := done.get(name_of(number, "train policy")):
            own["policy"] = policy.result["checkpoint"]
        if solved := done.get(name_of(number, "measure policy")):
            own |= {"policy_accuracy": solved.result["accuracy"], "interval": solved.result["interval"]}
        if own:
            found[number] = own
    return found


def summary(recipe: LoopRecipe, done: Mapping[str, RunRow]) -> dict[str, Any]:
    """The run's result: figures by round, and the newest checkpoints."""
    rounds = figures(recipe, done)
    result: dict[str, Any] = {f"round {number}": own for number, own in rounds.items()}
    for what, name in (("judge", "judge"), ("policy", "checkpoint")):
        if made := [own[what] for own in rounds.values() if what in own]:
            result[name] = made[-1]
    return result


def _log_figures(ctx: RunContext[LoopRecipe], done: Mapping[str, RunRow]) -> None:
    """Figures as curves over the rounds; what is logged already stays."""
    for number, own in figures(ctx.recipe, done).items():
        for name, value in own.items():
            if isinstance(value, float):
                ctx.metric(f"loop/{name}", number, value)
