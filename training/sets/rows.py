"""The rows of a set, chosen from the store: what the build-set kind freezes, and what a trainer without a set reads.

``judge`` rows hold a prompt and a label a chunk; ``turns`` rows a solution with the labels of its chunks.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from engine.judge import load_prompt
from engine.labels import Rule, parse_rule
from engine.recipes import Selection
from training.parts import LabelFilter
from training.sets.choosing import balanced, choose, source_label, within
from training.sets.examples import CountTokens, Example, Labelled, TrainingSet
from training.sets.frozen import PARTS, Balance, check_prompt, read_frozen, read_manifest, read_rows
from training.sets.preview import by_position, problem_counts
from training.sets.stored import (
    TRAJECTORIES_A_BATCH,
    TextOf,
    alike_problems,
    check_selection,
    judge_text,
    stored_chunks,
)

if TYPE_CHECKING:
    from db.rows import StageTrajectory
    from db.store import Store

ChosenForm = Literal["judge", "turns"]


class ChoosesLabels(Protocol):
    """The part of a recipe that a set follows from."""

    @property
    def select(self) -> Selection: ...

    @property
    def labels(self) -> LabelFilter: ...

    @property
    def prompt(self) -> str: ...

    @property
    def seed(self) -> int: ...


class TakesSet(ChoosesLabels, Protocol):
    """A trainer's recipe: a frozen set by name, or the choice from the store."""

    @property
    def set(self) -> str | None: ...


@dataclass(frozen=True)
class SetRows:
    """Rows by part (``train``, ``held_out``), and what a manifest or a checkpoint's card says of them."""

    train: list[dict[str, Any]]
    held_out: list[dict[str, Any]]
    facts: dict[str, Any]


def examples_for(
    store: Store, home: Path, recipe: TakesSet, *, count_tokens: CountTokens, max_tokens: int
) -> TrainingSet:
    """A trainer's judge examples: the frozen set that its recipe names, else chosen from the store now.

    Of a frozen set, prompts over ``max_tokens`` are left out and added to its counts; where some were, what was balanced
    is balanced again. Raises TrainingError as ``read_rows``, ``check_prompt`` and ``choose`` do.
    """
    if recipe.set is None:
        return choose_rows(store, recipe, "judge", count_tokens=count_tokens, max_tokens=max_tokens)[0]
    manifest = read_manifest(home, recipe.set)
    check_prompt(manifest, load_prompt(recipe.prompt))
    frozen = read_frozen(home, recipe.set)
    counts = Counter(frozen.counts)
    train = within(frozen.train, counts, max_tokens, count_tokens)
    held_out = within(frozen.held_out, counts, max_tokens, count_tokens)
    balances = manifest.recipe.get("labels", {}).get("balance", False)
    both = len({example.label for example in train}) == 2  # one class alone is for the trainer to refuse
    if len(train) < len(frozen.train) and both and balances:
        train = balanced(train, recipe.seed)
    if len(held_out) < len(frozen.held_out):
        held_out = balanced(held_out, recipe.seed)
    return TrainingSet(
        tuple(train), tuple(held_out), dict(counts) | {"train": len(train), "held_out": len(held_out)}
    )


def rows_for(
    store: Store,
    home: Path,
    recipe: TakesSet,
    form: ChosenForm,
    *,
    count_tokens: CountTokens,
    max_tokens: int,
) -> SetRows:
    """A trainer's rows of ``form``: of the frozen set that its recipe names, else chosen from the store now.

    Tokens are counted only where rows are chosen. Raises TrainingError as ``read_rows`` and ``choose`` do.
    """
    if recipe.set is not None:
        train, held_out = (read_rows(home, recipe.set, part, form) for part in PARTS)
        return SetRows(train, held_out, read_manifest(home, recipe.set).model_dump(mode="json"))
    data, known, facts = choose_rows(store, recipe, form, count_tokens=count_tokens, max_tokens=max_tokens)
    make = row_maker(store, form, known, recipe.seed)
    return SetRows(list(make(data.train)), list(make(data.held_out)), facts)


