"""What speaks for and against a chunk: its labels under the three rules, the judges, the rollouts after it.

Only the one rationale and the one rollout that are open are sent to the browser. Not here: reviews.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import cast

import streamlit as st

from app.widgets.address import RUNS, go, new_run
from app.widgets.chips import chip, label_chip, outcome_chip, verdict_chip
from app.widgets.safe_text import code, escape_line, show_text
from app.widgets.value_curve import describe
from db.reads_trajectory import JudgmentView, RolloutView, RolloutWhole
from engine.judge import Verdict, vote
from engine.labels import DEFAULT_RULES, Rule, flip_gamma, label_all
from engine.values import Value

_TAGS = re.compile(r"(?:\s*</?chunk>\s*)+")
MOST_GROUPS = 12
MOST_DRAWS = 48
_ORDER = ("correct", "wrong", "unparsed", "truncated", "error")
_MARKS = {"positive": "+", "negative": "−", None: "no verdict"}


def fraction_words(value: Value) -> str:
    """A value in a few signs: ``13/16``, ``1 (graded)`` or ``unknown``."""
    if value.exact is not None:
        return f"{int(value.exact)} (graded)"
    return f"{value.successes}/{value.n}" if value.known else "unknown"


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


def show_labels(before: Value, after: Value) -> None:
    """The three rules' labels of the chunk between two values, how sure each is, and why."""
    given = label_all(before, after, DEFAULT_RULES)
    if all(one.label is None for one in given.values()):
        st.caption("No labels: a value before or after this chunk is unknown.")
        return
    rows = ["| rule | label | confidence | because |", "|---|---|---|---|"]
    for rule, one in given.items():
        sure = "" if one.confidence is None else f"{one.confidence:.0%}"
        rows.append(f"| {rule.name} | {label_chip(one.label)} | {sure} | {why(rule, before, after)} |")
    st.markdown("\n".join(rows))
    flip = flip_gamma(before, after)
    turns = f" rel-ratio turns at γ\\* = {float(flip):.2f}." if flip is not None else ""
    st.caption(
        f"Values {fraction_words(before)} → {fraction_words(after)}. Confidence: how likely fresh rollouts of the "
        f"same number give the same label.{turns}"
    )


def show_judges(
    judgments: Sequence[JudgmentView], label: str | None, *, trajectory_id: int, raw: bool
) -> None:
    """Each judge's vote on the chunk and one of its rationales; ``label``: rel-ratio's, to say who disagrees."""
    if not judgments:
        st.caption("No judge has read this chunk. A judge run adds rationales and verdicts.")
        st.page_link(
            RUNS,
            label="Judge this trajectory",
            icon=":material/gavel:",
            query_params=new_run("judge", trajectory_id),
        )
        return
    by_judge: dict[int, list[JudgmentView]] = defaultdict(list)
    for judgment in judgments:
        by_judge[judgment.judge_id].append(judgment)
    for drawn in by_judge.values():
        with st.container(border=True, gap="xsmall"):
            _show_judge(drawn, label, raw=raw)


def _show_judge(drawn: Sequence[JudgmentView], label: str | None, *, raw: bool) -> None:
    counts = Counter(j.verdict for j in drawn)
    majority = vote(cast("list[Verdict | None]", [j.verdict for j in drawn]))
    tally = f"{counts['positive']} + / {counts['negative']} −"
    tally += f" / {counts[None]} none" if counts[None] else ""
    agrees = {"+": "positive", "-": "negative"}.get(label or "")
    differs = (
        chip("orange", "call_split", "differs from rel-ratio")
        if majority and agrees not in (None, majority)
        else ""
    )
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"**{escape_line(drawn[0].judge, limit=60)}** {verdict_chip(majority, tally)} {differs}")
        default = next((j.draw for j in drawn if j.verdict == majority), drawn[0].draw)
        verdicts = {j.draw: j.verdict for j in drawn}
        chosen = st.pills(
            "Rationale",
            [j.draw for j in drawn][:MOST_DRAWS],
            default=default,
            format_func=lambda draw: f"{draw} {_MARKS[verdicts[draw]]}",
            key=f"rationale-{drawn[0].id}",
            label_visibility="collapsed",
        )
    for judgment in drawn:
        if judgment.draw != chosen:
            continue
        if judgment.score is not None:
            st.progress(
                judgment.score, text=f"p(+) {judgment.score:.2f}: this judge gives a score and writes nothing"
            )
        else:
            show_text(judgment.rationale, raw=raw)
            if judgment.finish_reason != "stop":
                st.caption(f"ended by: {escape_line(judgment.finish_reason)}, {judgment.n_tokens} tokens")


