"""Which runs the laboratory consists of, in the order in which they are worth having, and which of them answer what.

A cell is one thing that is compared, trained once a seed. Data and judges come first, and one seed of everything
before the second. Training recipes start from those that are shipped; a cell changes one thing. Not: how runs are
worked through (``app.plans``) or what their results say (``report``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from app.lab.recipe import LabRecipe
from app.plans import Part, Results
from app.shipped import shipped_recipes
from engine.errors import RecipeError

TRAIN, HELD_OUT, FRESH = "lab-train", "lab-held", "lab-fresh"
"""Data sets: problems with training labels, with held-out labels, and without labels."""
GENERATOR_SEEDS = {TRAIN: 902, HELD_OUT: 901, FRESH: 903}
RULES = {
    "rel-ratio": "rel-ratio:gamma=0.8",
    "abs-q": "abs-q",
    "rel-effective": "rel-effective:alpha=0.4,n=4",
}
REL = "rel-ratio"
POLICY, PLAIN_POLICY = "nano", "nano-plain"
BASE = "base"
ABLATIONS = {
    "no-cot": "no CoT (verdict only)",
    "no-balance": "no balancing",
    "no-clip-higher": "no clip-higher",
    "all-labels": "all labels, unsure ones too",
    "after-errors": "chunks after an error too",
    "blank-line": "blank-line chunks",
}
SURE = 0.8
"""Least confidence of a label, unless all labels are the point."""
CANDIDATES = 8
"""Solutions a problem, right and wrong, among which one is selected."""
SCORINGS = 4
"""Judgments a chunk that a solution is selected by."""

Data = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One thing that is compared. ``measured``: the parts whose results are its figures, one a seed."""

    key: str
    title: str
    measured: tuple[str, ...]


@dataclass
class Lab:
    """All parts in order, the cells by key, and the shipped recipes that trainings start from, by name."""

    shipped: Mapping[str, Data]
    parts: list[Part] = field(default_factory=list)
    cells: dict[str, Cell] = field(default_factory=dict)

    def add(self, name: str, kind: str, recipe: Callable[[Results], Data] | Data, *needs: str) -> str:
        make = recipe if callable(recipe) else lambda _, fixed=recipe: deepcopy(fixed)
        self.parts.append(Part(name, kind, make, needs))
        return name

    def start(self, name: str) -> Data:
        """A copy of the shipped recipe's fields. Raises RecipeError if there is none of that name."""
        if name not in self.shipped:
            raise RecipeError(
                f"the laboratory starts from the shipped recipe {name!r}; there are {list(self.shipped)}"
            )
        return deepcopy(self.shipped[name])

    def measure(self, key: str, title: str, part: str) -> None:
        """Count ``part``'s result as one more figure of the cell."""
        earlier = self.cells[key].measured if key in self.cells else ()
        self.cells[key] = Cell(key, title, (*earlier, part))


@dataclass(frozen=True)
class Judge:
    """A judge as it is trained: under which rule, from which shipped recipe; ``variant``: how its set differs."""

    key: str
    title: str
    kind: str
    shipped: str
    rule: str
    variant: str = ""
    tuned_first: bool = False
    """Whether it starts from the fine-tuned judge of the same seed instead of from the base."""


def lab_plan(recipe: LabRecipe, shipped: Mapping[str, Data] | None = None) -> Lab:
    """The laboratory of this recipe. ``shipped``: the recipes that trainings start from; by default today's."""
    lab = Lab(todays_recipes() if shipped is None else shipped)
    _data(lab, recipe)
    others = [judge for rule in recipe.rules if rule != REL for judge in _both(rule)]
    judges = [*_both(REL), RSFT, BEST, *others, *map(_ablation, recipe.ablations)]
    _evaluate(lab, recipe, BASE, "base, untrained", lambda _: POLICY, REL)
    for seed in range(1, recipe.seeds + 1):
        for judge in judges:
            _judge(lab, recipe, judge, seed)
        if "search" in recipe.comparisons:
            _search(lab, recipe, seed)
        if "selection" in recipe.comparisons:
            _selection(lab, recipe, seed)
    return lab


