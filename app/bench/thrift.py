"""What thrift spares on recorded draws, beside an oracle that knows them; and that no label changes.

The record is the sample's, with 16 draws of each prefix, or a store's. The same draws in other orders are as good a
record, and the labels of M = 4 and M = 8 follow from the first of them. Nothing is sampled.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import pairwise
from pathlib import Path

from rich.console import Console

from app.bench import Bar, conclude
from app.launcher import LaunchError
from app.sample import load_sample
from app.settings import Settings
from app.store import open_or_make_store, open_store
from db.store import Store
from engine.labels import DEFAULT_RULES, Rule, label, parse_rule
from engine.pipeline.labelling import prefix_values
from engine.thrift_replay import Chain, Recorded, oracle, replay
from engine.values import Value, value_of

PREFIXES = 2_000
DRAWS = (4, 8, 16)
GRID = (
    "abs-q",
    *(f"rel-ratio:gamma={gamma}" for gamma in ("0.6", "0.7", "0.8", "0.9", "1", "1.1", "1.2")),
    *(f"rel-effective:alpha={a},n={n}" for a in ("0.2", "0.4", "0.6", "0.8", "1") for n in (1, 2, 4, 8)),
)


def thrift(kept: Path | None, console: Console) -> int:
    """Bars: abs-q at most 0.6 of all rollouts, rel-ratio at most 0.95, no label that differs.

    ``kept``: the home whose store is the record; None: the sample's. Raises LaunchError where it has no rollouts.
    """
    with tempfile.TemporaryDirectory(prefix="stepwiser-bench-") as folder:
        settings = Settings(home=kept or Path(folder), database_url="", actor="bench")
        store = open_store(settings) if kept else open_or_make_store(settings)
        if kept is None:
            load_sample(store)
        chains, recorded = record(store)
    if not recorded:
        raise LaunchError(f"the store in {settings.home} has no rollouts to replay")
    orders = [shuffled(recorded, seed) for seed in range(-(-PREFIXES // len(recorded)))]
    total = sum(len(draws) for draws in recorded.values())
    rows = [("prefixes × orders of their draws", f"{len(recorded):,} × {len(orders)}")]
    shares: dict[str, float] = {}
    for rules in (*([rule] for rule in DEFAULT_RULES), list(DEFAULT_RULES)):
        ours = sum(replay(rules, chains, order).made for order in orders) / (total * len(orders))
        best = sum(oracle(rules, chains, order) for order in orders) / (total * len(orders))
        name = " + ".join(rule.name for rule in rules)
        shares[name] = ours
        rows.append((f"{name}: share of all rollouts", f"{ours:.3f}, an oracle {best:.3f}"))
    compared = wrong = 0
    for text in GRID:
        for order in orders:
            for m in DRAWS:
                some = {key: draws[:m] for key, draws in order.items()}
                n, differ = differences(parse_rule(text), chains, some)
                compared, wrong = compared + n, wrong + differ
    rows.append(
        ("labels compared", f"{compared:,} under {len(GRID)} rules, M = {', '.join(map(str, DRAWS))}")
    )
    bars = [
        Bar("abs-q: share of all rollouts", shares["abs-q"], 0.6, "<="),
        Bar("rel-ratio: share of all rollouts", shares["rel-ratio"], 0.95, "<="),
        Bar("labels that differ", wrong, 0, "<="),
    ]
    return conclude(console, "thrift", rows, bars)


def record(store: Store) -> tuple[list[Chain], dict[Hashable, Sequence[str]]]:
    """Every trajectory with rollouts as a chain of prefix ids and fixed values, and the prefixes' draws."""
    chains: list[Chain] = []
    for inputs in store.label_inputs(store.trajectory_ids()):
        if any(chunk.counts for chunk in inputs.chunks):
            values = prefix_values(inputs)
            rolled = [chunk.prefix_id if chunk.counts else None for chunk in inputs.chunks]
            if inputs.outcome != "truncated":
                rolled[-1] = None
            later = [value if id_ is None else id_ for id_, value in zip(rolled, values[1:], strict=True)]
            chains.append([values[0], *later])
    ids = {place for chain in chains for place in chain if isinstance(place, int)}
    return chains, {key: draws for key, draws in store.draw_outcomes(ids).items()}


def shuffled(recorded: Recorded, seed: int) -> dict[Hashable, Sequence[str]]:
    """Each prefix's draws in another order; seed 0: as they were recorded."""
    dice = random.Random(seed)
    return {
        key: list(draws) if seed == 0 else dice.sample(draws, len(draws)) for key, draws in recorded.items()
    }


def differences(rule: Rule, chains: Sequence[Chain], recorded: Recorded) -> tuple[int, int]:
    """(labels compared, those that thrift would change)."""
    found = replay([rule], chains, recorded)
    whole = {key: value_of(Counter(draws)) for key, draws in recorded.items()}
    compared = differ = 0
    for chain in chains:
        full = [place if isinstance(place, Value) else whole[place] for place in chain]
        part = [found.value(place, [rule]) for place in chain]
        for of_all, thrifty in zip(pairwise(full), pairwise(part), strict=True):
            compared += 1
            differ += label(rule, *of_all) != label(rule, *thrifty)
    return compared, differ
