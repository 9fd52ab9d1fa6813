"""Stepwise accuracy: how often a judge's verdict on a held-out chunk equals the chunk's label.

One judgment, votes of 2, 4, … judgments, by label and by place in the solution, with intervals by problem. A judgment
without a verdict and a tied vote are misses: abstaining never helps. Not: how chunks are chosen or judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.evaluate.intervals import measure
from engine.judge import Verdict, vote

VERDICT_OF = {"+": "positive", "-": "negative"}


@dataclass(frozen=True)
class Judged:
    """A chunk with its label (``+`` or ``-``) and k verdicts; ``position`` is its index in the solution."""

    problem_id: int
    position: int
    label: str
    verdicts: tuple[Verdict | None, ...]

    def right(self, k: int) -> float:
        """Share of the votes of k (k verdicts that follow one another, none in two votes) that equal the label."""
        votes = [vote(self.verdicts[at : at + k]) for at in range(0, len(self.verdicts) - k + 1, k)]
        return votes.count(VERDICT_OF[self.label]) / len(votes)  # type: ignore[arg-type]


def stepwise_accuracy(chunks: Sequence[Judged], *, resamples: int, seed: int) -> dict[str, Any]:
    """Accuracies of chunks that were all judged equally often, as a run's result keeps them.

    ``accuracy``, ``interval``, ``n`` (chunks): of one judgment; ``majority``: of votes of 1, 2, 4, …; ``none``: share
    of judgments without a verdict; ``split``: chunks whose judgments do not all agree; ``by_label``, ``by_position``;
    ``by_problem``: {problem: [chunks, sum of shares of right judgments, sum of right votes of all k]}, from which
    another report can draw its own intervals. Empty without chunks.
    """
    if not chunks:
        return {}
    k = min(len(chunk.verdicts) for chunk in chunks)

    def of(some: Sequence[Judged], votes: int = 1) -> dict[str, Any]:
        return measure(_counts(some, lambda c: c.right(votes)), resamples=resamples, seed=seed)

    sizes = [2**i for i in range(k.bit_length())]
    given = [verdict for chunk in chunks for verdict in chunk.verdicts]
    return of(chunks) | {
        "problems": len({chunk.problem_id for chunk in chunks}),
        "k": k,
        "majority": {str(size): of(chunks, size) for size in sizes},
        "none": given.count(None) / len(given),
        "split": sum(len(set(chunk.verdicts)) > 1 for chunk in chunks) / len(chunks),
        "by_label": {
            label: of(own) for label in VERDICT_OF if (own := [c for c in chunks if c.label == label])
        },
        "by_position": {
            str(place): of([c for c in chunks if c.position == place])
            for place in sorted({c.position for c in chunks})
        },
        "by_problem": _by_problem(chunks, k),
    }


def _counts(chunks: Sequence[Judged], right: Callable[[Judged], float]) -> dict[int, tuple[float, float]]:
    found: dict[int, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for chunk in chunks:
        above, below = found[chunk.problem_id]
        found[chunk.problem_id] = (above + right(chunk), below + 1)
    return found


def _by_problem(chunks: Sequence[Judged], k: int) -> dict[str, list[float]]:
    single, voted = _counts(chunks, lambda c: c.right(1)), _counts(chunks, lambda c: c.right(k))
    return {
        str(problem): [single[problem][1], single[problem][0], voted[problem][0]]
        for problem in sorted(single)
    }
