"""The loop's rounds as parts of a plan: which runs a round has, and what each reads of those before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.loop import LoopRecipe
from app.plans import Part, Results

Data = dict[str, Any]


def name_of(number: int, what: str) -> str:
    """Name of a round's part: ``round 2: train judge``."""
    return f"round {number}: {what}"


def loop_rounds(recipe: LoopRecipe) -> list[list[Part]]:
    """The parts of each round; round 0 measures the policy that there is."""
    return [_Round(recipe, number).parts for number in range(recipe.rounds + 1)]


class _Round:
    """One round's parts, in order."""

    def __init__(self, recipe: LoopRecipe, number: int):
        self.recipe, self.number = recipe, number
        self.parts: list[Part] = []
        if number:
            self._judge_data()
            {"grpo": self._by_grpo, "selection": self._by_selection, "nothing": lambda: None}[
                recipe.improve.how
            ]()
        if not number or recipe.improve.how != "nothing":
            self._add("measure policy", "evaluate-policy", self._measure, *self._improving(number))

    def _add(self, what: str, kind: str, recipe: Callable[[Results], Data], *needs: str) -> str:
        name = name_of(self.number, what)
        self.parts.append(Part(name, kind, recipe, needs))
        return name

    def _improving(self, number: int) -> tuple[str, ...]:
        """The part that made the round's policy; none where there is the first one still."""
        if not number or self.recipe.improve.how == "nothing":
            return ()
        return (name_of(number, "train policy"),)

    def _policy(self, results: Results, number: int) -> str:
        """Checkpoint of the policy after that round."""
        made = self._improving(number)
        return str(results[made[0]].result["checkpoint"]) if made else self.recipe.policy

    def _judge(self, results: Results) -> str:
        """Checkpoint of this round's judge."""
        return str(results[name_of(self.number, "train judge")].result["checkpoint"])

    def _writer(self, results: Results) -> str:
        """The policy that this round samples with: the last round's."""
        return self._policy(results, self.number - 1)

    def _problems(self) -> Data:
        generate = self.recipe.generate
        own = generate.model_copy(update={"seed": generate.seed + self.number - 1})
        return {"dataset": self.recipe.dataset, "generate": own.model_dump()}

    def _judge_data(self) -> None:
        """Sample, roll out, train the judge on the labels of all rounds so far."""
        recipe, number = self.recipe, self.number

        def draw(results: Results) -> Data:
            return {
                "llm": {"checkpoint": self._writer(results)},
                "prompt": recipe.policy_prompt,
                "draws": recipe.draws.model_dump(),
                "seed": recipe.seed,
            }

        def roll_out(results: Results) -> Data:
            chosen = {"policy": self._writer(results), "mixed_only": True, "per_problem": recipe.per_problem}
            return draw(results) | {"m": recipe.m, "select": {"dataset": recipe.dataset, **chosen}}

        def train(results: Results) -> Data:
            last = name_of(number - 1, "train judge")
            further = recipe.judge_from == "last" and number > 1
            return {
                "base": results[last].result["checkpoint"] if further else recipe.judge,
                "prompt": recipe.judge_prompt,
                "select": {"dataset": recipe.dataset},
                "labels": recipe.labels.model_dump(),
                "grpo": recipe.grpo.model_dump(),
                "hardware": recipe.hardware.model_dump(),
                "seed": recipe.seed,
            }

        before = self._improving(number - 1)
        sampled = self._add(
            "sample", "sample", lambda r: draw(r) | self._problems() | {"n": recipe.n}, *before
        )
        rolled = self._add("roll out", "rollout", roll_out, *before, sampled)
        earlier = (name_of(number - 1, "train judge"),) if number > 1 else ()
        self._add("train judge", "train-judge", train, *earlier, rolled)

    def _by_grpo(self) -> None:
        recipe, improve = self.recipe, self.recipe.improve

        def train(results: Results) -> Data:
            door = {"checkpoint": self._judge(results), "gpu_memory_utilization": 0.2}
            return self._problems() | {
                "base": self._writer(results),
                "prompt": recipe.policy_prompt,
                "judge": {"llm": door, "prompt": recipe.judge_prompt},
                "reward": improve.reward.model_dump(),
                "guards": improve.guards.model_dump(),
                "grpo": improve.grpo.model_dump(),
                "hardware": recipe.hardware.model_dump(),
                "seed": recipe.seed,
            }

        needs = (*self._improving(self.number - 1), name_of(self.number, "train judge"))
        self._add("train policy", "train-policy", train, *needs)

    def _by_selection(self) -> None:
        recipe, improve = self.recipe, self.recipe.improve

        def own(results: Results) -> Data:
            return {"dataset": recipe.dataset, "policy": self._writer(results), "mixed_only": True}

        def read(results: Results) -> Data:
            llm = {"checkpoint": self._judge(results)}
            return {
                "select": own(results),
                "llm": llm,
                "k": improve.k,
                "prompt": recipe.judge_prompt,
                "seed": recipe.seed,
            }

        def select(results: Results) -> Data:
            judge = results[reading].result["judge"]
            chosen = {"select": own(results), "judge": judge, "prompt": recipe.policy_prompt}
            return chosen | {"seed": recipe.seed}

        def train(results: Results) -> Data:
            return {
                "base": self._writer(results),
                "set": results[choosing].result["set"],
                "prompt": recipe.policy_prompt,
                "sft": improve.sft.model_dump(),
                "hardware": recipe.hardware.model_dump(),
                "seed": recipe.seed,
            }

        before = self._improving(self.number - 1)
        reading = self._add("read solutions", "judge", read, *before, name_of(self.number, "train judge"))
        choosing = self._add("select solutions", "select-solutions", select, *before, reading)
        self._add("train policy", "train-sft", train, *before, choosing)

    def _measure(self, results: Results) -> Data:
        recipe = self.recipe
        return {
            "dataset": f"{recipe.dataset}-test",
            "generate": recipe.test.model_dump(),
            "n": recipe.test_n,
            "llm": {"checkpoint": self._policy(results, self.number)},
            "prompt": recipe.policy_prompt,
            "draws": recipe.draws.model_dump(),
            "seed": recipe.seed,
        }
