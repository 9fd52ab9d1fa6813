"""The number games' exact values, checked by hand and by listing every path."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product
from math import prod

import pytest

from engine.worlds.number_game import (
    NumberGame,
    State,
    after,
    exact_value,
    family,
    first_state,
    sample_rollouts,
    states,
)


def by_listing_paths(state: State) -> Fraction:
    """Sum over all paths: an independent way to the same number."""
    game, total = state.game, Fraction(0)
    for path in product(range(len(game.moves)), repeat=state.left):
        end = state
        for i in path:
            end = after(end, game.moves[i])
        chance = prod((Fraction(game.weights[i], sum(game.weights)) for i in path), start=Fraction(1))
        total += chance * (end.number >= game.target if game.at_least else end.number == game.target)
    return total


def test_the_tutorials_game_by_hand() -> None:
    # Two of the 16 paths from 1 reach 10: add or double to 2, then double to 4, add to 5, double.
    game = NumberGame()
    assert exact_value(first_state(game)) == Fraction(2, 16)
    assert exact_value(State(game, 2, 3)) == Fraction(1, 8)  # only ×2, +1, ×2
    assert exact_value(State(game, 4, 2)) == Fraction(1, 4)
    assert exact_value(State(game, 5, 1)) == Fraction(1, 2)
    assert exact_value(State(game, 9, 1)) == Fraction(1, 2)
    assert exact_value(State(game, 3, 2)) == 0
    assert exact_value(State(game, 10, 0)) == 1
    assert exact_value(State(game, 10, 1)) == 0


def test_every_game_of_the_family_agrees_with_listing_its_paths() -> None:
    games = list(family())
    assert len(set(games)) > 200
    for game in games[::9]:
        for state in states(game):
            assert exact_value(state) == by_listing_paths(state)


def test_states_are_all_reachable_ones_once() -> None:
    listed = list(states(NumberGame(length=2)))
    assert [(state.number, state.left) for state in listed] == [(1, 2), (2, 1), (3, 0), (4, 0)]


def test_rollouts_repeat_by_seed_and_draws_continue() -> None:
    state = first_state(NumberGame(target=4, length=3, weights=(2, 1)))
    drawn = sample_rollouts(state, 32, seed=7)
    assert drawn == sample_rollouts(state, 16, seed=7) + sample_rollouts(state, 16, seed=7 + 16)
    assert drawn != sample_rollouts(state, 32, seed=1007)


def test_rollouts_have_the_exact_value() -> None:
    state = first_state(NumberGame(target=4, length=3, weights=(2, 1)))
    share = Counter(sample_rollouts(state, 20_000, seed=1))["correct"] / 20_000
    assert share == pytest.approx(float(exact_value(state)), abs=0.012)  # 3.4 standard errors at most
