"""The rule that is shown and its parameters, moved live: which labels flip, and where the next ones would.

All of it follows from the counts, so that nothing is sampled again; what is chosen stands in the address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import streamlit as st

from app.views.trajectory_shown import Shown
from app.widgets.address import change, go
from app.widgets.value_words import rule_words
from engine.labels import DEFAULT_RULES, REL_EFFECTIVE, REL_RATIO, Label, Rule, flip_alpha, flip_gamma
from engine.values import Value

_NAMES = ("rel-ratio", "rel-effective", "abs-q")
_MOST_BUTTONS = 12
_SIGNS = {"+": "+", "-": "−", None: "none"}


@dataclass(frozen=True)
class Turn:
    """A chunk whose label is ``+`` exactly below a value of the parameter."""

    chunk: int
    at: Fraction


def turns(rule: Rule, values: Sequence[Value]) -> list[Turn]:
    """Where each chunk's label turns as γ or α grows, ascending; empty for abs-q, which has no such parameter."""
    found = []
    for chunk, (before, after) in enumerate(pairwise(values)):
        if rule.gamma is not None:
            at = flip_gamma(before, after)
        else:
            at = flip_alpha(before, after, rule.n) if rule.n is not None else None
        if at is not None:
            found.append(Turn(chunk, at))
    return sorted(found, key=lambda turn: (turn.at, turn.chunk))


def flipped(now: Sequence[Label | None], usual: Sequence[Label | None]) -> list[int]:
    """Chunks whose label differs."""
    return [chunk for chunk, (a, b) in enumerate(zip(now, usual, strict=True)) if a != b]


def nearest(rule: Rule, values: Sequence[Value]) -> str:
    """In words, which label would be the next to turn when the parameter is lowered or raised."""
    sign, now = ("γ", rule.gamma) if rule.gamma is not None else ("α", rule.alpha)
    if now is None:
        return ""
    found = turns(rule, values)
    lower = next((turn for turn in reversed(found) if turn.at <= now), None)
    upper = next((turn for turn in found if turn.at > now), None)
    said = []
    if lower:
        said.append(f"chunk {lower.chunk} turns + below {sign} = {float(lower.at):.2f}")
    if upper:
        said.append(f"chunk {upper.chunk} turns − from {sign} = {float(upper.at):.2f} on")
    return "; ".join(said)


def show_rules(shown: Shown) -> None:
    """The switch between rules, the sliders of the shown one, and what they do to the labels."""
    rule = shown.rules.shown
    with st.container(key="rules", gap="xxsmall"):
        with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
            _choose(rule)
            _sliders(rule)
        if rule.warning:
            st.caption(f":material/warning: {rule.warning}.")
        _flips(shown, rule)


def _choose(rule: Rule) -> None:
    st.session_state["rule-name"] = rule.name

    def choose() -> None:
        name = st.session_state["rule-name"]
        change(rule=None if name == REL_RATIO.name else name)

    st.segmented_control(
        "Label rule",
        list(_NAMES),
        key="rule-name",
        required=True,
        on_change=choose,
        label_visibility="collapsed",
        help="The rule whose labels colour the curve and the cards.",
    )


def _sliders(rule: Rule) -> None:
    if rule.gamma is not None:
        _slider("gamma", "γ: + where Q after > γ · Q before", rule.gamma, REL_RATIO.gamma, 1.5)
    elif rule.alpha is not None:
        _slider("alpha", "α: weight of the best-of-n gain", rule.alpha, REL_EFFECTIVE.alpha, 2.0)
        _slider("n", "n: of best-of-n", Fraction(rule.n or 1), Fraction(REL_EFFECTIVE.n or 1), 32)
    else:
        st.caption("+ wherever some rollout still succeeds: no parameter.")


def _slider(name: str, words: str, value: Fraction, usual: Fraction | None, highest: float) -> None:
    """A slider that follows the address and writes to it; the usual value is left out of the address."""
    key, whole = f"rule-{name}", name == "n"
    now = int(value) if whole else float(value)
    st.session_state[key] = now

    def move() -> None:
        moved = st.session_state[key]
        text = str(moved) if whole else f"{moved:.2f}".rstrip("0").rstrip(".")
        change(**{name: None if Fraction(text) == usual else text})

    st.slider(
        words,
        1 if whole else 0.0,
        max(int(highest), int(now)) if whole else max(float(highest), float(now)),
        step=1 if whole else 0.05,
        key=key,
        on_change=move,
        width=230,
    )


def _flips(shown: Shown, rule: Rule) -> None:
    usual = next(one for one in DEFAULT_RULES if one.name == rule.name)
    pairs = zip(shown.label, shown.usual[rule.name], strict=True)
    known = sum(now is not None or was is not None for now, was in pairs)
    if not known:
        return
    near = nearest(rule, shown.values)
    if rule == usual:
        st.caption(
            f"{near[:1].upper()}{near[1:]}." if near else "No value of a parameter turns a label here."
        )
        return
    chunks = flipped(shown.label, shown.usual[rule.name])
    verb = "label flips" if len(chunks) == 1 else "labels flip"
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(
            f":material/swap_vert: **{len(chunks)} of {known} {verb}** :small[:gray[{rule_words(rule)} in place of "
            f"{rule_words(usual)}]]"
        )
        for chunk in chunks[:_MOST_BUTTONS]:
            was, now = shown.usual[rule.name][chunk], shown.label[chunk]
            st.button(
                f"{chunk}: {_SIGNS[was]} → {_SIGNS[now]}",
                key=f"flip-{chunk}",
                type="tertiary",
                on_click=go,
                args=(shown.view.id, chunk),
                help=f"Chunk {chunk}",
            )
        if len(chunks) > _MOST_BUTTONS:
            st.caption(f"and {len(chunks) - _MOST_BUTTONS} more")
        st.button(
            "Usual",
            key="rules-usual",
            icon=":material/restart_alt:",
            type="tertiary",
            on_click=lambda: change(gamma=None, alpha=None, n=None),
            help="Back to the usual parameters",
        )
    if near:
        st.caption(f"Next: {near}.")