def choose_rows(
    store: Store,
    recipe: ChoosesLabels,
    form: ChosenForm,
    *,
    count_tokens: CountTokens,
    max_tokens: int,
    seen: Callable[[], None] = lambda: None,
) -> tuple[TrainingSet, dict[int, str], dict[str, Any]]:
    """(the chosen examples, every label known of their solutions' chunks, a manifest's facts about them).

    ``seen`` is called after each chunk that was read.
    """
    check_selection(store, recipe.select)
    reading = _Reading(parse_rule(recipe.labels.rule), recipe.labels, seen)
    text_of = reading.texts(judge_text(recipe.prompt) if form == "judge" else turns_text)
    chunks = stored_chunks(store, recipe, text_of=text_of, judge=recipe.labels.judge)
    alike = alike_problems(store, recipe.select, recipe.labels)
    data = choose(
        reading.labels(chunks),
        recipe.labels,
        seed=recipe.seed,
        max_prompt_tokens=max_tokens,
        count_tokens=count_tokens,
        alike=alike,
    )
    return data, reading.known, facts_of(data, alike) | reading.origins((*data.train, *data.held_out))


class _Reading:
    """What is remembered while texts stream by, so that nothing is read twice."""

    def __init__(self, rule: Rule, choice: LabelFilter, seen: Callable[[], None]):
        self._rule, self._choice, self._seen = rule, choice, seen
        self._origin: dict[int, tuple[str, str]] = {}
        self.known: dict[int, str] = {}

    def texts(self, text_of: TextOf) -> TextOf:
        def text(trajectory: StageTrajectory, place: int) -> str:
            self._origin[trajectory.id] = (trajectory.dataset, trajectory.policy)
            return text_of(trajectory, place)

        return text

    def labels(self, chunks: Iterable[Labelled]) -> Iterator[Labelled]:
        for chunk in chunks:
            given, _ = source_label(chunk, self._rule, self._choice)
            if given:
                self.known[chunk.chunk_id] = given
            yield chunk
            self._seen()

    def origins(self, examples: Sequence[Example]) -> dict[str, dict[str, int]]:
        datasets = Counter(self._origin[e.trajectory_id][0] for e in examples)
        policies = Counter(self._origin[e.trajectory_id][1] for e in examples)
        return {"datasets": dict(datasets), "policies": dict(policies)}


def facts_of(data: TrainingSet, alike: dict[int, int]) -> dict[str, Any]:
    """The manifest's counts of a chosen set."""
    parts = {"train": data.train, "held_out": data.held_out}
    sources = Counter(e.source for examples in parts.values() for e in examples)
    return {
        "counts": data.counts,
        "classes": {part: balance_of(examples) for part, examples in parts.items()},
        "positions": {part: list(by_position(examples)) for part, examples in parts.items()},
        "from_people": sources["reviewed"],
        "from_rule": sources["rule"],
        "from_judge": sources["judge"],
        "problems": problem_counts(data.train, data.held_out, alike),
    }


def balance_of(examples: Sequence[Example]) -> Balance:
    positive = sum(e.label == "+" for e in examples)
    return Balance(positive=positive, negative=len(examples) - positive)


def row_maker(
    store: Store, form: ChosenForm, known: dict[int, str], seed: int
) -> Callable[[Sequence[Example]], Iterator[dict[str, Any]]]:
    """Examples → rows of that form."""
    if form == "judge":
        return lambda examples: (asdict(e) for e in examples)
    return lambda examples: _turns_rows(store, examples, known, seed)


def turns_text(trajectory: StageTrajectory, place: int) -> str:
    """A whole solution as its turns, for the count of tokens: the problem, then chunk and label by turns."""
    return "\n".join([trajectory.problem, *(f"{chunk.text}\n+" for chunk in trajectory.chunks)])


def _turns_rows(
    store: Store, examples: Sequence[Example], known: dict[int, str], seed: int
) -> Iterator[dict[str, Any]]:
    """One row a solution, in a seeded order. ``labels``: what is known of every chunk, null where nothing is;
    ``loss``: true where the chunk is an example, false where its label only stands in the history."""
    chosen = {e.chunk_id for e in examples}
    ids = sorted({e.trajectory_id for e in examples})
    random.Random(seed).shuffle(ids)
    for start in range(0, len(ids), TRAJECTORIES_A_BATCH):
        for trajectory in store.stage_trajectories(ids[start : start + TRAJECTORIES_A_BATCH]):
            yield {
                "trajectory_id": trajectory.id,
                "problem_id": trajectory.problem_id,
                "problem": trajectory.problem,
                "chunks": [chunk.text for chunk in trajectory.chunks],
                "labels": [known.get(chunk.id) for chunk in trajectory.chunks],
                "loss": [chunk.id in chosen for chunk in trajectory.chunks],
            }
