"""Training sets from the store: labels under a rule → judge prompts with labels, split by problem and balanced.

Labels are worked out from stored counts under the recipe's own rule; the cached labels at default parameters are
not used. Which trainer reads the set is no part of this module.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import TrainingError
from engine.judge import fill, load_prompt
from engine.labels import Rule, confidence, effective_label, label, parse_rule
from engine.pipeline.labelling import chunk_values
from engine.values import Value

if TYPE_CHECKING:
    from db.store import Store
    from training.jobs import TrainJudgeRecipe
    from training.parts import LabelChoice

TRAJECTORIES_A_BATCH = 100

CountTokens = Callable[[Sequence[str]], list[int]]
"""Texts to their lengths in tokens."""


@dataclass(frozen=True)
class Example:
    """One judge prompt and the label (``+`` or ``-``) that its verdict is compared with."""

    chunk_id: int
    problem_id: int
    prompt: str
    label: str


@dataclass(frozen=True)
class TrainingSet:
    """What is trained on, what accuracy is measured on (no problem in both), and how many were left out why."""

    train: tuple[Example, ...]
    held_out: tuple[Example, ...]
    counts: dict[str, int]


@dataclass(frozen=True)
class Labelled:
    """A chunk as the store has it: its prompt, its two values, and what people said of it (verdicts in force)."""

    chunk_id: int
    problem_id: int
    prompt: str
    before: Value
    after: Value
    adjudication: int | None = None
    reviews: tuple[int | None, ...] = ()


def label_examples(store: Store, recipe: TrainJudgeRecipe, count_tokens: CountTokens) -> TrainingSet:
    """The recipe's training set from the store.

    Raises TrainingError where nothing is selected or labelled, or one class is missing; RecipeError on an unknown
    rule, InputError on an unknown prompt.
    """
    selection = recipe.select.model_dump()
    if not store.count_selection(**selection)[0]:
        asked = ", ".join(f"{name} {value!r}" for name, value in selection.items() if value) or "anything"
        raise TrainingError(
            f"the store has no trajectory that fits select ({asked}); select others, or sample first"
        )
    return choose(
        stored_chunks(store, recipe),
        recipe.labels,
        seed=recipe.seed,
        max_prompt_tokens=recipe.grpo.max_prompt_tokens,
        count_tokens=count_tokens,
    )


def choose(
    chunks: Iterable[Labelled],
    choice: LabelChoice,
    *,
    seed: int,
    max_prompt_tokens: int,
    count_tokens: CountTokens,
) -> TrainingSet:
    """Label, filter, split by problem and balance. The same chunks and seed give the same set, in the same order."""
    rule = parse_rule(choice.rule)
    counts: Counter[str] = Counter()
    kept: list[Example] = []
    for chunk in chunks:
        counts["chunks"] += 1
        given, why = chunk_label(chunk, rule, choice)
        counts[why] += 1
        if given:
            kept.append(Example(chunk.chunk_id, chunk.problem_id, chunk.prompt, given))
    lengths = count_tokens([example.prompt for example in kept]) if kept else []
    fitting = [e for e, length in zip(kept, lengths, strict=True) if length <= max_prompt_tokens]
    counts["too_long"] = len(kept) - len(fitting)
    counts |= {"positive": _number(fitting, "+"), "negative": _number(fitting, "-")}

    train, held_out = split_by_problem(fitting, choice.held_out, seed)
    _check_classes(train, rule, counts, max_prompt_tokens)
    train = balanced(train, seed) if choice.balance else _shuffled(train, seed)
    # measured on as many + as -, whatever was trained on: chance is 0.5
    held_out = balanced(held_out, seed)[: choice.held_out_chunks // 2 * 2]
    counts |= {"train": len(train), "held_out": len(held_out)}
    return TrainingSet(tuple(train), tuple(held_out), dict(counts))


def chunk_label(chunk: Labelled, rule: Rule, choice: LabelChoice) -> tuple[str | None, str]:
    """The label that counts for training, or None, and why: ``reviewed``, ``by_rule``, ``unlabelled``, ``unsure``."""
    by_rule = label(rule, chunk.before, chunk.after)
    source = "rule"
    given = by_rule
    if choice.reviews:
        given, source = effective_label(chunk.adjudication, chunk.reviews, by_rule)
    if given is None:
        return None, "unlabelled"
    if source != "rule":
        return given, "reviewed"
    sure = confidence(rule, chunk.before, chunk.after)
    if choice.min_confidence and (sure is None or sure < choice.min_confidence):
        return None, "unsure"
    return given, "by_rule"


def split_by_problem(
    examples: Sequence[Example], share: float, seed: int
) -> tuple[list[Example], list[Example]]:
    """(train, held out): ``share`` of the problems, chosen by a hash of seed and problem, are held out whole.

    With a share above 0 and two problems or more, at least one problem is on either side.
    """

    def place(problem: int) -> bytes:
        return hashlib.sha256(f"{seed}/{problem}".encode()).digest()

    problems = sorted({e.problem_id for e in examples}, key=place)
    n = min(max(1, round(share * len(problems))), len(problems) - 1) if share > 0 and problems else 0
    away = set(problems[:n])
    return [e for e in examples if e.problem_id not in away], [e for e in examples if e.problem_id in away]


def balanced(examples: Sequence[Example], seed: int) -> list[Example]:
    """As many ``+`` as ``-``, alternating: the larger class is sampled down with the seed (paper: 1:1)."""
    by_label = {sign: _shuffled([e for e in examples if e.label == sign], seed) for sign in "+-"}
    return [e for pair in zip(by_label["+"], by_label["-"], strict=False) for e in pair]


def _shuffled(examples: Sequence[Example], seed: int) -> list[Example]:
    return random.Random(seed).sample(list(examples), len(examples))


def _number(examples: Sequence[Example], sign: str) -> int:
    return sum(e.label == sign for e in examples)


def _check_classes(
    train: Sequence[Example], rule: Rule, counts: Counter[str], max_prompt_tokens: int
) -> None:
    seen = (
        f"{counts['chunks']} selected chunks: {counts['unlabelled']} without a label under {rule}, "
        f"{counts['unsure']} less certain than min_confidence, {counts['too_long']} prompts over "
        f"{max_prompt_tokens} tokens, {counts['positive']} + and {counts['negative']} -"
    )
    if not counts["positive"] + counts["negative"]:
        raise TrainingError(f"no chunk can be trained on ({seen}); roll out prefixes first, or select others")
    for sign in "+-":
        if not _number(train, sign):
            raise TrainingError(
                f"no chunk labelled {sign!r} is left to train on ({seen}); roll out more problems, take another rule "
                "or hold out fewer problems: a judge learns nothing from one class"
            )


def stored_chunks(store: Store, recipe: TrainJudgeRecipe) -> Iterator[Labelled]:
    """Every chunk that the recipe selects, with its judge prompt, in the order of trajectory and place."""
    prompt = load_prompt(recipe.prompt)
    for trajectories in store.iterate_trajectories(**recipe.select.model_dump(), batch=TRAJECTORIES_A_BATCH):
        ids = [trajectory.id for trajectory in trajectories]
        values = {row.trajectory_id: chunk_values(row) for row in store.label_inputs(ids)}
        said = store.reviews_in_force(ids)
        for trajectory in trajectories:
            texts = [chunk.text for chunk in trajectory.chunks]
            for chunk, (before, after) in zip(trajectory.chunks, values[trajectory.id], strict=True):
                reviews = said.get(chunk.id, [])
                yield Labelled(
                    chunk_id=chunk.id,
                    problem_id=trajectory.problem_id,
                    prompt=fill(prompt, trajectory.problem, texts[: chunk.idx], chunk.text),
                    before=before,
                    after=after,
                    adjudication=next((r.verdict for r in reviews if r.kind == "adjudication"), None),
                    reviews=tuple(r.verdict for r in reviews if r.kind != "adjudication"),
                )


def write_set(data: TrainingSet, path: Path) -> None:
    """Keep a set as JSON lines (counts first), written aside and renamed."""
    lines = [json.dumps({"counts": data.counts})]
    for part, examples in (("train", data.train), ("held_out", data.held_out)):
        lines += [json.dumps({"part": part, **asdict(e)}, ensure_ascii=False) for e in examples]
    aside = path.with_suffix(".writing")
    aside.write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.replace(aside, path)


def read_set(path: Path) -> TrainingSet:
    """The set that ``write_set`` kept. Raises TrainingError if the file is not one."""
    parts: dict[str, list[Example]] = {"train": [], "held_out": []}
    try:
        with path.open(encoding="utf-8") as lines:
            counts = json.loads(next(lines))["counts"]
            for line in lines:
                row = json.loads(line)
                parts[row.pop("part")].append(Example(**row))
    except (OSError, StopIteration, ValueError, KeyError, TypeError) as error:
        raise TrainingError(
            f"{path}: not a kept training set ({error!r}); delete it to choose the examples anew"
        ) from error
    return TrainingSet(tuple(parts["train"]), tuple(parts["held_out"]), counts)
