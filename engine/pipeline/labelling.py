"""Values and labels of stored trajectories, put into the cache that lists and pages read. Rebuildable at any time."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from db.rows import Label
from db.selections import LabelInputs
from db.store import Store
from engine.labels import label_row
from engine.values import UNKNOWN, Value, leave_one_out, terminal_value, value_of

TRAJECTORIES_A_BATCH = 200


def relabel(store: Store, trajectory_ids: Iterable[int]) -> int:
    """Recompute the labels of these trajectories from the counts. Returns how many chunks have both values."""
    ids, known = list(dict.fromkeys(trajectory_ids)), 0
    for start in range(0, len(ids), TRAJECTORIES_A_BATCH):
        rows = [
            Label(chunk_id=chunk.chunk_id, **label_row(before, after))
            for inputs in store.label_inputs(ids[start : start + TRAJECTORIES_A_BATCH])
            for chunk, (before, after) in zip(inputs.chunks, chunk_values(inputs), strict=True)
        ]
        known += sum(row.drop is not None for row in rows)
        store.put_labels(rows)
    return known


def prefix_values(inputs: LabelInputs) -> list[Value]:
    """Values of prefixes 0..H of one trajectory (``db`` label inputs): H + 1 of them.

    Prefix 0 is the pass rate of the sampled solutions (without this one, if it is one of them), else its rollouts;
    the last is the trajectory's grade, and unknown for a truncated one unless it was rolled out.
    """
    first = UNKNOWN
    if inputs.sample_counts:
        first = value_of(inputs.sample_counts)
        if inputs.is_own_sample:
            first = leave_one_out(first, inputs.outcome)
    elif inputs.first_counts:
        first = value_of(inputs.first_counts)
    values = [first, *(value_of(chunk.counts) if chunk.counts else UNKNOWN for chunk in inputs.chunks)]
    if inputs.chunks and inputs.outcome != "truncated":
        values[-1] = terminal_value(inputs.outcome)
    return values


def chunk_values(inputs: LabelInputs) -> list[tuple[Value, Value]]:
    """(value before, value after) of each chunk in order."""
    values = prefix_values(inputs)
    return list(pairwise(values))