def todays_recipes() -> dict[str, Data]:
    """The shipped recipes of trainings, by name, as they are now."""
    return {one.name: one.data for one in shipped_recipes() if one.kind.startswith("train-")}


# ---- data


def _data(lab: Lab, recipe: LabRecipe) -> None:
    for dataset, problems in ((TRAIN, recipe.train_problems), (HELD_OUT, recipe.held_out_problems)):
        n = recipe.n if dataset == TRAIN else recipe.held_out_m  # the value of the bare problem is theirs
        lab.add(_sample(dataset), "sample", _draw(recipe, dataset, problems) | {"n": n})
    lab.add(_rollout(TRAIN), "rollout", _roll_out(recipe, TRAIN, recipe.m), _sample(TRAIN))
    lab.add(_rollout(HELD_OUT), "rollout", _roll_out(recipe, HELD_OUT, recipe.held_out_m), _sample(HELD_OUT))


def _sample(dataset: str, policy: str = POLICY) -> str:
    return f"sample {dataset}" if policy == POLICY else f"sample {dataset} with {policy}"


def _rollout(dataset: str, policy: str = POLICY) -> str:
    return f"roll out {dataset}" if policy == POLICY else f"roll out {dataset} of {policy}"


def _draw(recipe: LabRecipe, dataset: str, problems: int) -> Data:
    generate = {"world": "nano", "count": problems, "seed": GENERATOR_SEEDS[dataset]}
    return {"dataset": dataset, "generate": generate, "seed": recipe.seed}


def _chosen(recipe: LabRecipe, dataset: str, policy: str = POLICY) -> Data:
    """The solutions whose chunks have labels: of problems that were solved by some and missed by other draws."""
    return {"dataset": dataset, "policy": policy, "mixed_only": True, "per_problem": recipe.per_problem}


def _roll_out(recipe: LabRecipe, dataset: str, m: int, policy: str = POLICY) -> Data:
    return {
        "select": _chosen(recipe, dataset, policy),
        "m": m,
        "llm": {"checkpoint": policy},
        "seed": recipe.seed,
    }


def _set(lab: Lab, recipe: LabRecipe, judge: Judge) -> str:
    """The part that builds the judge's training set; made once, whatever the seeds."""
    form = "turns" if judge.kind == "train-judge-sft" else "judge"
    name = " ".join(filter(None, ("set", judge.rule, judge.variant, "as turns" if form == "turns" else "")))
    if any(part.name == name for part in lab.parts):
        return name
    policy, needs = POLICY, (_rollout(TRAIN), _sample(HELD_OUT))
    if judge.variant == "blank-line":
        policy, needs = PLAIN_POLICY, (_plain_data(lab, recipe), _sample(HELD_OUT))
    labels = {
        "rule": RULES[judge.rule],
        "min_confidence": 0.0 if judge.variant == "all-labels" else SURE,
        "balance": judge.variant != "no-balance",
        "until_first_negative": judge.variant != "after-errors",
        "held_out": 0.15,
        "held_out_chunks": 100,
    }

    def data(_: Results) -> Data:
        own = {} if form == "turns" else {"prompt": lab.start(judge.shipped)["prompt"]}
        return own | {
            "form": form,
            "select": _chosen(recipe, TRAIN, policy),
            "labels": labels,
            "clear_of": [HELD_OUT],
            "seed": recipe.seed,
        }

    return lab.add(name, "build-set", data, *needs)


def _plain_data(lab: Lab, recipe: LabRecipe) -> str:
    """Solutions of the policy that writes no tags to the same problems, rolled out at blank lines."""
    sampled, rolled = _sample(TRAIN, PLAIN_POLICY), _rollout(TRAIN, PLAIN_POLICY)
    draw = {"dataset": TRAIN, "n": recipe.n, "llm": {"checkpoint": PLAIN_POLICY}, "seed": recipe.seed}
    lab.add(sampled, "sample", draw, _sample(TRAIN))
    return lab.add(rolled, "rollout", _roll_out(recipe, TRAIN, recipe.m, PLAIN_POLICY), sampled)