def show_rollouts(
    rollouts: Sequence[RolloutView],
    value: Value,
    where: tuple[int, int],
    opened: int | None,
    read: Callable[[int], RolloutWhole | None],
    *,
    raw: bool,
) -> None:
    """Rollouts of the prefix after a chunk by outcome and answer; ``where``: (trajectory, chunk); ``opened``: an id.

    ``read`` gives a rollout whole by its id, and is called only for the one that is open.
    """
    if not rollouts:
        _no_rollouts(value)
        return
    groups: dict[tuple[str, str | None], list[RolloutView]] = defaultdict(list)
    for rollout in rollouts:
        groups[rollout.outcome, rollout.answer].append(rollout)
    ordered = sorted(groups.items(), key=lambda item: (_ORDER.index(item[0][0]), -len(item[1])))
    for place, ((outcome, answer), drawn) in enumerate(ordered[:MOST_GROUPS]):
        _show_group(place, outcome, answer, drawn, where, opened)
    rest = sum(len(drawn) for _, drawn in ordered[MOST_GROUPS:])
    if rest:
        st.caption(f"… and {rest} more with {len(ordered) - MOST_GROUPS} other answers.")
    if len(rollouts) < value.n + value.errors:
        st.caption(f"The first {len(rollouts)} of {value.n + value.errors} rollouts are listed.")
    if opened is None:
        return
    row = next((r for r in rollouts if r.id == opened), None)
    if row is None:
        st.error(f"There is no rollout {opened} after chunk {where[1]} of trajectory {where[0]}.")
        return
    text = read(row.id)
    assert text is not None, "rollouts are never deleted"
    with st.container(border=True, gap="xsmall"):
        st.caption(
            f"Rollout {row.id}: draw {row.draw}, {row.n_tokens} tokens, seed {text.seed}, "
            f"ended by {escape_line(row.finish_reason)}" + ("" if raw else "; a paragraph is a chunk")
        )
        show_text(text.text if raw else _TAGS.sub("\n\n", text.text).strip("\n"), raw=raw)


def _show_group(
    place: int,
    outcome: str,
    answer: str | None,
    drawn: Sequence[RolloutView],
    where: tuple[int, int],
    opened: int | None,
) -> None:
    key = f"rollouts-{where[0]}-{where[1]}-{place}"
    st.session_state[key] = next((r.id for r in drawn if r.id == opened), None)
    draws = {r.id: r.draw for r in drawn}

    def open_one() -> None:
        go(*where, st.session_state[key])

    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        said = code(answer) if answer is not None else ""
        st.markdown(f"{outcome_chip(outcome)} **{len(drawn)} ×** {said}")
        st.pills(
            "Read a rollout",
            list(draws)[:MOST_DRAWS],
            format_func=lambda rollout_id: f"{draws[rollout_id]}",
            key=key,
            on_change=open_one,
            label_visibility="collapsed",
        )


def _no_rollouts(value: Value) -> None:
    if value.exact is not None:
        st.caption(
            f"The solution ends here: {describe(value)}. A finished solution is graded, not rolled out."
        )
    else:
        st.caption("None yet. A rollout run shows how often the policy still reaches the answer from here.")
