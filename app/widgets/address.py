"""The address of the Trajectory page: what ``?traj=…&chunk=…&rollout=…`` asks for, and how to go elsewhere.

Setting the query parameters pushes an entry into the browser's history, so that Back undoes it. Not here: whether
the ids exist.
"""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

RUNS = "views/runs.py"
_NAMES = ("traj", "chunk", "rollout")


@dataclass(frozen=True)
class Address:
    """``bad``: a parameter that is not a whole number, as (name, text)."""

    trajectory: int | None = None
    chunk: int | None = None
    rollout: int | None = None
    bad: tuple[str, str] | None = None


def read_address() -> Address:
    """What the address bar says now."""
    numbers: list[int | None] = []
    for name in _NAMES:
        text = st.query_params.get(name)
        if text is not None and not (text.isascii() and text.isdigit() and len(text) <= 18):
            return Address(bad=(name, text))
        numbers.append(None if text is None else int(text))
    trajectory, chunk, rollout = numbers
    return Address(trajectory, chunk, rollout)


def parameters(trajectory: int, chunk: int | None = None, rollout: int | None = None) -> dict[str, str]:
    """The query parameters of a view, for links from other pages too."""
    values = zip(_NAMES, (trajectory, chunk, rollout), strict=True)
    return {name: str(value) for name, value in values if value is not None}


def go(trajectory: int, chunk: int | None = None, rollout: int | None = None) -> None:
    """Callback: show another trajectory, chunk or rollout on this page (a link to the same page would not do)."""
    st.query_params.from_dict(parameters(trajectory, chunk, rollout))


def new_run(kind: str, trajectory: int) -> dict[str, str]:
    """Query parameters of the Runs page's form for a run of ``kind`` on one trajectory."""
    return {"new": kind, "set": f"select.trajectory_ids=[{trajectory}]"}
