"""Thrift loses nothing: a label that was stopped for is the label of all draws, and no bound is looser than it must be."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import thrift
from engine.errors import InputError
from engine.label_grid import LabelGrid
from engine.labels import DEFAULT_RULES, Rule, confidence, label, parse_rule
from engine.thrift import Draws, Place, ask, span, wanted
from engine.thrift_replay import Chain, Recorded, oracle, replay
from engine.values import UNKNOWN, Value, value_of

RIGHT, WRONG = Value(exact=True), Value(exact=False)
GRID = [
    parse_rule(text)
    for text in (
        "abs-q",
        *(f"rel-ratio:gamma={gamma}" for gamma in ("0", "0.6", "0.7", "0.8", "1", "1.2")),
        *(f"rel-effective:alpha={alpha},n={n}" for alpha in ("0.2", "0.4", "1") for n in (1, 4, 8)),
    )
]
"""Every rule with the parameters that are searched over, and beyond."""


def world(seed: int, m: int, errors: float = 0.0) -> tuple[list[Chain], dict[Hashable, list[str]]]:
    """Trajectories that share beginnings, and M draws of each prefix: rising, falling and certain ones."""
    dice = random.Random(seed)
    recorded: dict[Hashable, list[str]] = {}
    chains: list[Chain] = []
    for problem in range(8):
        for _ in range(3):
            path, keys = "", []
            for _ in range(dice.randint(0, 5)):
                path += dice.choice("aab")
                keys.append((problem, path))
                chance = dice.choice((0.0, 0.05, dice.random(), 0.95, 1.0))
                draws = ["correct" if dice.random() < chance else "wrong" for _ in range(m)]
                recorded.setdefault(keys[-1], ["error" if dice.random() < errors else d for d in draws])
            first = dice.choice((Value(dice.randint(0, 15), 15), Value(3, 15), UNKNOWN))
            end = dice.choice(([RIGHT], [WRONG], [UNKNOWN], []))
            chains.append([first, *keys, *end])
    return chains, recorded


def full(place: Hashable | Value, recorded: Recorded) -> Value:
    return place if isinstance(place, Value) else value_of(Counter(recorded[place]))


def differences(
    rules: Sequence[Rule], chains: Sequence[Chain], recorded: Recorded
) -> list[tuple[Rule, str | None, str | None]]:
    """(rule, label of all draws, label of the thrifty ones) where all draws have a label and the two differ."""
    replayed = replay(rules, chains, recorded)
    found: list[tuple[Rule, str | None, str | None]] = []
    for chain in chains:
        for before, after in pairwise(chain):
            for rule in rules:
                whole = label(rule, full(before, recorded), full(after, recorded))
                thrifty = label(rule, replayed.value(before, rules), replayed.value(after, rules))
                if whole != thrifty and whole is not None:
                    found.append((rule, whole, thrifty))
                if whole != thrifty and not any("error" in draws for draws in recorded.values()):
                    found.append((rule, whole, thrifty))
    return found


@pytest.mark.parametrize("m", [1, 4, 16, 32])
def test_labels_are_those_of_all_draws_under_every_rule(m: int) -> None:
    for seed, rule in enumerate(GRID):
        chains, recorded = world(seed, m)
        assert differences([rule], chains, recorded) == []
    assert differences(GRID, *world(99, m)) == []


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6),
    st.integers(1, 20),
    st.lists(st.sampled_from(GRID), min_size=1, max_size=3, unique=True),
)
def test_labels_are_those_of_all_draws_whatever_fails_in_the_grader(
    seed: int, m: int, rules: list[Rule]
) -> None:
    assert differences(rules, *world(seed, m, errors=0.04)) == []


@pytest.mark.parametrize("wrong", ["too low", "too high"])
@pytest.mark.parametrize("rule", ["abs-q", "rel-ratio", "rel-effective"])
def test_a_wrong_bound_is_found(wrong: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def narrow(place: Place) -> tuple[int, int, int] | None:
        found = span(place)
        if found is None or not isinstance(place, Draws) or not place.left:
            return found
        return (found[0] + 1, *found[1:]) if wrong == "too low" else (found[0], found[1] - 1, found[2])

    monkeypatch.setattr(thrift, "span", narrow)
    assert any(differences([parse_rule(rule)], *world(seed, 16)) for seed in range(40))


sides = st.one_of(
    st.integers(1, 6).flatmap(
        lambda m: st.tuples(st.just(m), st.integers(0, m)).flatmap(
            lambda mk: st.builds(Draws, st.just(mk[0]), st.just(mk[1]), st.integers(0, mk[0] - mk[1]))
        )
    ),
    st.sampled_from([RIGHT, WRONG, UNKNOWN, Value(2, 5)]),
)


def ends(place: Place) -> list[Value]:
    """All that the open draws of a place can come to."""
    if isinstance(place, Value):
        return [place]
    graded = place.successes + place.failures
    return [Value(place.successes + k, graded + place.left) for k in range(place.left + 1)]


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(GRID), sides, sides)
def test_a_label_counts_as_decided_exactly_when_no_completion_changes_it(
    rule: Rule, before: Place, after: Place
) -> None:
    labels = {label(rule, b, a) for b, a in product(ends(before), ends(after))}
    asked = ask(rule, before, after)
    assert (asked is None) == (len(labels) == 1)
    if asked is not None:
        side, count = asked
        place = (before, after)[side]
        assert isinstance(place, Draws) and 1 <= count <= place.left


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(GRID), sides, sides)
def test_no_draw_that_is_asked_for_is_in_vain(rule: Rule, before: Place, after: Place) -> None:
    """With fewer draws on that side than asked for, no outcome of them decides the label."""
    asked = ask(rule, before, after)
    if asked is None or asked[1] == 1:
        return
    side, count = asked
    place = (before, after)[side]
    assert isinstance(place, Draws)
    for right in range(count):
        part = Draws(place.m, place.successes + right, place.failures + count - 1 - right)
        pair = (before, part) if side else (part, after)
        assert ask(rule, *pair) is not None


def test_a_stopped_value_gives_no_other_label_no_confidence_and_no_drop() -> None:
    abs_q, _, ratio = DEFAULT_RULES
    before, after = Value(8, 16), Value(1, 1, left=15, decided=("abs-q",))
    assert label(abs_q, before, after) == "+" and confidence(abs_q, before, after) is None
    assert label(ratio, before, after) is None
    sure = Value(14, 14, left=2, decided=("abs-q",))
    assert label(ratio, before, sure) is None, "decided by chance, and not asked for"
    assert label(ratio, before, Value(14, 14, left=2, decided=(str(ratio),))) == "+"
    assert label(ratio, before, Value(7, 9, left=7, decided=(str(ratio),))) == "+"
    assert label(ratio, before, Value(6, 9, left=7, decided=(str(ratio),))) is None, "named, and still open"
    assert label(abs_q, Value(0, 3, left=13), Value(2, 16)) == "+", "the value before is not read"
    assert label(abs_q, before, Value(1, 1, errors=1, left=14, decided=("abs-q",))) is None


@pytest.mark.parametrize("rule", GRID, ids=str)
def test_many_labels_at_once_are_the_same_beside_stopped_values(rule: Rule) -> None:
    named = [Value(k, 9, left=7, decided=(str(rule),)) for k in range(0, 10, 3)]
    places = [*named, Value(1, 9, left=7, decided=("abs-q",)), Value(5, 16), RIGHT, UNKNOWN]
    pairs = list(product(places, repeat=2))
    under = LabelGrid(pairs).under(rule)
    signs = {1: "+", -1: "-", 0: None}
    assert [signs[int(sign)] for sign in under.sign] == [label(rule, *pair) for pair in pairs]
    sure = [confidence(rule, *pair) for pair in pairs]
    assert [None if math.isnan(c) else round(c, 9) for c in under.confidence] == [
        None if c is None else round(c, 9) for c in sure
    ]


def test_a_prefix_with_an_error_is_drawn_out() -> None:
    seen = Draws(16)
    seen.add(["correct", "error"])
    assert wanted([DEFAULT_RULES[0]], [Value(3, 16), seen, RIGHT]) == {1: 14}
    seen.closed = True
    assert wanted([DEFAULT_RULES[0]], [Value(3, 16), seen, RIGHT]) == {}
    with pytest.raises(InputError, match="unknown outcome 'right'"):
        seen.add(["right"])


def test_the_first_success_ends_abs_q() -> None:
    key = "p"
    recorded: dict[Hashable, list[str]] = {key: ["wrong"] * 5 + ["correct"] + ["wrong"] * 10}
    found = replay([DEFAULT_RULES[0]], [[Value(3, 16), key, RIGHT]], recorded)
    assert (found.made, oracle([DEFAULT_RULES[0]], [[Value(3, 16), key, RIGHT]], recorded)) == (6, 6)


@pytest.mark.parametrize("rule", ["abs-q", "rel-ratio", "rel-effective:n=2"])
def test_no_choice_of_stops_is_better_than_the_oracles(rule: str) -> None:
    """On small trees: every choice of stops is tried."""
    rules = [parse_rule(rule)]
    for seed in range(12):
        dice = random.Random(seed)
        recorded: dict[Hashable, list[str]] = {
            key: [dice.choice(("correct", "wrong")) for _ in range(4)] for key in ("a", "ab", "ac")
        }
        chains: list[Chain] = [[Value(2, 5), "a", "ab", RIGHT], [Value(3, 5), "a", "ac", WRONG]]
        best = 99
        for made in product(range(5), repeat=3):
            draws = {key: Draws(4) for key in recorded}
            for key, n in zip(recorded, made, strict=True):
                draws[key].add(recorded[key][:n])
            placed = [[p if isinstance(p, Value) else draws[p] for p in chain] for chain in chains]
            if not any(wanted(rules, places) for places in placed):
                best = min(best, sum(made))
        assert oracle(rules, chains, recorded) == best
        assert best <= replay(rules, chains, recorded).made <= 12
