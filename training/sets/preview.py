"""What a recipe's set would hold, from stored counts: no solution's text is read and no tokens are counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import TrainingError
from engine.labels import parse_rule
from training.sets.choosing import divide, label_chunks
from training.sets.examples import Example
from training.sets.frozen import Balance
from training.sets.recipe import BuildSetRecipe
from training.sets.stored import alike_problems, check_selection, stored_counts

if TYPE_CHECKING:
    from db.store import Store


@dataclass(frozen=True)
class Preview:
    """``counts``: chosen and left out by reason, as in a manifest, but that the token filter is not applied.

    ``labelled``: + and - by place before the split and the balance; ``train`` and ``held_out``: after. ``refusal``:
    why the set could not be trained on, None where it could; ``warnings``: what to know before using it.
    """

    counts: dict[str, int]
    labelled: tuple[Balance, ...]
    train: tuple[Balance, ...]
    held_out: tuple[Balance, ...]
    problems: dict[str, int]
    from_people: int
    mean_confidence: float | None
    refusal: str | None
    warnings: tuple[str, ...]


def preview(store: Store, recipe: BuildSetRecipe) -> Preview:
    """Counts by place of the set that this recipe would freeze now, up to its token filter.

    Raises TrainingError where nothing is selected or the judge is unknown, RecipeError on an unknown rule.
    """
    check_selection(store, recipe.select)
    choice = recipe.labels
    labelled, counts = label_chunks(stored_counts(store, recipe.select, judge=choice.judge), choice)
    alike = alike_problems(store, recipe.select, choice)
    train: Sequence[Example] = ()
    held_out: Sequence[Example] = ()
    refusal = None
    try:
        data = divide(labelled, choice, seed=recipe.seed, counts=counts, alike=alike)
        train, held_out = data.train, data.held_out
    except TrainingError as error:
        refusal = str(error)
    sure = [e.confidence for e in labelled if e.confidence is not None]
    warning = parse_rule(choice.rule).warning if choice.voted_by is None else None
    return Preview(
        counts=dict(counts),
        labelled=by_position(labelled),
        train=by_position(train),
        held_out=by_position(held_out),
        problems=problem_counts(train, held_out, alike),
        from_people=sum(e.source == "reviewed" for e in (*train, *held_out)),
        mean_confidence=sum(sure) / len(sure) if sure else None,
        refusal=refusal,
        warnings=(warning,) if warning else (),
    )


def by_position(examples: Iterable[Example]) -> tuple[Balance, ...]:
    """+ and - at each place that has any, in order."""
    found: dict[int, dict[str, int]] = {}
    for example in examples:
        signs = found.setdefault(example.position, {"+": 0, "-": 0})
        signs[example.label] += 1
    return tuple(Balance(position=p, positive=n["+"], negative=n["-"]) for p, n in sorted(found.items()))


def problem_counts(
    train: Sequence[Example], held_out: Sequence[Example], alike: dict[int, int]
) -> dict[str, int]:
    """Problems on either side, and how many stay with another that is nearly the same."""
    return {
        "train": len({e.problem_id for e in train}),
        "held_out": len({e.problem_id for e in held_out}),
        "near_duplicates": sum(problem != leader for problem, leader in alike.items()),
    }
