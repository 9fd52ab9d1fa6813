"""Export of effective labels: every chunk with its counts, its rule label, its reviews and the label in force."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from db.store import Store
from engine.labels import Rule, confidence, effective_label, label, parse_rule
from engine.pipeline.labelling import chunk_values

TRAJECTORIES_A_BATCH = 100


def export_labels(store: Store, path: Path, *, dataset: str | None, rule: str) -> int:
    """Write one JSON line a chunk to ``path`` (``-``: standard output). Returns how many.

    Written aside and renamed, so a broken-off export leaves no half file. Raises RecipeError for a bad rule.
    """
    parsed = parse_rule(rule)
    to_screen = str(path) == "-"
    aside = path.with_name(path.name + ".part")
    count = 0
    with nullcontext(sys.stdout) if to_screen else aside.open("w", encoding="utf-8") as out:
        for row in effective_rows(store, parsed, dataset):
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    if not to_screen:
        aside.replace(path)
    return count


def effective_rows(store: Store, rule: Rule, dataset: str | None = None) -> Iterator[dict[str, Any]]:
    """One mapping a chunk, in the order of trajectories and chunks; for a viewer from whom a blind queue hides solutions
    one more, ``{"left_out": …}``, which says how many are missing and why."""
    for trajectories in store.iterate_trajectories(dataset=dataset, batch=TRAJECTORIES_A_BATCH):
        ids = [trajectory.id for trajectory in trajectories]
        inputs = {row.trajectory_id: row for row in store.label_inputs(ids)}
        reviews = store.reviews_in_force(ids)
        for trajectory in trajectories:
            values = chunk_values(inputs[trajectory.id])
            for chunk, (before, after) in zip(trajectory.chunks, values, strict=True):
                said = reviews.get(chunk.id, [])
                verdicts = [r.verdict for r in said if r.kind != "adjudication"]
                decided = next((r.verdict for r in said if r.kind == "adjudication"), None)
                by_rule = label(rule, before, after)
                effective, source = effective_label(decided, verdicts, by_rule)
                yield {
                    "dataset": trajectory.dataset,
                    "problem_id": trajectory.key,
                    "problem": trajectory.problem,
                    "answer": trajectory.reference,
                    "trajectory": trajectory.id,
                    "policy": trajectory.policy,
                    "outcome": trajectory.outcome,
                    "chunk": chunk.idx,
                    "n_chunks": len(trajectory.chunks),
                    "history": [c.text for c in trajectory.chunks[: chunk.idx]],
                    "text": chunk.text,
                    "label": effective,
                    "source": source,
                    "rule": str(rule),
                    "rule_label": by_rule,
                    "confidence": confidence(rule, before, after),
                    "q_before": _value(before),
                    "q_after": _value(after),
                    "reviews": [{"actor": r.actor, "verdict": r.verdict, "comment": r.comment} for r in said],
                }
    if left := store.left_out(dataset):
        yield left.line()


def _value(value: Any) -> dict[str, Any] | None:
    """Counts of a value as they are: successes and n, or exact."""
    if not value.known:
        return None
    if value.exact is not None:
        return {"exact": int(value.exact)}
    return {"successes": value.successes, "n": value.n, "errors": value.errors}
