"""Number games whose true values follow from enumeration: the laboratory in which the estimator is tested.

The game of the tutorial: start at 1, add 1 or double, be at 10 after 4 moves. A state is what a prefix is
elsewhere: the number reached and the moves left. The policy is stated and random (each move with its weight), so the
value of a state is an exact fraction. No language model takes part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from random import Random

Move = tuple[str, int]
"""("+", 1) adds one, ("*", 2) doubles."""


@dataclass(frozen=True)
class NumberGame:
    """Be at ``target`` (or beyond, ``at_least``) after ``length`` moves from ``start``.

    ``weights[i]`` of their sum is the policy's chance of move i.
    """

    start: int = 1
    target: int = 10
    length: int = 4
    moves: tuple[Move, ...] = (("+", 1), ("*", 2))
    weights: tuple[int, ...] = (1, 1)
    at_least: bool = False

    def reached(self, number: int) -> bool:
        """Whether ending at this number is a success."""
        return number >= self.target if self.at_least else number == self.target


@dataclass(frozen=True)
class State:
    """The number reached and the moves left in a game. No moves left: terminal."""

    game: NumberGame
    number: int
    left: int


def first_state(game: NumberGame) -> State:
    """The state before the first move: what prefix 0 is elsewhere."""
    return State(game, game.start, game.length)


def after(state: State, move: Move) -> State:
    """The state that a move leads to."""
    sign, amount = move
    number = state.number + amount if sign == "+" else state.number * amount
    return State(state.game, number, state.left - 1)


@cache
def exact_value(state: State) -> Fraction:
    """The true chance of success from here on: 1 or 0 at the end, else the mean over the policy's moves."""
    if state.left == 0:
        return Fraction(int(state.game.reached(state.number)))
    weighed = zip(state.game.weights, state.game.moves, strict=True)
    return sum((w * exact_value(after(state, move)) for w, move in weighed), Fraction(0)) / sum(
        state.game.weights
    )


def sample_rollouts(state: State, n: int, seed: int) -> list[str]:
    """Outcomes (``correct`` or ``wrong``) of n continuations by the random policy; draw j has seed + j."""
    return [_rollout(state, Random(seed + j)) for j in range(n)]


def _rollout(state: State, random: Random) -> str:
    while state.left:
        (move,) = random.choices(state.game.moves, state.game.weights)
        state = after(state, move)
    return "correct" if state.game.reached(state.number) else "wrong"


def states(game: NumberGame) -> Iterator[State]:
    """Every state that can be reached, each once, first to last move."""
    level = {first_state(game)}
    for _ in range(game.length + 1):
        yield from sorted(level, key=lambda state: state.number)
        level = {after(state, move) for state in level if state.left for move in game.moves}


def family() -> Iterator[NumberGame]:
    """Games around the tutorial's: other starts, targets and lengths, a third move, policies that lean either way.

    Between them they hold values from 0 to 1, both included before the last move.
    """
    yield NumberGame()
    adding_or_doubling = ((("+", 1), ("*", 2)), ((1, 1), (3, 1), (1, 4)))
    with_subtraction = ((("+", 1), ("*", 2), ("+", -1)), ((1, 1, 1), (3, 2, 1), (1, 8, 1)))
    for moves, leanings in (adding_or_doubling, with_subtraction):
        for start, target, length, weights, at_least in product(
            (1, 2), (2, 4, 6, 10), (2, 3, 4, 5), leanings, (False, True)
        ):
            yield NumberGame(start, target, length, moves, weights, at_least)
