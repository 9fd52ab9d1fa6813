"""Why a chunk's label is what it is: the three rules' comparisons with the numbers put in, and how sure each is.

Not here: what judges say (``judges_shown``), the rollouts (``rollouts_shown``), reviews (``review_card``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

import streamlit as st

from app.widgets.address import RUNS, Rules
from app.widgets.chips import label_chip
from app.widgets.value_words import describe, fraction_words, rule_words, short, span_words
from engine.labels import Rule, flip_alpha, flip_gamma, label, label_all
from engine.values import Value

_FARTHEST = 4
"""A γ or α beyond this is nobody's choice, and that a label turns there is not worth saying."""


def why(rule: Rule, before: Value, after: Value) -> str:
    """The rule's comparison with the numbers put in, as mathematics in markdown."""
    q0, q1 = before.q, after.q
    if q1 is None or (q0 is None and rule.name != "abs-q"):
        return _decided(rule, before, after)
    q0 = q0 if q0 is not None else Fraction(0)
    if rule.gamma is not None:
        bar = rule.gamma * q0
        sign = ">" if q1 > bar else r"\le"
        return rf"${short(q1)} {sign} {short(rule.gamma)} \cdot {short(q0)} = {short(bar)}$"
    if rule.alpha is not None and rule.n is not None:
        u0, u1 = (1 - (1 - q) ** rule.n for q in (q0, q1))
        total = q1 + rule.alpha * (u1 - u0)
        sign = ">" if total > 0 else r"\le"
        return rf"${short(q1)} + {short(rule.alpha)}\,({short(u1)} - {short(u0)}) = {short(total)} {sign} 0$"
    return rf"${short(q1)} {'>' if q1 > 0 else '='} 0$"


def _decided(rule: Rule, before: Value, after: Value) -> str:
    """The same beside a value without a point: what the label follows from, or why there is none."""
    sides = [after] if rule.name == "abs-q" else [before, after]
    if label(rule, before, after) is not None:
        spans = " → ".join(span_words(value) for value in sides)
        return f"the same whatever the draws left out would be: Q {spans}"
    stopped = [value for value in sides if value.left]
    if any(str(rule) not in value.decided for value in stopped):
        return "not named when the draws were stopped: no label until the rest is drawn"
    return "a value is unknown"


def show_labels(
    before: Value, after: Value, rules: Rules, top_up: Callable[[], Mapping[str, str | list[str]]]
) -> None:
    """The three rules' labels of the chunk between two values, how sure each is, why, and where each would flip.

    ``top_up`` gives the query parameters of the form whose run draws more from these prefixes.
    """
    given = label_all(
        before, after, [rules.shown, *(rule for rule in reversed(rules.all) if rule != rules.shown)]
    )
    if all(one.label is None for one in given.values()):
        nothing = any(fraction_words(value) == "not rolled out" for value in (before, after))
        st.caption(
            "No labels: nothing was rolled out before or after this chunk."
            if nothing
            else "No labels: a value before or after this chunk is unknown."
        )
    else:
        lines = []
        for rule, one in given.items():
            name = f"**{rule.name}**" if rule == rules.shown else rule.name
            parameters = f" :small[:gray[{rule_words(rule)}]]" if rule_words(rule) else ""
            sure = f" · {one.confidence:.0%} sure" if one.confidence is not None else ""
            lines.append(f"{label_chip(one.label)} {name}{parameters}{sure} · {why(rule, before, after)}")
        with st.container(gap="xxsmall"):
            for line in lines:
                st.markdown(line)
        st.caption(
            "Sure: how likely fresh rollouts of the same number give the same label"
            + ("; beside a value that was stopped nobody knows." if before.left or after.left else ".")
            + _turns(before, after, rules)
        )
    for words, value in (("Before", before), ("After", after)):
        if value.left or (value.errors and not value.known):
            st.caption(f":material/hourglass_disabled: {words} it: {describe(value)}.")
    if any(value.errors and not value.known and not value.left for value in (before, after)):
        st.page_link(
            RUNS,
            label="Top up its rollouts",
            icon=":material/add_chart:",
            query_params=top_up(),
        )


def _turns(before: Value, after: Value, rules: Rules) -> str:
    """Where the two rules with a parameter would give this chunk the other label."""
    said = []
    if (gamma := flip_gamma(before, after)) is not None and gamma <= _FARTHEST:
        said.append(f"rel-ratio says + below γ\\* = {float(gamma):.2f}")
    n = rules.rel_effective.n or 1
    if (alpha := flip_alpha(before, after, n)) is not None and alpha <= _FARTHEST:
        said.append(f"rel-effective says + below α\\* = {float(alpha):.2f} (n = {n})")
    return f" {'; '.join(said)}." if said else ""
