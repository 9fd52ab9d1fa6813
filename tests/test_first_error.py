"""The binary search finds the first chunk without a success behind it, in about log2(H) prefixes."""

from __future__ import annotations

from math import ceil, log2

import pytest

from engine.first_error import first_error, wanted
from engine.thrift import Draws, Place
from engine.values import UNKNOWN, Value

WRONG = Value(exact=False)


def searched(
    length: int, first: int | None, *, truncated: bool = False, thrifty: bool = False
) -> tuple[int | None, int]:
    """(chunk found, prefixes drawn) where prefixes up to ``first`` succeed in their third draw and no later one does."""
    places: list[Place] = [Value(3, 16), *(Draws(8) for _ in range(length - 1))]
    places.append(Draws(8) if truncated else WRONG)
    while asked := wanted(places, stop_at_success=thrifty):
        ((at, count),) = asked.items()
        place = places[at]
        assert isinstance(place, Draws)
        good = first is None or at <= first
        outcomes = ["wrong", "wrong", *["correct" if good else "wrong"] * 6]
        assert count <= place.left
        place.add(outcomes[place.made : place.made + count])
    return first_error(places), sum(bool(p.made) for p in places if isinstance(p, Draws))


@pytest.mark.parametrize("thrifty", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3, 7, 16, 33])
def test_the_first_chunk_behind_which_nothing_succeeds_is_found(length: int, thrifty: bool) -> None:
    for first in range(length):
        found, drawn = searched(length, first, thrifty=thrifty)
        assert found == first
        assert drawn <= ceil(log2(length)) if length > 1 else drawn == 0


def test_a_truncated_solution_may_have_none() -> None:
    assert searched(5, None, truncated=True)[0] is None
    assert searched(5, 3, truncated=True)[0] == 3
    assert searched(5, 4, truncated=True)[0] == 4


def test_thrift_stops_at_the_success() -> None:
    places: list[Place] = [Value(3, 16), Draws(8), Draws(8), WRONG]
    places[1].add(["wrong", "correct"])  # type: ignore[union-attr]
    assert wanted(places, stop_at_success=True) == {2: 1}
    places[2].add(["wrong"] * 8)  # type: ignore[union-attr]
    assert wanted(places, stop_at_success=True) == {} and first_error(places) == 1


@pytest.mark.parametrize("m", [1, 9, 16, 64])
def test_thrift_never_draws_more_than_m(m: int) -> None:
    draws = Draws(m)
    while asked := wanted([Value(3, 16), draws, WRONG], stop_at_success=True):
        draws.add(["wrong"] * asked[1])
    assert draws.made == m


def test_what_a_thrifty_search_found_is_read_from_its_stopped_values() -> None:
    stopped = Value(1, 3, left=13, decided=("rel-ratio:gamma=0.8",))
    assert first_error([Value(3, 16), stopped, Value(0, 16), WRONG]) == 1
    assert first_error([Value(3, 16), Value(0, 3, left=13), UNKNOWN, WRONG]) is None
    assert first_error([Value(3, 16), Value(1, 3, errors=1, left=12), Value(0, 16), WRONG]) is None


def test_a_place_that_cannot_be_drawn_ends_the_search_without_a_result() -> None:
    places: list[Place] = [Value(3, 16), Draws(8), Draws(8, closed=True), Draws(8), WRONG]
    assert wanted(places) == {} and first_error(places) is None
    assert first_error([Value(3, 16), UNKNOWN, WRONG]) is None


def test_a_search_that_is_not_over_has_no_result() -> None:
    assert first_error([Value(3, 16), Draws(8), WRONG]) is None
