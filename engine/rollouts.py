"""Which draws a prefix still needs, under which seeds, and which of the drawn ones count.

Covers keys, seeds, requests and the order of draws. Does not talk to a language model or a store: pipeline.py does.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

from engine.errors import InputError
from engine.llm.base import Request, Sampling


def prefix_key(token_ids: Sequence[int], checkpoint_hash: str, sampling: Sampling) -> str:
    """Hash (64 hex digits) of what a prefix's rollouts depend on: exact tokens, checkpoint, sampling settings.

    Neither M nor a seed is part of it, so that more rollouts of a prefix join those it already has.
    """
    digest = hashlib.sha256(f"{checkpoint_hash}\0{sampling.digest()}\0".encode())
    digest.update(b"".join(token.to_bytes(4, "little") for token in token_ids))
    return digest.hexdigest()


def base_seed(run_seed: int, key: str) -> int:
    """Seed of draw 0 of a prefix, below 2**53; draw j has this seed + j.

    A hash, so that bases of different prefixes lie far apart and no two prefixes share draws.
    """
    return int.from_bytes(hashlib.sha256(f"{run_seed}:{key}".encode()).digest()[:8], "big") >> 11


def requests_for(
    key: str, token_ids: Sequence[int], base: int, have: int, m: int, sampling: Sampling
) -> Request | None:
    """The request for draws ``have`` .. m-1 of a prefix, or None where it has enough. The key is the request's id.

    ``have`` is the length of the unbroken run of draws from 0 on (``draws_in_a_row``), so that a gap is filled.
    """
    if have < 0 or m < 0:
        raise InputError(f"prefix {key[:12]}: {have} draws made and {m} wanted; neither can be negative")
    if have >= m:
        return None
    return Request(key, tuple(token_ids), n=m - have, seed=base + have, sampling=sampling)


def draws_in_a_row(draws: Iterable[int]) -> int:
    """How many of the draws 0, 1, 2, … are there without a gap."""
    there = set(draws)
    return next(j for j in range(len(there) + 1) if j not in there)


def outcome_counts(draws: Iterable[tuple[int, str]], m: int | None = None) -> Counter[str]:
    """Outcomes of the draws that count, from (draw number, outcome) in any order; with ``m`` of the first m only.

    Draw j counts only after draws 0..j-1: short completions finish first, and counting by arrival would favour
    them. Raises InputError where one draw comes with two outcomes.
    """
    outcomes: dict[int, str] = {}
    for draw, outcome in draws:
        if outcomes.setdefault(draw, outcome) != outcome:
            raise InputError(f"draw {draw} has two outcomes, {outcomes[draw]} and {outcome}")
    counted = draws_in_a_row(outcomes)
    return Counter(outcomes[j] for j in range(counted if m is None else min(counted, m)))
