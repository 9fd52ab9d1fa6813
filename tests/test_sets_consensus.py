"""Agreement on the first error: which solutions two sources leave to train on, and up to where."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from engine.labels import Label
from engine.values import UNKNOWN, Value
from training.parts import LabelChoice
from training.sets.choosing import label_chunks
from training.sets.consensus import first_negative, left_out
from training.sets.examples import Labelled

VALUES = {"+": (Value(12, 16), Value(15, 16)), "-": (Value(15, 16), Value(1, 16)), "?": (UNKNOWN, UNKNOWN)}
VOTES: dict[str, Label | None] = {"+": "+", "-": "-", "?": None}


@pytest.mark.parametrize(
    ("labels", "votes", "expected"),
    [
        ("++-+", "++--", "kkka"),  # behind the error that both name nothing was compared
        ("++--", "++-+", "kkka"),
        ("+++", "+++", "kkk"),  # both name none
        ("+-+", "++-", "ccc"),
        ("+++", "++-", "ccc"),
        ("-", "-", "k"),
        ("+?-", "++-", "uuu"),  # the labels do not say whether the second is the first error
        ("+-?", "+-?", "kka"),  # what lies behind the error need not be known
        ("++-", "+?-", "vvv"),
    ],
)
def test_a_solution_is_kept_where_both_name_the_same_first_error(
    labels: str, votes: str, expected: str
) -> None:
    words = {"k": None, "a": "after_negative", "c": "contradicted", "u": "unlabelled", "v": "unvoted"}
    given = [VOTES[sign] for sign in labels]
    assert left_out(given, [VOTES[sign] for sign in votes]) == [words[sign] for sign in expected]


def test_whatever_is_kept_is_agreed_on_chunk_by_chunk() -> None:
    for labels, votes in product(product(VOTES.values(), repeat=3), repeat=2):
        kept = [place for place, why in enumerate(left_out(labels, votes)) if why is None]
        assert all(labels[place] == votes[place] is not None for place in kept)
        assert kept == list(range(len(kept)))
        if kept:
            assert first_negative(labels) == first_negative(votes) in (kept[-1], 3)


def solutions(*pairs: tuple[str, str], **said: Any) -> list[Labelled]:
    """One a pair: signs of the rule's labels and of the judge's votes. ``said``: of the last chunk of all."""
    rows = [
        (number, place, label, vote)
        for number, (labels, votes) in enumerate(pairs)
        for place, (label, vote) in enumerate(zip(labels, votes, strict=True))
    ]
    return [
        Labelled(
            chunk_id,
            number,
            "",
            *VALUES[label],
            position=place,
            trajectory_id=number,
            vote=VOTES[vote],
            **(said if chunk_id == len(rows) - 1 else {}),
        )
        for chunk_id, (number, place, label, vote) in enumerate(rows)
    ]


def filtered(chunks: list[Labelled], **choice: Any) -> tuple[list[int], dict[str, int]]:
    asked = LabelChoice(min_confidence=0.0, agree_with="asked", **choice)
    kept, counts = label_chunks(chunks, asked)
    return [example.chunk_id for example in kept], {reason: n for reason, n in counts.items() if n}


def test_sets_differ_by_what_is_to_be_agreed_on() -> None:
    chunks = solutions(("++-+", "++-+"), ("+-+", "++-"), ("+++", "+++"), ("++", "+?"))
    assert filtered(chunks, agree_on="first-error") == (
        [0, 1, 2, 7, 8, 9],
        {"chunks": 12, "by_rule": 6, "after_negative": 1, "contradicted": 3, "unvoted": 2},
    )
    assert filtered(chunks) == (
        [0, 1, 2, 3, 4, 7, 8, 9, 10],
        {"chunks": 12, "by_rule": 9, "contradicted": 2, "unvoted": 1},
    )


def test_a_persons_label_counts_for_the_first_error_and_stays_where_the_judge_names_another() -> None:
    agreed = solutions(("++", "+-"), reviews=(-1,))
    assert filtered(agreed, agree_on="first-error")[0] == [0, 1]
    against = solutions(("++", "++"), reviews=(-1,))
    assert filtered(against, agree_on="first-error") == (
        [1],
        {"chunks": 2, "reviewed": 1, "contradicted": 1},
    )
