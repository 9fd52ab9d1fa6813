"""Two judges, or two runs of judges, on the chunks that both read: fixes and regressions, F1, rationales side by side.

Not: the numbers (engine.evaluate.paired), the list of chunks (judges_chunks).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

import streamlit as st

from app.views.judges_address import AGAINST, Asked, address, href
from app.views.judges_chunks import Listed, show_chunks
from app.views.judges_raters import WORDS, Raters, figure_text
from app.widgets.access import get_store
from app.widgets.address import parameters
from app.widgets.chips import label_chip, verdict_chip
from app.widgets.empty import empty_state, no_such
from app.widgets.here import go_here, here_button
from app.widgets.matrix import Cell, matrix
from app.widgets.plain_table import plain_table
from app.widgets.safe_text import apart, escape_line, raw_toggle, show_text, visible
from db.agreement_reads import Rated, parse_rater
from db.errors import NotFoundError
from db.reads_trajectory import JudgmentView
from engine.evaluate.paired import Case, Change, Comparison, compare
from engine.judge import Verdict, vote
from engine.rationale import error_sentence

MOST_DRAWS = 48
ORDER: tuple[Change, ...] = ("regressed", "fixed", "both wrong", "both right")
WHAT = {
    "fixed": "{b} is right where {a} was wrong",
    "regressed": "{b} is wrong where {a} was right",
    "both right": "both are right",
    "both wrong": "both are wrong",
}
_MARKS = {"positive": "+", "negative": "−", None: "none"}


def show_comparison(asked: Asked, known: Raters, queues: Mapping[int, str]) -> None:
    """Choose the two and what they are compared with; then numbers, the chunk that is open, and the chunks."""
    names = known.of("judge", "run")
    _choose(asked, known, queues, names)
    if asked.a not in names or asked.b not in names or asked.a == asked.b:
        _not_two(names)
        return
    a, b = asked.a, asked.b
    found = get_store().rated([a, b, asked.against], queue_id=asked.queue)
    rows = [row for row in found.rows if row.said[2] in "+-"]
    if not rows:
        empty_state(
            "Nothing to compare on",
            "No chunk was read by both and has a label to compare with. Judge the same solutions with both, or choose "
            "another label.",
            icon=":material/compare_arrows:",
        )
        return
    cases = [Case(row.problem_id, row.said[2], row.said[0], row.said[1]) for row in rows]
    titles = {"a": known.title(a), "b": known.title(b)}
    _numbers(asked, titles, compare(cases))
    left_out = len(found.rows) - len(rows)
    if left_out:
        st.caption(f"{left_out:,} more chunks were read by both, but people came to no label there.")
    if not found.complete:
        st.caption(
            f":material/info: Of the newest {len(found.rows):,} chunks that they have in common; there are more."
        )
    if found.hidden:
        st.caption(
            f":material/visibility_off: {found.hidden:,} chunks are left out: solutions that you are still to review blind."
        )
    if asked.chunk is not None:
        _side_by_side(asked.chunk, a, b, known, rows)
    changes = {row.chunk_id: case.change for row, case in zip(rows, cases, strict=True)}
    _list(asked, known, rows, changes, titles)


def _choose(asked: Asked, known: Raters, queues: Mapping[int, str], names: Sequence[str]) -> None:
    nobody = {"": "choose one"}
    options = nobody | {text: known.title(text) for text in names}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        _select("a", "From", options, asked.a if asked.a in names else "")
        _select("b", "to", options, asked.b if asked.b in names else "")
        _select(
            "against", "Right means equal to", {text: known.title(text) for text in AGAINST}, asked.against
        )
        if queues:
            scopes = {"": "all chunks"} | {str(i): name for i, name in queues.items()}
            _select("queue", "Queue", scopes, "" if asked.queue is None else str(asked.queue))
        if asked.a in names and asked.b in names:
            here_button(
                "Swap",
                address(a=asked.b, b=asked.a, change=None),
                key="compare-swap",
                icon=":material/swap_horiz:",
            )


def _select(name: str, label: str, options: Mapping[str, str], now: str | None) -> None:
    key = f"compare-{name}"
    st.session_state[key] = now or ""
    st.selectbox(
        label,
        list(options),
        format_func=apart(options).__getitem__,
        key=key,
        on_change=_changed,
        args=(name, key),
        width=260,
    )


def _changed(name: str, key: str) -> None:
    go_here(address(**{name: st.session_state[key] or None, "change": None}))


def _not_two(names: Sequence[str]) -> None:
    if len(names) > 1:
        st.caption("Choose two judges, or two runs, to see where one is right and the other wrong.")
        return
    empty_state(
        "Nothing to compare yet",
        "Two judges, or two judge runs, that read the same chunks can be compared.",
        page="views/runs.py",
        label="Start a judge run",
        query={"new": "judge"},
    )


def _numbers(asked: Asked, titles: Mapping[str, str], found: Comparison) -> None:
    left, right = st.columns([5, 7])
    with left:
        of = found.changes
        table: list[list[tuple[Change, str]]] = [
            [("both right", "quiet"), ("regressed", "bad")],
            [("fixed", "good"), ("both wrong", "quiet")],
        ]
        matrix(
            visible(titles["a"]),
            visible(titles["b"]),
            ["right", "wrong"],
            ["right", "wrong"],
            [[_cell(asked, titles, change, tone, of[change]) for change, tone in line] for line in table],
            label="Where each is right and wrong",
            key="compare-matrix",
        )
        if asked.change is None:
            st.caption("Press a number to read its chunks.")
        else:
            here_button("All chunks", address(change=None), key="compare-all", icon=":material/undo:")
    with right:
        rows = [
            ("Right", found.first.accuracy, found.second.accuracy, found.accuracy_gap),
            ("F1 of finding errors", found.first.f1, found.second.f1, found.f1_gap),
            ("Precision", found.first.precision, found.second.precision, None),
            ("Recall", found.first.recall, found.second.recall, None),
        ]
        plain_table(
            ("What", "From", "to", "gained"),
            [
                (
                    name,
                    figure_text(one, share=True),
                    figure_text(other, share=True),
                    figure_text(gap, share=True, signed=True) if gap is not None else "",
                )
                for name, one, other, gap in rows
            ],
            label="Scores of both",
            key="compare-scores",
        )
        st.caption(
            f"{found.n:,} chunks of {found.problems:,} problems, {found.errors:,} labelled −. Intervals: 95 %, problems "
            "drawn with replacement, the same for both. Without a verdict a judge is not right."
        )


def _cell(asked: Asked, titles: Mapping[str, str], change: Change, tone: str, n: int) -> Cell:
    marks = {"fixed": "▲", "regressed": "▼"}
    key = change.replace(" ", "-")
    return Cell(
        n,
        href(change=key),
        f"{change}, {WHAT[change].format(**titles)}: {n} chunks",
        tone,  # type: ignore[arg-type]
        marks.get(change, ""),
        chosen=asked.change == change,
    )


def _list(
    asked: Asked,
    known: Raters,
    rows: Sequence[Rated],
    changes: Mapping[int, Change],
    titles: Mapping[str, str],
) -> None:
    assert asked.a is not None and asked.b is not None
    if asked.change is None:
        chosen = sorted(rows, key=lambda row: ORDER.index(changes[row.chunk_id]))
        title = "all that both read, regressions first"
    else:
        chosen = [row for row in rows if changes[row.chunk_id] == asked.change]
        title = f"{asked.change}: {WHAT[asked.change].format(**titles)}"
    name = (asked.change or "compared").replace(" ", "-")

    def opens(row: Rated) -> str:
        return href(chunk=str(row.chunk_id))

    listed = Listed(chosen, (asked.a, asked.b, asked.against), title, name, opens)
    show_chunks(listed, known, asked.page)


# ---- one chunk, both rationales


def _side_by_side(chunk_id: int, a: str, b: str, known: Raters, rows: Sequence[Rated]) -> None:
    store = get_store()
    try:
        trajectory_id, idx = store.chunk_place(chunk_id)
    except NotFoundError:
        no_such("chunk", str(chunk_id))
        return
    row = next((one for one in rows if one.chunk_id == chunk_id), None)
    if row is None:
        st.warning(f"Chunk {chunk_id} is not among the chunks compared here.", icon=":material/info:")
        return
    text = store.excerpts([chunk_id], chars=20_000)[chunk_id]
    with st.container(border=True, key="side-by-side"):
        with st.container(horizontal=True, vertical_alignment="center"):
            label = row.said[2]
            st.markdown(
                f"**Chunk {idx}** of trajectory {trajectory_id} {label_chip(label, 'what right means')}"
            )
            st.page_link(
                "views/trajectory.py",
                label="On its page",
                icon=":material/timeline:",
                query_params=parameters(trajectory_id, idx),
            )
            raw = raw_toggle()
            here_button("Close", address(), key="compare-close", icon=":material/close:")
        with st.expander("Problem"):
            show_text(text.problem, raw=raw)
        show_text(text.text, raw=raw)
        judgments = store.judgments_of(chunk_id)
        for column, who, sign in zip(st.columns(2), (a, b), row.said[:2], strict=True):
            with column:
                _one_judge(chunk_id, who, known.title(who), sign, judgments, raw=raw)


def _one_judge(
    chunk_id: int, who: str, title: str, sign: str, judgments: Sequence[JudgmentView], *, raw: bool
) -> None:
    rater = parse_rater(who)
    number = int(rater.which)
    drawn = [j for j in judgments if (j.judge_id if rater.kind == "judge" else j.run_id) == number]
    counts = Counter(j.verdict for j in drawn)
    majority = vote(cast("list[Verdict | None]", [j.verdict for j in drawn]))
    tally = ", ".join(f"{counts[verdict]} {mark}" for verdict, mark in _MARKS.items() if counts[verdict])
    st.markdown(f"**{escape_line(title, limit=80)}** {verdict_chip(majority, tally)}")
    if not drawn:
        st.caption(f"{WORDS[sign]}; its judgments are not shown to you now.")
        return
    usual = next((j.draw for j in drawn if j.verdict == majority), drawn[0].draw)
    verdicts = {j.draw: j.verdict for j in drawn}
    chosen = usual
    if len(drawn) > 1:
        chosen = st.pills(
            "Judgment",
            list(verdicts)[:MOST_DRAWS],
            default=usual,
            format_func=lambda draw: f"{draw} {_MARKS[verdicts[draw]]}",
            key=f"side-{who}-{chunk_id}",
            label_visibility="collapsed",
            required=True,
        )
    judgment = next(j for j in drawn if j.draw == chosen)
    if judgment.score is not None:
        st.progress(
            judgment.score, text=f"p(+) {judgment.score:.2f}: this judge gives a score and writes nothing"
        )
    else:
        named = error_sentence(judgment.rationale) if judgment.verdict == "negative" else None
        show_text(judgment.rationale, raw=raw, marks=[named] if named else [])
