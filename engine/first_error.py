"""The first chunk from which no rollout succeeds, by binary search (OmegaPRM, 2406.06592, section 3.3).

A solution that ends wrong went wrong somewhere: a prefix from which some rollout succeeds lies before that place, one
from which none does lies behind it. About log2(H) of its prefixes are rolled out instead of H - 1, and those that are
not have no value. That success, once lost, stays lost is what the search assumes, not what it finds out.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.thrift import Draws, Place


def wanted(places: Sequence[Place], *, stop_at_success: bool = False) -> dict[int, int]:
    """{place: draws to make next} of a trajectory's places 0..H; none: the search is over, or cannot go on.

    ``stop_at_success``: one draw is made after another, since the first success answers the question.
    """
    _, _, open_ = _search(places)
    if open_ is None:
        return {}
    place = places[open_]
    assert isinstance(place, Draws)
    few = stop_at_success and not place.errors
    return {open_: min(place.left, max(1, place.made // 4)) if few else place.left}


def first_error(places: Sequence[Place]) -> int | None:
    """Index (from 0) of the chunk whose prefix before it has a success and whose prefix with it has none.

    None: not searched to the end, or no such chunk (a truncated solution may have none).
    """
    low, high, open_ = _search(places)
    return high - 1 if open_ is None and high - low == 1 and high < len(places) else None


def _search(places: Sequence[Place]) -> tuple[int, int, int | None]:
    """(a place with a success, the next place known to have none, the place that has to be drawn from now).

    The bare problem counts as solvable; behind the last place of a truncated solution lies nothing that is known.
    """
    low, high = 0, len(places)
    if len(places) > 1 and succeeds(places[-1]) is False:
        high -= 1
    while high - low > 1:
        middle = (low + high) // 2
        found = succeeds(places[middle])
        if found is None:
            place = places[middle]
            return low, high, middle if isinstance(place, Draws) and place.left else None
        low, high = (middle, high) if found else (low, middle)
    return low, high, None


def succeeds(place: Place) -> bool | None:
    """Whether some rollout from here succeeds; None while draws that were not made may say so, or where the value is
    unknown. A success is one, however many draws were spared after it."""
    if isinstance(place, Draws):
        place = place.value
    if place.exact is not None:
        return place.exact
    if place.successes and not (place.errors and place.left):
        return True
    return False if place.known else None
