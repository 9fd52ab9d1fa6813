"""What each judge says of a chunk: its votes, and one rationale in which the sentence that names the error is marked.

Only the rationale that is open is sent to the browser. Not here: judges compared over many chunks (the Judges page).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import cast

import streamlit as st

from app.widgets.address import RUNS, change, new_run
from app.widgets.chips import chip, verdict_chip
from app.widgets.hits import hits
from app.widgets.keys import key_hint
from app.widgets.safe_text import escape_line, show_text
from db.reads_trajectory import JudgmentView
from engine.judge import Verdict, vote
from engine.rationale import error_sentence

MOST_DRAWS = 48
_MARKS = {"positive": "+", "negative": "−", None: "no verdict"}
NEXT = "judgment-next"
"""Key of the button that opens the next judgment."""


def show_judges(
    judgments: Sequence[JudgmentView],
    label: str | None,
    *,
    where: tuple[int, int],
    opened: int | None,
    rule: str,
    find: str,
    raw: bool,
) -> None:
    """Each judge's vote and one of its rationales. ``label``: that of ``rule``, to say who disagrees; ``where``:
    (trajectory, chunk); ``opened``: a judgment's id."""
    if not judgments:
        st.caption("No judge has read this chunk. A judge run adds rationales and verdicts.")
        st.page_link(
            RUNS,
            label="Judge this trajectory",
            icon=":material/gavel:",
            query_params=new_run("judge", where[0]),
        )
        return
    if opened is not None and all(judgment.id != opened for judgment in judgments):
        st.error(f"There is no judgment {opened} of chunk {where[1]} of trajectory {where[0]}.")
    by_judge: dict[int, list[JudgmentView]] = defaultdict(list)
    for judgment in judgments:
        by_judge[judgment.judge_id].append(judgment)
    for drawn in by_judge.values():
        with st.container(border=True, gap="xsmall"):
            _show_judge(drawn, label, where, opened, rule=rule, find=find, raw=raw)


def next_judgment(judgments: Sequence[JudgmentView], opened: int | None, where: tuple[int, int]) -> None:
    """The button that opens the judgments one after another."""
    ids = [judgment.id for judgment in judgments]
    after = ids[(ids.index(opened) + 1) % len(ids)] if opened in ids else ids[0]
    st.button(
        f"Next judgment {key_hint('judge-next')}",
        key=NEXT,
        type="tertiary",
        on_click=lambda: change(chunk=str(where[1]), judgment=str(after)),
    )


def _show_judge(
    drawn: Sequence[JudgmentView],
    label: str | None,
    where: tuple[int, int],
    opened: int | None,
    *,
    rule: str,
    find: str,
    raw: bool,
) -> None:
    counts = Counter(j.verdict for j in drawn)
    majority = vote(cast("list[Verdict | None]", [j.verdict for j in drawn]))
    tally = f"{counts['positive']} + / {counts['negative']} −"
    tally += f" / {counts[None]} none" if counts[None] else ""
    agrees = {"+": "positive", "-": "negative"}.get(label or "")
    against = majority is not None and agrees not in (None, majority)
    differs = chip("orange", "call_split", f"differs from {rule}") if against else ""
    chosen = next((j for j in drawn if j.id == opened), None)
    shown = chosen or next((j for j in drawn if j.verdict == majority), drawn[0])
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        prompted = ":small[:gray[prompted LLM]]" if drawn[0].kind == "prompted" else ""
        st.markdown(
            f"**{escape_line(drawn[0].judge, limit=60)}** {prompted} {verdict_chip(majority, tally)} {differs}"
        )
        if len(drawn) > 1:
            _draws(drawn, shown, where)
    if shown.score is not None:
        words = f"p(+) {shown.score:.2f}: this judge gives a score and writes nothing"
        st.progress(shown.score, text=words)
        return
    _rationale(shown, find, raw=raw)


def _draws(drawn: Sequence[JudgmentView], shown: JudgmentView, where: tuple[int, int]) -> None:
    """Which of the judge's draws is open; kept in the address."""
    key = f"rationale-{where[0]}-{where[1]}-{drawn[0].judge_id}"
    st.session_state[key] = shown.id
    words = {j.id: f"{j.draw} {_MARKS[j.verdict]}" for j in drawn}

    def open_one() -> None:
        picked = st.session_state[key]
        change(chunk=str(where[1]), judgment=None if picked is None else str(picked))

    st.pills(
        "Rationale",
        [j.id for j in drawn][:MOST_DRAWS],
        format_func=lambda judgment_id: words.get(judgment_id, "?"),
        key=key,
        on_change=open_one,
        label_visibility="collapsed",
    )


def _rationale(judgment: JudgmentView, find: str, *, raw: bool) -> None:
    named = error_sentence(judgment.rationale) if judgment.verdict == "negative" else None
    found = hits(judgment.rationale, find)
    if found:
        show_text(judgment.rationale, raw=raw, marks=found, colour="blue")
    else:
        show_text(judgment.rationale, raw=raw, marks=[named] if named else [])
    said = []
    if named and not found and not raw:
        said.append(":material/ink_highlighter: marked: names the error")
    if judgment.finish_reason != "stop":
        said.append(f"ended by: {escape_line(judgment.finish_reason)}, {judgment.n_tokens} tokens")
    if said:
        st.caption(" · ".join(said))
