"""Where in a solution two sources put the first error, and which of its chunks that leaves to train on.

Consensus filtering of Qwen's PRM lessons (Zhang et al. 2025, arXiv 2501.07301, section 3.1.4): a solution is kept where
Monte-Carlo estimates and a prompted judge name the same first error. Not: agreement chunk by chunk (choosing).
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.labels import Label


def first_negative(labels: Sequence[Label | None]) -> int | None:
    """Index (from 0) of the first ``-``, the number of chunks where all are ``+``; None: a chunk without a label comes
    before it, so that it is not known."""
    for place, label in enumerate(labels):
        if label != "+":
            return place if label == "-" else None
    return len(labels)


def left_out(labels: Sequence[Label | None], votes: Sequence[Label | None]) -> list[str | None]:
    """For each chunk of a solution why it is left out, or None where both sources agree up to and with it.

    Why: ``unvoted`` (the votes do not say where the first error is), ``unlabelled`` (the labels do not),
    ``contradicted`` (they differ), ``after_negative`` (behind the error that both name: what follows was not compared).
    """
    ours, theirs = first_negative(labels), first_negative(votes)
    if ours is None or theirs is None:
        return ["unlabelled" if ours is None else "unvoted"] * len(labels)
    if ours != theirs:
        return ["contradicted"] * len(labels)
    return [None if place <= ours else "after_negative" for place in range(len(labels))]
