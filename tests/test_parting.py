"""Where two solutions part: every piece of both appears once, what is the same is found, and words that differ are marked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.parting import Row, compare, differences, parting, pieces

A = ["Add 13: 32+13=45.", "Add 8: 45+8=53.", "Add 12: 53+12=65.", r"\boxed{65}"]
B = ["Add 13: 32+13=45.", "Wait, 32+13=45, not 45.", "Add 8: 45+8=43.", "Add 12: 43+12=55.", r"\boxed{55}"]


def marked(text: str, spans: tuple[tuple[int, int], ...]) -> list[str]:
    return [text[a:b] for a, b in spans]


def test_pieces_that_are_alike_stand_opposite_each_other_and_their_differing_words_are_marked() -> None:
    rows = compare(A, B)
    assert [(row.here and row.here[0], row.there and row.there[0]) for row in rows] == [
        (0, 0),
        (None, 1),
        (1, 2),
        (2, 3),
        (3, 4),
    ]
    assert parting(rows) == 1
    assert marked(A[1], rows[2].marks_here) == ["53"] and marked(B[2], rows[2].marks_there) == ["43"]
    assert rows[1].marks_there == ((0, len(B[1])),)


def test_white_space_is_no_difference() -> None:
    assert compare(["a  b\nc"], ["a b c"]) == [Row((0, "a  b\nc"), (0, "a b c"), True)]
    assert differences("7 + 5", "7  +\n5") == ((), ())


def test_chinese_is_compared_sign_by_sign() -> None:
    ours, theirs = differences("所以有七本书", "所以有八本书")
    assert (ours, theirs) == (((3, 4),), ((3, 4),))


def test_what_has_nothing_in_common_stands_alone() -> None:
    rows = compare(["Multiply by 3."], ["设 x"])
    assert [(bool(row.here), bool(row.there)) for row in rows] == [(True, False), (False, True)]


def test_white_space_makes_no_two_pieces_alike() -> None:
    rows = compare(["we add five to seven first of all"], ["then multiply both sides by the given rate"])
    assert [(bool(row.here), bool(row.there)) for row in rows] == [(True, False), (False, True)]


def test_one_piece_beside_hundreds_finds_its_like() -> None:
    there = [f"{i} + {i}" for i in range(700)]
    rows = compare(["so 650 + 650 = 1300"], there)
    assert [row.there and row.there[0] for row in rows if row.here] == [650]
    assert len(rows) == 700


@pytest.mark.parametrize(
    ("text", "cutter", "expected"),
    [
        (
            "She gives 4.</chunk>\n<chunk>8 × 3 = 24.</chunk>\n\\boxed{24}",
            "tags",
            ["She gives 4.", "8 × 3 = 24.", "\\boxed{24}"],
        ),
        ("one\n\ntwo\n\nThe answer is \\boxed{3}", "tags", ["one", "two", "The answer is \\boxed{3}"]),
        ("One. Two.", "sentence", ["One.", "Two."]),
        ("", "steps", []),
    ],
)
def test_pieces_of_a_continuation(text: str, cutter: str, expected: list[str]) -> None:
    assert [piece for piece in pieces(text, cutter)] == expected


def test_very_long_pieces_are_marked_whole() -> None:
    a, b = "x " * 3000, "x " * 3001
    assert differences(a, b) == (((0, len(a)),), ((0, len(b)),))


LISTS = st.lists(st.text(alphabet="ab 1+=\\三", min_size=1, max_size=8), max_size=7)


@given(LISTS, LISTS)
def test_every_piece_is_in_exactly_one_row_and_in_order(here: list[str], there: list[str]) -> None:
    rows = compare(here, there)
    assert [row.here for row in rows if row.here] == list(enumerate(here))
    assert [row.there for row in rows if row.there] == list(enumerate(there))
    for row in rows:
        if row.here and row.there:
            left = "".join(_unmarked(row.here[1], row.marks_here).split())
            assert left == "".join(_unmarked(row.there[1], row.marks_there).split())


def _unmarked(text: str, spans: tuple[tuple[int, int], ...]) -> str:
    return "".join(char for place, char in enumerate(text) if not any(a <= place < b for a, b in spans))
