"""Values and labels of stored trajectories, put into the cache that lists and pages read. Rebuildable at any time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

from db.rows import Label
from db.selections import LabelInputs
from db.stops_store import Stop
from db.store import Store
from engine.labels import label_row
from engine.values import Value, leave_one_out, terminal_value, value_of

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


def relabel_beside(store: Store, run_id: int, but: Collection[int] = ()) -> None:
    """Recompute the labels that rest on what a run drew, of trajectories other than ``but``.

    Solutions that begin alike share draws: a run over some of them changes the values of the others too.
    """
    relabel(store, (id_ for id_ in store.labelled_on(run_id) if id_ not in but))


def prefix_values(inputs: LabelInputs) -> list[Value]:
    """Values of prefixes 0..H of one trajectory (``db`` label inputs): H + 1 of them.

    Prefix 0 is the pass rate of the sampled solutions (without this one, if it is one of them), else its rollouts;
    the last is the trajectory's grade, and unknown for a truncated one unless it was rolled out.
    """
    if inputs.sample_counts:
        first = sampled_value(inputs.sample_counts, inputs.outcome if inputs.is_own_sample else None)
    else:
        first = drawn_value(inputs.first_counts, inputs.first_stop)
    values = [first, *(drawn_value(chunk.counts, chunk.stop) for chunk in inputs.chunks)]
    if inputs.chunks and inputs.outcome != "truncated":
        values[-1] = terminal_value(inputs.outcome)
    return values


def sampled_value(sample_counts: Mapping[str, int], own: str | None) -> Value:
    """Value of the bare problem from its sampled solutions; ``own``: outcome of the one that is left out."""
    value = value_of(sample_counts)
    return value if own is None else leave_one_out(value, own)


def drawn_value(counts: Mapping[str, int], stop: Stop | None) -> Value:
    """Value of a rolled-out prefix: stopped while there are fewer draws than its stop wanted."""
    left = max(0, stop.m - sum(counts.values())) if stop else 0
    return value_of(counts, left, stop.rules if stop else ())


def chunk_values(inputs: LabelInputs) -> list[tuple[Value, Value]]:
    """(value before, value after) of each chunk in order."""
    values = prefix_values(inputs)
    return list(pairwise(values))