# ---- judges


RSFT = Judge("rs-ft", f"{REL}, RS-FT", "train-judge-rsft", "rsft-judge-nano", REL)
"""Without reinforcement: fine-tuned on its own rationales with the right verdict."""
BEST = Judge("best", f"{REL}, RS-FT then GRPO", "train-judge", "judge-grpo-nano", REL, tuned_first=True)
"""The judge that search and selection use."""


def _both(rule: str) -> list[Judge]:
    """The generative and the discriminative judge of a rule."""
    return [
        Judge(f"grpo {rule}", f"{rule}, GRPO", "train-judge", "judge-grpo-nano", rule),
        Judge(f"sft {rule}", f"{rule}, discriminative", "train-judge-sft", "discriminative-nano", rule),
    ]


def _ablation(name: str) -> Judge:
    """The generative judge of rel-ratio with one thing changed."""
    start = "judge-verdict-nano" if name == "no-cot" else "judge-grpo-nano"
    variant = "" if name == "no-clip-higher" else name
    return Judge(name, ABLATIONS[name], "train-judge", start, REL, variant)


def _judge(lab: Lab, recipe: LabRecipe, judge: Judge, seed: int) -> None:
    """Train the judge with this seed and measure it on the held-out chunks."""
    built = _set(lab, recipe, judge)

    def train(results: Results) -> Data:
        start = lab.start(judge.shipped)
        if judge.key == "no-clip-higher":
            start["grpo"]["epsilon_high"] = start["grpo"]["epsilon"]
        own = {"seed": seed, "name": None, "set": results[built].result["set"]}
        if judge.tuned_first:
            own["base"] = results[_training(RSFT, seed)].result["checkpoint"]
        return _smaller(start, recipe) | own

    needs = (built, _training(RSFT, seed)) if judge.tuned_first else (built,)
    trained = lab.add(_training(judge, seed), judge.kind, train, *needs)
    _evaluate(
        lab, recipe, judge.key, f"{judge.title}, seed {seed}", _made(trained), judge.rule, trained, judge
    )


def _training(judge: Judge, seed: int) -> str:
    """Name of the part that trains the judge with this seed."""
    return f"{judge.title}, seed {seed}: train"


def _made(part: str) -> Callable[[Results], str]:
    """Name of the checkpoint that a training part made."""
    return lambda results: str(results[part].result["checkpoint"])


def _evaluate(
    lab: Lab,
    recipe: LabRecipe,
    key: str,
    title: str,
    checkpoint: Callable[[Results], str],
    rule: str,
    trained: str | None = None,
    judge: Judge | None = None,
) -> None:
    """Held-out accuracy under the judge's own rule, and under rel-ratio so that all judges compare.

    The chunks are drawn with the laboratory's seed, not the training's: every judge of a rule reads the same ones.
    The base, which has no rule of its own, is measured under every rule.
    """
    rules = list(dict.fromkeys((rule, REL))) if judge else list(recipe.rules)

    def data(results: Results) -> Data:
        return {
            "judge": {"llm": {"checkpoint": checkpoint(results)}, "k": recipe.k},
            "select": _chosen(recipe, HELD_OUT),
            "rules": [RULES[name] for name in rules],
            "min_confidence": SURE,
            "until_first_negative": True,
            "limit": recipe.chunks,
            "seed": recipe.seed,
        }

    needs = (_rollout(HELD_OUT), *([trained] if trained else []))
    part = lab.add(f"{title}: evaluate", "evaluate-judge", data, *needs)
    lab.measure(key, judge.title if judge else title, part)


