"""Why a chunk's label is what it is: the three rules' comparisons with the numbers put in, and how sure each is.

Not here: what judges say (``judges_shown``), the rollouts (``rollouts_shown``), reviews (``review_card``).
"""

from __future__ import annotations

from fractions import Fraction

import streamlit as st

from app.widgets.address import RUNS, Rules, new_run
from app.widgets.chips import label_chip
from app.widgets.value_curve import describe
from engine.labels import Rule, flip_alpha, flip_gamma, label_all
from engine.values import Value

_FARTHEST = 4
"""A γ or α beyond this is nobody's choice, and that a label turns there is not worth saying."""


def fraction_words(value: Value) -> str:
    """A value in a few signs: ``13/16``, ``1 (graded)``, ``1/5 of 16`` (stopped) or ``unknown``."""
    if value.exact is not None:
        return f"{int(value.exact)} (graded)"
    if value.left:
        return f"{value.successes}/{value.n} of {value.n + value.errors + value.left}"
    return f"{value.successes}/{value.n}" if value.known else "unknown"


def moved_words(before: Value, after: Value) -> str:
    """The two values around a chunk and how far Q moved: ``9/16 → 4/16 (−0.31)``; empty where both are unknown."""
    if not (before.known or after.known or before.left or after.left):
        return ""
    by = ""
    if before.q is not None and after.q is not None:
        step = float(after.q - before.q)
        by = f" ({'−' if step < 0 else '+'}{abs(step):.2f})" if step else " (±0)"
    return f"{fraction_words(before)} → {fraction_words(after)}{by}"


def rule_words(rule: Rule) -> str:
    """The rule's parameters in words: ``γ = 0.8``."""
    if rule.gamma is not None:
        return f"γ = {_n(rule.gamma)}"
    return f"α = {_n(rule.alpha)}, n = {rule.n}" if rule.alpha is not None else ""


def why(rule: Rule, before: Value, after: Value) -> str:
    """The rule's comparison with the numbers put in, as mathematics in markdown."""
    q0, q1 = before.q, after.q
    if q1 is None or (q0 is None and rule.name != "abs-q"):
        return "a value is unknown"
    q0 = q0 if q0 is not None else Fraction(0)
    if rule.gamma is not None:
        bar = rule.gamma * q0
        sign = ">" if q1 > bar else r"\le"
        return rf"${_n(q1)} {sign} {_n(rule.gamma)} \cdot {_n(q0)} = {_n(bar)}$"
    if rule.alpha is not None and rule.n is not None:
        u0, u1 = (1 - (1 - q) ** rule.n for q in (q0, q1))
        total = q1 + rule.alpha * (u1 - u0)
        sign = ">" if total > 0 else r"\le"
        return rf"${_n(q1)} + {_n(rule.alpha)}\,({_n(u1)} - {_n(u0)}) = {_n(total)} {sign} 0$"
    return rf"${_n(q1)} {'>' if q1 > 0 else '='} 0$"


def _n(value: Fraction) -> str:
    return f"{float(value):.2f}".rstrip("0").rstrip(".") or "0"


def show_labels(before: Value, after: Value, rules: Rules, trajectory_id: int) -> None:
    """The three rules' labels of the chunk between two values, how sure each is, why, and where each would flip."""
    given = label_all(
        before, after, [rules.shown, *(rule for rule in reversed(rules.all) if rule != rules.shown)]
    )
    if all(one.label is None for one in given.values()):
        st.caption("No labels: a value before or after this chunk is unknown.")
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
            "Sure: how likely fresh rollouts of the same number give the same label."
            + _turns(before, after, rules)
        )
    unfinished = [value for value in (before, after) if value.left or (value.errors and not value.known)]
    for value in unfinished:
        st.caption(f":material/hourglass_disabled: {describe(value)}")
    if unfinished:
        st.page_link(
            RUNS,
            label="Top up its rollouts",
            icon=":material/add_chart:",
            query_params=new_run("rollout", trajectory_id),
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
