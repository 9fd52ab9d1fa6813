"""Chunks with their values from the store: with judge prompts for a set, without any text for a preview or a sweep.

Values are worked out from the rollouts' counts; the cached labels at default parameters are not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Protocol

from engine.errors import TrainingError
from engine.judge import fill, load_prompt
from engine.labels import Label
from engine.pipeline.labelling import chunk_values
from engine.pipeline.selecting import nothing_selected
from engine.recipes import Selection
from training.parts import LabelFilter
from training.sets.choosing import choose
from training.sets.duplicates import near_duplicates
from training.sets.examples import CountTokens, Labelled, TrainingSet

if TYPE_CHECKING:
    from db.rows import ReviewRow, StageTrajectory
    from db.selections import LabelInputs
    from db.store import Store
    from training.jobs import TrainJudgeRecipe

TRAJECTORIES_A_BATCH = 100
WITHOUT_TEXTS_A_BATCH = 1000

TextOf = Callable[["StageTrajectory", int], str]
"""The text of one chunk's example, whose tokens are counted: from the trajectory and the chunk's place."""


class HasChunks(Protocol):
    """The part of a recipe that says which chunks are read, and how the judge sees them."""

    @property
    def select(self) -> Selection: ...

    @property
    def prompt(self) -> str: ...


def label_examples(store: Store, recipe: TrainJudgeRecipe, count_tokens: CountTokens) -> TrainingSet:
    """The recipe's training set from the store.

    Raises TrainingError where nothing is selected or labelled, or one class is missing; RecipeError on an unknown
    rule, InputError on an unknown prompt.
    """
    check_selection(store, recipe.select)
    return choose(
        stored_chunks(store, recipe, judge=recipe.labels.judge),
        recipe.labels,
        seed=recipe.seed,
        max_prompt_tokens=recipe.grpo.max_prompt_tokens,
        count_tokens=count_tokens,
        alike=alike_problems(store, recipe.select, recipe.labels),
    )


def check_selection(store: Store, select: Selection) -> None:
    """Raise TrainingError, naming the filters, where the store has no trajectory that fits."""
    if said := nothing_selected(store, select):
        raise TrainingError(said)


def alike_problems(store: Store, select: Selection, choice: LabelFilter) -> dict[int, int]:
    """{selected problem: the problem that it counts as in the split}; empty where near-duplicates are not asked for."""
    if not choice.near_duplicates:
        return {}
    problems = sorted({problem for _, problem in store.selection_ids(**select.model_dump())})
    return near_duplicates({p.id: p.text for p in store.problems(problems)}, choice.near_duplicates)


def judge_text(prompt_name: str) -> TextOf:
    """A chunk's text as the judge reads it: the prompt filled. Raises InputError on an unknown prompt."""
    prompt = load_prompt(prompt_name)

    def text(trajectory: StageTrajectory, place: int) -> str:
        texts = [chunk.text for chunk in trajectory.chunks[: place + 1]]
        return fill(prompt, trajectory.problem, texts[:place], texts[place])

    return text


def stored_chunks(
    store: Store, recipe: HasChunks, *, text_of: TextOf | None = None, judge: str | None = None
) -> Iterator[Labelled]:
    """Every chunk that the recipe selects, with its text, in the order of trajectory and place.

    ``text_of``: the judge's prompt unless given. ``judge``: the one, by name, whose votes come along.
    """
    text_of = text_of or judge_text(recipe.prompt)
    voter = judge_id(store, judge)
    for trajectories in store.iterate_trajectories(**recipe.select.model_dump(), batch=TRAJECTORIES_A_BATCH):
        reader = _Batch(store, {t.id: t.problem_id for t in trajectories}, voter)
        for trajectory in trajectories:
            yield from reader.chunks(trajectory.id, partial(text_of, trajectory))


def stored_counts(store: Store, select: Selection, *, judge: str | None = None) -> Iterator[Labelled]:
    """The same chunks without any text (``prompt`` is empty): what labels follow from is counts alone."""
    voter = judge_id(store, judge)
    ids = store.selection_ids(**select.model_dump())
    for start in range(0, len(ids), WITHOUT_TEXTS_A_BATCH):
        batch = dict(ids[start : start + WITHOUT_TEXTS_A_BATCH])
        reader = _Batch(store, batch, voter)
        for trajectory_id in batch:
            yield from reader.chunks(trajectory_id, lambda place: "")


def judge_id(store: Store, name: str | None) -> int | None:
    """Id of the judge called ``name``. Raises TrainingError that lists what there is."""
    if name is None:
        return None
    known = {judge.name: judge.id for judge in store.judges()}
    if name not in known:
        raise TrainingError(
            f"labels: the store has no judge {name!r}; there are {', '.join(map(repr, known)) or 'none'}. "
            "Let it judge the selected trajectories first"
        )
    return known[name]


class _Batch:
    """Some trajectories' counts, reviews and votes, read at once."""

    def __init__(self, store: Store, problems: dict[int, int], judge: int | None):
        self.problems = problems
        self.inputs: dict[int, LabelInputs] = {
            row.trajectory_id: row for row in store.label_inputs([*problems])
        }
        self.reviews: dict[int, list[ReviewRow]] = store.reviews_in_force(problems)
        self.votes: dict[int, Label | None] = {}
        if judge is not None:
            chunks = [chunk.chunk_id for row in self.inputs.values() for chunk in row.chunks]
            for chunk, by_judge in store.votes(chunks).items():
                positive, negative, _ = by_judge.get(judge, (0, 0, 0))
                self.votes[chunk] = "+" if positive > negative else "-" if negative > positive else None

    def chunks(self, trajectory_id: int, text_of: Callable[[int], str]) -> Iterator[Labelled]:
        row = self.inputs[trajectory_id]
        for place, (chunk, (before, after)) in enumerate(zip(row.chunks, chunk_values(row), strict=True)):
            said = self.reviews.get(chunk.chunk_id, [])
            yield Labelled(
                chunk_id=chunk.chunk_id,
                problem_id=self.problems[trajectory_id],
                prompt=text_of(place),
                before=before,
                after=after,
                adjudication=next((r.verdict for r in said if r.kind == "adjudication"), None),
                reviews=tuple(r.verdict for r in said if r.kind != "adjudication"),
                position=place,
                trajectory_id=trajectory_id,
                vote=self.votes.get(chunk.chunk_id),
            )