def _smaller(data: Data, recipe: LabRecipe) -> Data:
    """The training recipe within the laboratory's limits of steps and batches."""
    data = deepcopy(data)
    for part, batch in (("grpo", "prompts_per_batch"), ("sft", "batch"), ("warm_start", "batch")):
        for name, most in (("steps", recipe.steps), (batch, recipe.batch)):
            if most is not None and isinstance(data.get(part), dict) and name in data[part]:
                data[part][name] = min(data[part][name], most)
    return data


# ---- what trained judges are used for


def _search(lab: Lab, recipe: LabRecipe, seed: int) -> None:
    """Chunk-reset search with trained judges of rel-ratio; with the base judge, and without any, once."""

    def search(key: str, title: str, checkpoint: Callable[[Results], str], trained: str | None) -> None:
        def data(results: Results) -> Data:
            judge = {"llm": {"checkpoint": checkpoint(results), "gpu_memory_utilization": 0.45}}
            return _draw(recipe, FRESH, recipe.fresh_problems) | {
                "n": recipe.fresh_n,
                "judge": judge,
                "plain": trained is None,  # its draws do not depend on the judge
            }

        part = lab.add(f"{title}: search", "search", data, *([trained] if trained else []))
        lab.measure(key, title.partition(", seed")[0], part)

    if seed == 1:
        search("search base", "base, untrained", lambda _: POLICY, None)
    for judge in (_both(REL)[1], BEST):
        trained = _training(judge, seed)
        search(f"search {judge.key}", f"{judge.title}, seed {seed}", _made(trained), trained)


def _selection(lab: Lab, recipe: LabRecipe, seed: int) -> None:
    """Fine-tune the policy on one correct solution a problem, chosen by a judge or at random, and let it solve."""
    each = min(recipe.n, CANDIDATES)
    solutions = {"dataset": TRAIN, "policy": POLICY, "mixed_only": True, "per_problem": each}
    solutions["limit"] = recipe.selection_problems * each

    def judged(judge: Judge) -> str:
        trained = _training(judge, seed)

        def data(results: Results) -> Data:
            llm = {"checkpoint": results[trained].result["checkpoint"]}
            return {"select": solutions, "llm": llm, "k": SCORINGS, "seed": recipe.seed}

        return lab.add(f"{judge.title}, seed {seed}: read solutions", "judge", data, trained, _sample(TRAIN))

    def tuned(key: str, title: str, how: str, reading: str) -> None:
        def select(results: Results) -> Data:
            judge = results[reading].result["judge"]
            return {"select": solutions, "how": how, "judge": judge, "seed": seed}

        chosen = lab.add(f"{title}, seed {seed}: select", "select-solutions", select, reading)

        def train(results: Results) -> Data:
            own = {"seed": seed, "name": None, "set": results[chosen].result["set"]}
            return _smaller(lab.start("sft-nano"), recipe) | own

        trained = lab.add(f"{title}, seed {seed}: fine-tune", "train-sft", train, chosen)
        _solve(lab, recipe, f"select {key}", title, _made(trained), seed, trained)

    if seed == 1:
        _solve(lab, recipe, "select base", "policy before fine-tuning", lambda _: POLICY, None, None)
    by_generative = judged(BEST)
    tuned("outcome", "outcome only", "outcome", by_generative)
    tuned("best", "selected by the generative judge", "stepwise", by_generative)
    tuned("sft", "selected by the discriminative judge", "stepwise", judged(_both(REL)[1]))


def _solve(
    lab: Lab,
    recipe: LabRecipe,
    key: str,
    title: str,
    checkpoint: Callable[[Results], str],
    seed: int | None,
    trained: str | None,
) -> None:
    def data(results: Results) -> Data:
        llm = {"checkpoint": checkpoint(results)}
        return _draw(recipe, FRESH, recipe.fresh_problems) | {"n": recipe.fresh_n, "llm": llm}

    name = title if seed is None else f"{title}, seed {seed}"
    part = lab.add(f"{name}: solve", "evaluate-policy", data, *([trained] if trained else []))
    lab.measure(key, title, part)
