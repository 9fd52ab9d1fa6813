"""The kinds of run: recipe, function, what the pages call it. The composition root: nothing else knows all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from app.lab.recipe import LabRecipe
from app.loop import LoopRecipe
from db.store import Store
from engine.errors import RecipeError
from engine.evaluate.recipes import EvaluateJudgeRecipe, EvaluatePolicyRecipe
from engine.recipes import JudgeRecipe, Recipe, RolloutRecipe, SampleRecipe, resolve
from engine.search.recipes import SearchRecipe
from training.jobs import TrainJudgeRecipe
from training.policy_recipes import SelectRecipe, TrainPolicyRecipe
from training.segment_recipe import SegmentRecipe
from training.sets.recipe import BuildSetRecipe
from training.sft_recipes import DiscriminativeRecipe, RsftJudgeRecipe, SftRecipe


@dataclass(frozen=True)
class Kind:
    """One kind of run. ``function`` is ``module:name``, imported only in the run's own process."""

    name: str
    title: str
    does: str
    recipe: type[Recipe]
    function: str
    unit: str
    count: Callable[[Store, Any], int]
    """Units of work that a recipe asks for, an upper bound: what is stored already is not done again."""

    def load(self) -> Any:
        module, _, name = self.function.partition(":")
        return getattr(import_module(module), name)


def _solutions(store: Store, recipe: SampleRecipe | EvaluatePolicyRecipe | SearchRecipe) -> int:
    problems = recipe.generate.count if recipe.generate else store.count_problems(recipe.dataset)
    return min(problems, recipe.limit or problems) * recipe.n


def _rollouts(store: Store, recipe: RolloutRecipe) -> int:
    behind_chunks, bare_problems = store.count_prefixes(**recipe.select.model_dump())
    searched = recipe.places == "first-error"  # a search looks at no bare problem
    return (behind_chunks + (0 if searched else bare_problems)) * recipe.m


def _judgments(store: Store, recipe: JudgeRecipe) -> int:
    return store.count_selection(**recipe.select.model_dump())[1] * recipe.k


def _held_out(store: Store, recipe: EvaluateJudgeRecipe) -> int:
    chunks = store.count_selection(**recipe.select.model_dump())[1]
    most = (recipe.limit or chunks) * len(recipe.rules)
    return (most if recipe.set else min(most, chunks)) * recipe.judge.k


def _cut(store: Store, recipe: SegmentRecipe) -> int:
    return store.count_selection(**recipe.select.model_dump())[0]


def _searched(store: Store, recipe: SearchRecipe) -> int:
    return _solutions(store, recipe) * (2 if recipe.plain else 1)


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "sample",
            "Sample solutions",
            "A policy writes N chunked solutions to each problem.",
            SampleRecipe,
            "engine.pipeline:sample",
            "solutions",
            _solutions,
        ),
        Kind(
            "rollout",
            "Roll out prefixes",
            "M continuations from every prefix give its value Q, and so the labels.",
            RolloutRecipe,
            "engine.pipeline:rollout",
            "rollouts",
            _rollouts,
        ),
        Kind(
            "judge",
            "Judge chunks",
            "A judge reads every chunk, writes a rationale and a verdict.",
            JudgeRecipe,
            "engine.pipeline:judge",
            "judgments",
            _judgments,
        ),
        Kind(
            "build-set",
            "Build a training set",
            "Labels become a frozen set: chosen, split by problem, balanced, with a manifest.",
            BuildSetRecipe,
            "training.sets.build:run",
            "chunks",
            lambda store, recipe: store.count_selection(**recipe.select.model_dump())[1],
        ),
        Kind(
            "segment",
            "Segment solutions",
            "A teacher cuts correct solutions into chunks, changing no character: a training set for the policy.",
            SegmentRecipe,
            "training.segmenting:run",
            "solutions",
            _cut,
        ),
        Kind(
            "train-judge",
            "Train a judge",
            "GRPO: a judge is rewarded where its verdict equals the label.",
            TrainJudgeRecipe,
            "training.jobs:train_judge",
            "steps",
            lambda store, recipe: recipe.grpo.steps,
        ),
        Kind(
            "train-judge-sft",
            "Train a + / − judge",
            "Fine-tuning on labels alone: a judge that answers + or − behind every chunk, and whose score is p(+).",
            DiscriminativeRecipe,
            "training.discriminative:run",
            "steps",
            lambda store, recipe: recipe.sft.steps,
        ),
        Kind(
            "train-judge-rsft",
            "Fine-tune a judge",
            "No reinforcement: rationales with the right verdict are kept, and the judge is fine-tuned on them.",
            RsftJudgeRecipe,
            "training.rsft_judge:run",
            "steps",
            lambda store, recipe: recipe.sft.steps,
        ),
        Kind(
            "train-sft",
            "Fine-tune a policy",
            "The completions of a frozen set are learnt: chunked solutions, or those that were selected.",
            SftRecipe,
            "training.sft:run",
            "steps",
            lambda store, recipe: recipe.sft.steps,
        ),
        Kind(
            "select-solutions",
            "Select solutions",
            "Of each problem's correct solutions, the one that a judge likes best becomes a set for fine-tuning.",
            SelectRecipe,
            "training.selecting:run",
            "solutions",
            lambda store, recipe: store.count_selection(**recipe.select.model_dump())[0],
        ),
        Kind(
            "train-policy",
            "Train a policy",
            "GRPO: a policy is rewarded by a judge for its chunks and by the grader for its answer.",
            TrainPolicyRecipe,
            "training.grpo_policy:run",
            "steps",
            lambda store, recipe: recipe.grpo.steps,
        ),
        Kind(
            "evaluate-judge",
            "Evaluate a judge",
            "A judge reads held-out chunks k times: how often is it right, alone and by majority?",
            EvaluateJudgeRecipe,
            "engine.pipeline.evaluating:judge",
            "judgments",
            _held_out,
        ),
        Kind(
            "evaluate-policy",
            "Evaluate a policy",
            "A policy solves problems: accuracy, chunks, form and length of what it writes.",
            EvaluatePolicyRecipe,
            "engine.pipeline.evaluating:policy",
            "solutions",
            _solutions,
        ),
        Kind(
            "search",
            "Search with a judge",
            "Chunk-reset: the judge reads each chunk as it is written, and a rejected one is written again.",
            SearchRecipe,
            "engine.pipeline.searching:run",
            "solutions",
            _searched,
        ),
        Kind(
            "loop",
            "Run the loop",
            "Rounds of sampling, rolling out, training the judge, and with it the policy that samples next.",
            LoopRecipe,
            "app.loop:run",
            "runs",
            lambda store, recipe: recipe.parts,
        ),
        Kind(
            "lab",
            "Run the laboratory",
            "The paper's comparisons rerun in the nano world: hours, as runs of the other kinds.",
            LabRecipe,
            "app.lab.run:run",
            "runs",
            lambda store, recipe: recipe.parts,
        ),
    )
}


def kind_of(name: str) -> Kind:
    """The kind called ``name``. Raises RecipeError."""
    if name not in KINDS:
        raise RecipeError(f"there is no kind of run {name!r}; there are {', '.join(KINDS)}")
    return KINDS[name]


def resolve_recipe(kind: str, data: dict[str, Any]) -> Recipe:
    """A checked recipe of ``kind``; a ``kind`` in the data must agree. Raises RecipeError."""
    if data.get("kind", kind) != kind:
        raise RecipeError(f"the recipe is of kind {data['kind']!r}, the run of kind {kind!r}")
    return resolve(kind_of(kind).recipe, {**data, "kind": kind})
