"""Prefixes that a thrifty run draws only until the labels it was asked for are decided.

A prefix is *stopped* while its draws in a row are fewer than the row's ``m``: drawing more ends that by itself. The
row is written before the first draw, with no rule, so that a value that was cut short by a kill is never taken for
one that was drawn out. Not: when a label is decided (engine.thrift), or what a value then is (engine.values).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, select

from db.blind import hidden_prefixes
from db.session import StoreBase, batches, upsert
from db.tables import PrefixStop


@dataclass(frozen=True)
class Stop:
    """``m``: the draws that there would be in all; ``rules``: texts of the rules whose labels are decided; ``run_id``:
    the run that said so last."""

    m: int
    rules: tuple[str, ...]
    run_id: int | None = field(default=None, compare=False)


class StopsStore(StoreBase):
    """Rows of ``prefix_stops``; whether one still means anything depends on the draws there are."""

    def stops(self, prefix_ids: Iterable[int]) -> dict[int, Stop]:
        """{prefix id: its stop}; a prefix without one is left out."""
        with self.read() as db:
            return find_stops(db, self.viewer, prefix_ids)

    def put_stops(self, prefix_ids: Iterable[int], m: int, rules: Sequence[str], *, run_id: int) -> None:
        """These prefixes are drawn towards ``m``, and the labels of ``rules`` on both sides of them are decided.

        A stop with the same ``m`` keeps its rules and gets these as well; one with another is replaced.
        """
        with self.write() as db:
            for batch in batches(prefix_ids):
                chosen = select(PrefixStop.prefix_id, PrefixStop.rules)
                chosen = chosen.where(PrefixStop.prefix_id.in_(batch), PrefixStop.m == m)
                known = {id_: set(held) for id_, held in db.execute(chosen)}
                rows = [
                    {"prefix_id": id_, "m": m, "rules": sorted({*rules, *known.get(id_, ())})}
                    | {"run_id": run_id}
                    for id_ in batch
                    if id_ not in known or not known[id_] >= set(rules)
                ]
                if rows:
                    db.execute(upsert(db, PrefixStop, ["prefix_id"], ["m", "rules", "run_id"]), rows)


def find_stops(db: Connection, viewer: str | None, prefix_ids: Iterable[int]) -> dict[int, Stop]:
    """``StopsStore.stops`` in a transaction that is open."""
    found: dict[int, Stop] = {}
    for batch in batches(prefix_ids):
        part = set(batch) - hidden_prefixes(db, viewer, batch)
        chosen = select(PrefixStop.prefix_id, PrefixStop.m, PrefixStop.rules, PrefixStop.run_id)
        for id_, m, rules, run_id in db.execute(chosen.where(PrefixStop.prefix_id.in_(part))):
            found[id_] = Stop(m, tuple(rules), run_id)
    return found
