"""Keys and seeds of draws, and that neither the order of arrival nor other prefixes' rollouts change a label."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InputError
from engine.labels import DEFAULT_RULES, label_all
from engine.llm.base import Sampling
from engine.rollouts import base_seed, draws_in_a_row, outcome_counts, prefix_key, requests_for
from engine.values import value_of

SAMPLING = Sampling(temperature=1.0, max_tokens=64, stop=("</chunk>",))


def test_key_depends_on_tokens_checkpoint_and_sampling_only() -> None:
    key = prefix_key([1, 2, 3], "abc", SAMPLING)
    assert key == prefix_key((1, 2, 3), "abc", Sampling(temperature=1.0, max_tokens=64, stop=("</chunk>",)))
    others = {
        prefix_key([1, 2], "abc", SAMPLING),
        prefix_key([1, 2, 3, 0], "abc", SAMPLING),
        prefix_key([1, 2, 770], "abc", SAMPLING),  # 770 = 3 · 256 + 2: bytes must not run together
        prefix_key([1, 2, 3], "abd", SAMPLING),
        prefix_key([1, 2, 3], "abc", Sampling(temperature=0.9, max_tokens=64, stop=("</chunk>",))),
        prefix_key([1, 2, 3], "abc", Sampling(temperature=1.0, max_tokens=65, stop=("</chunk>",))),
        prefix_key([1, 2, 3], "abc", Sampling(temperature=1.0, max_tokens=64)),
    }
    assert len(others | {key}) == 8
    assert len(key) == 64 and int(key, 16) >= 0
    assert prefix_key([], "abc", SAMPLING) != prefix_key([0], "abc", SAMPLING)
    # The key is stored: a change of it would orphan every rollout that exists.
    assert prefix_key([1, 2, 3], "abc", Sampling()) == PINNED_KEY


PINNED_KEY = "8e3fbea2984d4dad07e322c85157101ece8edca4bddcc219c3b0a019d9413eca"


def test_bases_are_far_apart_and_fit_every_store() -> None:
    bases = sorted(base_seed(seed, prefix_key([i], "abc", SAMPLING)) for seed in range(4) for i in range(500))
    gaps = [b - a for a, b in pairwise(bases)]
    assert len(bases) == 2_000 and min(gaps) > 10_000
    assert bases[0] >= 0 and bases[-1] < 2**53
    assert base_seed(1, "k") == base_seed(1, "k") != base_seed(2, "k")


def test_topping_up_continues_the_same_draws() -> None:
    first = requests_for("k", [5, 6], base=1000, have=0, m=16, sampling=SAMPLING)
    more = requests_for("k", [5, 6], base=1000, have=16, m=32, sampling=SAMPLING)
    assert first is not None and more is not None
    assert (first.seed, first.n, first.prompt_token_ids, first.id) == (1000, 16, (5, 6), "k")
    seeds = [request.seed + i for request in (first, more) for i in range(request.n)]
    assert seeds == list(range(1000, 1032))
    assert requests_for("k", [5, 6], base=1000, have=32, m=32, sampling=SAMPLING) is None
    assert requests_for("k", [5, 6], base=1000, have=32, m=16, sampling=SAMPLING) is None
    with pytest.raises(InputError, match="neither can be negative"):
        requests_for("k", [5, 6], base=1000, have=-1, m=16, sampling=SAMPLING)


@pytest.mark.parametrize(
    ("draws", "expected"), [([], 0), ([0], 1), ([1], 0), ([2, 0, 1], 3), ([0, 1, 3], 2), ([0, 0, 1], 2)]
)
def test_draws_in_a_row(draws: list[int], expected: int) -> None:
    assert draws_in_a_row(draws) == expected


def test_a_draw_counts_only_after_those_before_it() -> None:
    # Draws 0 and 3 were wrong and long; 1 and 2 finished first. Nothing counts until draw 0 is there.
    assert outcome_counts([(1, "correct"), (2, "correct")]) == Counter()
    assert outcome_counts([(1, "correct"), (2, "correct"), (0, "wrong")]) == Counter(correct=2, wrong=1)
    assert outcome_counts([(j, "correct") for j in range(32)], m=16) == Counter(correct=16)
    with pytest.raises(InputError, match="draw 1 has two outcomes, correct and wrong"):
        outcome_counts([(0, "correct"), (1, "correct"), (1, "wrong")])


outcomes = st.sampled_from(["correct", "wrong", "unparsed", "truncated", "error"])
rollouts = st.lists(st.tuples(st.sampled_from("abcd"), outcomes), max_size=80)


def labels_of(rows: list[tuple[str, int, str]], before: str, after: str) -> object:
    """Labels of the chunk between two prefixes from all rollouts there are: the whole way through."""
    drawn: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for prefix, draw, outcome in rows:
        drawn[prefix].append((draw, outcome))
    return label_all(
        value_of(outcome_counts(drawn[before])), value_of(outcome_counts(drawn[after])), DEFAULT_RULES
    )


def numbered(rollouts: list[tuple[str, str]]) -> list[tuple[str, int, str]]:
    made: Counter[str] = Counter()
    rows = []
    for prefix, outcome in rollouts:
        rows.append((prefix, made[prefix], outcome))
        made[prefix] += 1
    return rows


@given(rollouts=rollouts, seed=st.integers())
def test_the_order_in_which_completions_finish_changes_nothing(
    rollouts: list[tuple[str, str]], seed: int
) -> None:
    rows = numbered(rollouts)
    expected = labels_of(rows, "a", "b")
    random.Random(seed).shuffle(rows)
    assert labels_of(rows, "a", "b") == expected


@given(rollouts=rollouts, extra=rollouts, seed=st.integers())
def test_a_label_never_changes_when_unrelated_rollouts_arrive(
    rollouts: list[tuple[str, str]], extra: list[tuple[str, str]], seed: int
) -> None:
    rows = numbered(rollouts)
    expected = labels_of(rows, "a", "b")
    unrelated = [(prefix, draw + 100, outcome) for prefix, draw, outcome in numbered(extra) if prefix in "cd"]
    together = rows + unrelated
    random.Random(seed).shuffle(together)
    assert labels_of(together, "a", "b") == expected


@given(rollouts=rollouts, arrived=st.data())
def test_what_has_arrived_early_is_not_counted_early(
    rollouts: list[tuple[str, str]], arrived: st.DataObject
) -> None:
    """With some draws still missing, a value is that of its first draws: the longest run without a gap."""
    rows = [(draw, outcome) for prefix, draw, outcome in numbered(rollouts) if prefix == "a"]
    there = arrived.draw(st.lists(st.sampled_from(rows), unique=True) if rows else st.just([]))
    counted = draws_in_a_row(draw for draw, _ in there)
    assert outcome_counts(there) == Counter(outcome for _, outcome in rows[:counted])
