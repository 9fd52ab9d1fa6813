"""What a policy's solutions are like: accuracy, chunks against blank-line cutting, form, length. Not how they are drawn."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.chunks import cut_tags
from engine.errors import ChunkError
from engine.evaluate.intervals import measure
from engine.segmentation import blank_line_count, well_formed


@dataclass(frozen=True)
class Form:
    """How a solution is cut. ``chunks``: by its tags, None where they are unusable or missing; ``blank_line``: chunks
    that cutting the same text, tags taken out, on blank lines gives; ``well_formed``: chunks and then a boxed answer."""

    chunks: int | None
    blank_line: int
    well_formed: bool


def form_of(text: str, truncated: bool = False) -> Form:
    """The form of a solution; ``truncated``: it stops at the token limit."""
    try:
        tagged = len(cut_tags(text, truncated=truncated).chunks) or None
    except ChunkError:
        tagged = None
    return Form(tagged, blank_line_count(text), well_formed(text, truncated))


@dataclass(frozen=True)
class Solved:
    """One solution of a problem: its outcome, length in tokens and form."""

    problem_id: int
    outcome: str
    tokens: int
    form: Form


def policy_figures(solutions: Sequence[Solved], *, resamples: int, seed: int) -> dict[str, Any]:
    """Accuracy with its interval, and means a solution, as a run's result keeps them.

    ``chunks`` and ``blank_line_chunks`` are means over the same solutions: those with usable tags. A solution that the
    grader failed on counts as not solved. Empty without solutions.
    """
    if not solutions:
        return {}
    tagged = [s for s in solutions if s.form.chunks is not None]
    counts: dict[int, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for solution in solutions:
        right, all_ = counts[solution.problem_id]
        counts[solution.problem_id] = (right + (solution.outcome == "correct"), all_ + 1)
    return measure(counts, resamples=resamples, seed=seed) | {
        "problems": len(counts),
        "chunks": _mean([s.form.chunks or 0 for s in tagged]),
        "blank_line_chunks": _mean([s.form.blank_line for s in tagged]),
        "well_formed": _mean([s.form.well_formed for s in solutions]),
        "mean_tokens": _mean([s.tokens for s in solutions]),
        "outcomes": dict(Counter(s.outcome for s in solutions)),
        "by_problem": {str(problem): [n, right] for problem, (right, n) in sorted(counts.items())},
    }


def _mean(numbers: Sequence[float]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None
