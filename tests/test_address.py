"""The Trajectory page's address: what it asks for, exactly, and that nonsense is named and costs nothing."""

from __future__ import annotations

from fractions import Fraction

import pytest

from app.widgets.address import Address, Rules, parse_address
from engine.labels import ABS_Q, REL_EFFECTIVE, REL_RATIO, Rule


def test_an_empty_address_asks_for_nothing_under_the_usual_rules() -> None:
    assert parse_address({}) == Address(rules=Rules("rel-ratio", REL_RATIO, REL_EFFECTIVE))


def test_parameters_are_read_exactly() -> None:
    address = parse_address(
        {
            "traj": "3",
            "chunk": "0",
            "judgment": "7",
            "beside": "4",
            "find": "x^2 - 4",
            "rule": "rel-effective",
            "raw": "1",
        }
        | {"gamma": "0.7", "alpha": "1/3", "n": "16"}
    )
    assert (address.trajectory, address.chunk, address.judgment, address.beside) == (3, 0, 7, 4)
    assert address.find == "x^2 - 4" and address.raw and address.bad is None
    assert address.rules.shown == Rule("rel-effective", alpha=Fraction(1, 3), n=16)
    assert address.rules.all == (ABS_Q, address.rules.shown, Rule("rel-ratio", gamma=Fraction(7, 10)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("traj", "1; drop"),
        ("chunk", "-1"),
        ("rollout", "9" * 30),
        ("judgment", "x"),
        ("beside", "٣"),
        ("rule", "best"),
        ("gamma", "nan"),
        ("gamma", "-0.1"),
        ("gamma", "1" * 40),
        ("gamma", "0.8,alpha=2"),
        ("alpha", "1e999999999"),
        ("n", "0"),
        ("n", "100000"),
        ("n", "2.5"),
        ("raw", "yes"),
    ],
)
def test_what_cannot_be_is_named(name: str, text: str) -> None:
    assert parse_address({"traj": "1", name: text} | ({"gamma": "0.7"} if name != "gamma" else {})).bad == (
        name,
        text,
    )
