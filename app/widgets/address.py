"""The address of the Trajectory page, ``?traj=…&chunk=…&rollout=…`` and how it is looked at, and how to go elsewhere.

Setting the query parameters pushes an entry into the browser's history, so that Back undoes it. Not here: whether
the ids exist.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from engine.errors import RecipeError
from engine.labels import ABS_Q, REL_EFFECTIVE, REL_RATIO, Rule, parse_rule

RUNS = "views/runs.py"
_NAMES = ("traj", "chunk", "rollout")
_IDS = (*_NAMES, "judgment", "beside")
_PARAMETERS = ("gamma", "alpha", "n")
_KEPT = ("rule", *_PARAMETERS, "raw")
"""How labels are looked at: the same on the next chunk and on the next trajectory."""
_KEPT_HERE = ("find", "beside")
RAW = "1"
"""What ``raw`` is where text is shown as it was written; it stands in no other address."""
_NUMBER = re.compile(r"[0-9]{1,3}(\.[0-9]{1,6}|/[0-9]{1,3})?")
"""No exponents: 1e999999999 would be worked out exactly."""
_MOST_N = 256
"""Largest n of best-of-n in an address: powers of it are worked out exactly."""


@dataclass(frozen=True)
class Rules:
    """The three rules with the parameters that the address gives, and the ``name`` of the one that is shown."""

    name: str = REL_RATIO.name
    rel_ratio: Rule = REL_RATIO
    rel_effective: Rule = REL_EFFECTIVE

    @property
    def shown(self) -> Rule:
        return next(rule for rule in self.all if rule.name == self.name)

    @property
    def all(self) -> tuple[Rule, ...]:
        """In the order in which they are listed."""
        return (ABS_Q, self.rel_effective, self.rel_ratio)


@dataclass(frozen=True)
class Address:
    """``judgment``: the one whose rationale is open; ``beside``: the solution that this one is compared with;
    ``find``: words searched for; ``raw``: text as it was written; ``bad``: a parameter that cannot be, as (name, text).
    """

    trajectory: int | None = None
    chunk: int | None = None
    rollout: int | None = None
    judgment: int | None = None
    beside: int | None = None
    rules: Rules = Rules()
    find: str = ""
    raw: bool = False
    bad: tuple[str, str] | None = None


def read_address() -> Address:
    """What the address bar says now."""
    return parse_address(st.query_params.to_dict())


def parse_address(query: Mapping[str, str]) -> Address:
    """What query parameters ask for."""
    numbers: list[int | None] = []
    for name in _IDS:
        text = query.get(name)
        if text is not None and not (text.isascii() and text.isdigit() and len(text) <= 18):
            return Address(bad=(name, text))
        numbers.append(None if text is None else int(text))
    if query.get("raw", RAW) != RAW:
        return Address(bad=("raw", query["raw"]))
    trajectory, chunk, rollout, judgment, beside = numbers
    address = Address(
        trajectory, chunk, rollout, judgment, beside, find=query.get("find", "")[:200], raw="raw" in query
    )
    try:
        return replace(address, rules=_rules(query))
    except RecipeError:
        name = next(name for name in ("rule", *_PARAMETERS) if _is_bad(query, name))
        return replace(address, bad=(name, query[name]))


def _rules(query: Mapping[str, str]) -> Rules:
    """Raises RecipeError for an unknown rule and for a parameter that is no number or out of range."""
    name = parse_rule(query.get("rule", REL_RATIO.name)).name
    given = {key: query[key] for key in _PARAMETERS if key in query}
    for key, text in given.items():
        if not _NUMBER.fullmatch(text) or (key == "n" and not (text.isdigit() and int(text) <= _MOST_N)):
            raise RecipeError(f"{key} = {text[:20]!r} is no number that can be here")
    n = given.get("n", REL_EFFECTIVE.n)
    return Rules(
        name=name,
        rel_ratio=parse_rule(f"rel-ratio:gamma={given['gamma']}") if "gamma" in given else REL_RATIO,
        rel_effective=parse_rule(f"rel-effective:alpha={given.get('alpha', '0.4')},n={n}"),
    )


def _is_bad(query: Mapping[str, str], name: str) -> bool:
    try:
        _rules({name: query[name]} if name in query else {})
    except RecipeError:
        return True
    return False


def parameters(trajectory: int, chunk: int | None = None, rollout: int | None = None) -> dict[str, str]:
    """The query parameters of a view, for links from other pages too."""
    values = zip(_NAMES, (trajectory, chunk, rollout), strict=True)
    return {name: str(value) for name, value in values if value is not None}


def elsewhere(
    trajectory: int, chunk: int | None = None, rollout: int | None = None, **more: int | str | None
) -> dict[str, str]:
    """The query parameters of another view of this page: how one looks at it stays as it is.

    ``more``: other parameters, such as ``judgment``; None takes one away.
    """
    now = st.query_params.to_dict()
    kept = (*_KEPT, *_KEPT_HERE) if now.get("traj") == str(trajectory) else _KEPT
    query = parameters(trajectory, chunk, rollout) | {name: now[name] for name in kept if name in now}
    query |= {name: str(value) for name, value in more.items() if value is not None}
    return {name: value for name, value in query.items() if name not in more or more[name] is not None}


def go(
    trajectory: int, chunk: int | None = None, rollout: int | None = None, **more: int | str | None
) -> None:
    """Callback: show another trajectory, chunk or rollout on this page (a link to the same page would not do)."""
    st.query_params.from_dict(elsewhere(trajectory, chunk, rollout, **more))


def change(**more: str | None) -> None:
    """Callback: change these query parameters and leave the others; None takes one away."""
    query = {name: value for name, value in st.query_params.to_dict().items() if name not in more}
    st.query_params.from_dict(query | {name: value for name, value in more.items() if value is not None})


def new_run(
    kind: str, trajectory: int, sampled: Mapping[str, Any] | None = None
) -> dict[str, str | list[str]]:
    """Query parameters of the Runs page's form for a run of ``kind`` on one trajectory.

    ``sampled``: the recipe of the run that sampled it, for rollouts.
    """
    return {"new": kind, "set": [f"select.trajectory_ids=[{trajectory}]", *as_sampled(sampled or {})]}


def as_sampled(recipe: Mapping[str, Any]) -> list[str]:
    """Fields that a rollout run takes over from the run that sampled: policy, door, prompt, chat, how it draws."""
    named = ("llm", "prompt", "chat", "draws")
    return [f"{name}={json.dumps(recipe[name], ensure_ascii=False)}" for name in named if name in recipe]
