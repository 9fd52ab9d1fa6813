"""Agreement on the Judges page: among people, people with judges and rules, by queue; and two raters in full.

Not: the numbers (engine.evaluate.agreement), the list of chunks behind a cell (judges_chunks).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import streamlit as st

from app.views.judges_address import LAST_POSITION, SIGNS, Asked, address, href
from app.views.judges_chunks import Listed, opens_trajectory, show_chunks
from app.views.judges_raters import PEOPLE, SHORT, WORDS, Raters, figure_text
from app.widgets.access import get_store
from app.widgets.charts import CONFIG, Line, curves
from app.widgets.empty import empty_state
from app.widgets.here import go_here, here_button
from app.widgets.matrix import Cell, matrix
from app.widgets.plain_table import plain_table
from app.widgets.rows import Column, Row, row_table
from app.widgets.safe_text import apart, visible
from db.agreement_reads import UNSURE, Answered, Rated, parse_rater
from engine.evaluate.agreement import PairAgreement, among_many, between_two

OVERVIEW = 2000
"""Chunks that each line of the overview looks at."""
MOST_PAIRS = 45
MOST_QUEUES = 12
NOBODY = ""
WIDTH = 960
"""Pixels: numbers stay near their names on a wide screen."""
PAIR_COLUMNS = (
    Column("Between", "link"),
    Column("Chunks", "number"),
    Column(
        "Agree",
        "number",
        help="Share of chunks on which both say the same, with its 95 % interval by problem",
    ),
    Column(
        "Cohen’s κ", "number", help="0: no better than chance; 1: always the same. 95 % interval by problem"
    ),
)
QUEUE_COLUMNS = (
    Column("Queue", "link"),
    Column("Chunks", "number", help="With two answers or more"),
    Column("Agree", "number", help="Mean share of pairs of reviewers who say the same"),
    Column("Krippendorff’s α", "number"),
    Column("Fleiss’ κ", "number", help="Of the chunks with the commonest number of answers"),
)


def show_agreement(asked: Asked, known: Raters, queues: Mapping[int, str]) -> None:
    """Choose whose; then two raters in full, or everybody at a glance."""
    _choose(asked, known, queues)
    if asked.a and asked.b:
        _two(asked, known, asked.a, asked.b)
        return
    with st.container(width=WIDTH):
        _everybody(asked, known, queues)


def _choose(asked: Asked, known: Raters, queues: Mapping[int, str]) -> None:
    names = known.of("person", "people", "judge", "rule", "run")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        _select(
            "queue",
            "Queue",
            {NOBODY: "all chunks"} | {str(i): name for i, name in queues.items()},
            asked.queue,
        )
        for name, label, now in (("a", "Between", asked.a), ("b", "and", asked.b)):
            _select(name, label, {NOBODY: "everybody"} | {text: known.title(text) for text in names}, now)


def _select(name: str, label: str, options: Mapping[str, str], now: object) -> None:
    key = f"agreement-{name}"
    st.session_state[key] = NOBODY if now is None else str(now)
    st.selectbox(
        label,
        list(options),
        format_func=apart(options).__getitem__,
        key=key,
        on_change=_changed,
        args=(name, key),
        width=250,
    )


def _changed(name: str, key: str) -> None:
    go_here(address(**{name: st.session_state[key] or None, "cell": None, "at": None}))


def _bounds(complete: bool, hidden: int, looked: int) -> None:
    """What was not counted."""
    if not complete:
        st.caption(f":material/info: Of the newest {looked:,} chunks; there are more.")
    if hidden:
        st.caption(
            f":material/visibility_off: {hidden:,} chunks are left out: solutions that you are still to review blind."
        )


# ---- everybody


def _everybody(asked: Asked, known: Raters, queues: Mapping[int, str]) -> None:
    found = get_store().answers(queue_id=asked.queue)
    st.subheader("Among people", anchor=False)
    if not any(len(row.said) > 1 for row in found.rows):
        empty_state(
            "No chunk was reviewed by two people yet",
            "Agreement needs a second pair of eyes: make a queue whose items take two reviews.",
            page="views/queue.py",
            label="Queues",
            icon=":material/group:",
        )
    else:
        _group(found.rows)
        _pairs(asked, known, found.rows)
    _bounds(found.complete, found.hidden, len(found.rows))
    if found.rows:
        st.subheader("People with judges and rules", anchor=False)
        _with_judges(asked, known)
    if asked.queue is None and queues:
        st.subheader("By queue", anchor=False)
        _by_queue(queues)


def _units(rows: Iterable[Answered]) -> list[tuple[int, list[str]]]:
    return [(row.problem_id, [sign for sign in row.said.values() if sign != UNSURE]) for row in rows]


def _group(rows: Sequence[Answered]) -> None:
    group = among_many(_units(rows))
    people = {actor for row in rows for actor in row.said}
    fleiss = (
        f"{figure_text(group.fleiss)} of {group.fleiss_n:,} chunks with {group.fleiss_raters} answers each"
    )
    plain_table(
        ("What", "How much"),
        [
            ("Krippendorff’s α", figure_text(group.alpha)),
            ("Fleiss’ κ", fleiss),
            ("Pairs that agree", figure_text(group.raw, share=True)),
            (
                "Counted",
                f"{group.n:,} chunks of {group.problems:,} problems, {group.answers:,} answers of {len(people)} people",
            ),
        ],
        label="Agreement among people",
        key="agreement-group",
    )
    st.caption(
        "Answers +1, 0 and −1 as three names without an order; “cannot tell” is no answer; what an adjudicator decided "
        "is not counted. Intervals: 95 %, problems drawn with replacement."
    )


def _pairs(asked: Asked, known: Raters, rows: Sequence[Answered]) -> None:
    together: dict[tuple[str, str], list[tuple[int, str, str]]] = {}
    for row in rows:
        given = sorted((actor, sign) for actor, sign in row.said.items() if sign != UNSURE)
        for (one, first), (other, second) in combinations(given, 2):
            together.setdefault((one, other), []).append((row.problem_id, first, second))
    ordered = sorted(together, key=lambda pair: -len(together[pair]))
    drawn = []
    for pair in ordered[:MOST_PAIRS]:
        a, b = (f"person:{actor}" for actor in pair)
        if a in known.titles and b in known.titles:
            drawn.append(_pair_row(known, a, b, between_two(together[pair])))
    row_table(PAIR_COLUMNS, drawn, label="Pairs of people", key="agreement-pairs")
    if len(ordered) > MOST_PAIRS:
        st.caption(f"The {MOST_PAIRS} pairs with the most chunks in common, of {len(ordered)}.")


def _pair_row(known: Raters, a: str, b: str, found: PairAgreement) -> Row:
    between = f"{known.title(a)} × {known.title(b)}"
    return Row(
        id=f"{a}/{b}",
        href=href(a=a, b=b, cell=None, at=None),
        label=f"Agreement between {known.title(a)} and {known.title(b)}",
        cells=(between, f"{found.n:,}", figure_text(found.raw, share=True), figure_text(found.kappa)),
    )


def _with_judges(asked: Asked, known: Raters) -> None:
    drawn, complete = [], True
    for other in known.of("judge", "rule"):
        found = get_store().rated([PEOPLE, other], queue_id=asked.queue, limit=OVERVIEW)
        complete = complete and found.complete
        counted = _counted(found.rows, PEOPLE, other)
        if counted:
            drawn.append(_pair_row(known, PEOPLE, other, between_two(counted)))
    if not drawn:
        st.caption("No chunk that people reviewed was read by a judge or has a label.")
        return
    row_table(PAIR_COLUMNS, drawn, label="People with judges and rules", key="agreement-judges")
    st.caption(
        "People: their consensus or the adjudication, + or −. A rule asks whether the chance of success fell, people and "
        "judges whether there is an error: where they differ, it is a matter of the question as well as of noise."
    )
    _bounds(complete, 0, OVERVIEW)


def _by_queue(queues: Mapping[int, str]) -> None:
    drawn, complete = [], True
    for queue_id in sorted(queues, reverse=True)[:MOST_QUEUES]:
        found = get_store().answers(queue_id=queue_id, limit=OVERVIEW)
        complete = complete and found.complete
        group = among_many(_units(found.rows))
        if group.n:
            figures = (
                figure_text(group.raw, share=True),
                figure_text(group.alpha),
                figure_text(group.fleiss),
            )
            name = visible(queues[queue_id])
            drawn.append(
                Row(
                    str(queue_id),
                    href(queue=str(queue_id)),
                    f"Agreement in {name}",
                    (name, f"{group.n:,}", *figures),
                )
            )
    if drawn:
        row_table(QUEUE_COLUMNS, drawn, label="Agreement by queue", key="agreement-queues")
        _bounds(complete, 0, OVERVIEW)
    else:
        st.caption("In no queue did two people answer the same item yet.")


# ---- two raters


def classes_of(a: str, b: str) -> tuple[str, ...]:
    """The answers that count: + and −, and 0 where both are people, who can say it."""
    people = all(parse_rater(text).kind == "person" for text in (a, b))
    return ("+", "0", "-") if people else ("+", "-")


def _counted(rows: Iterable[Rated], a: str, b: str) -> list[tuple[int, str, str]]:
    classes = classes_of(a, b)
    return [
        (row.problem_id, row.said[0], row.said[1])
        for row in rows
        if row.said[0] in classes and row.said[1] in classes
    ]


def _at(row: Rated) -> int:
    return min(row.idx, LAST_POSITION)


def _two(asked: Asked, known: Raters, a: str, b: str) -> None:
    found = get_store().rated([a, b], queue_id=asked.queue)
    rows = found.rows
    if not rows:
        empty_state(
            "They have no chunk in common",
            "Both have to have said something of the same chunk"
            + (" in this queue." if asked.queue is not None else "."),
            icon=":material/compare_arrows:",
        )
        _bounds(found.complete, found.hidden, len(rows))
        return
    here = [row for row in rows if asked.at is None or _at(row) == asked.at]
    left, right = st.columns([5, 6])
    with left:
        _table(asked, known, a, b, here)
    with right:
        _numbers(asked, a, b, here)
    _bounds(found.complete, found.hidden, len(rows))
    if asked.cell is not None:
        opened = [row for row in here if row.said == asked.cell]
        said = " and ".join(
            f"{known.title(who)} said {WORDS[sign]}" for who, sign in zip((a, b), asked.cell, strict=True)
        )
        show_chunks(Listed(opened, (a, b), said, "chunks", opens_trajectory), known, asked.page)
    _positions(a, b, rows)


def _table(asked: Asked, known: Raters, a: str, b: str, rows: Sequence[Rated]) -> None:
    counts: dict[tuple[str, ...], int] = {}
    for row in rows:
        counts[row.said] = counts.get(row.said, 0) + 1
    down = [sign for sign in SIGNS if any(said[0] == sign for said in counts) or sign in "+-"]
    across = [sign for sign in SIGNS if any(said[1] == sign for said in counts) or sign in "+-"]
    cells = [
        [_cell(asked, known, a, b, (first, second), counts.get((first, second), 0)) for second in across]
        for first in down
    ]
    matrix(
        known.title(a),
        known.title(b),
        [SHORT[sign] for sign in down],
        [SHORT[sign] for sign in across],
        cells,
        label=f"What {known.title(a)} and {known.title(b)} said",
        key="agreement-matrix",
    )
    st.caption("Press a number to read its chunks." if asked.cell is None else "")


def _cell(asked: Asked, known: Raters, a: str, b: str, said: tuple[str, str], n: int) -> Cell:
    same, both = said[0] == said[1], set(said) <= set(classes_of(a, b))
    words = f"{known.title(a)} said {WORDS[said[0]]}, {known.title(b)} said {WORDS[said[1]]}: {n} chunks"
    return Cell(
        n,
        href(cell="".join(said)),
        words,
        "quiet" if not both else "good" if same else "bad",
        "" if not both else "=" if same else "≠",
        chosen=asked.cell == said,
    )


def _numbers(asked: Asked, a: str, b: str, rows: Sequence[Rated]) -> None:
    counted = _counted(rows, a, b)
    found = between_two(counted)
    left_out = len(rows) - len(counted)
    where = "" if asked.at is None else f", {_position_words(asked.at)}"
    plain_table(
        ("What", "How much"),
        [
            ("Cohen’s κ", figure_text(found.kappa)),
            ("Agree", figure_text(found.raw, share=True)),
            ("Counted", f"{found.n:,} chunks of {found.problems:,} problems{where}"),
            ("Left out", f"{left_out:,} chunks of which one of them took no side"),
        ],
        label="Agreement of the two",
        key="agreement-two",
    )
    if found.n and found.kappa.value is None:
        st.caption("κ is not defined: both only ever gave one and the same answer.")
    elif found.n and found.kappa.low is None:
        st.caption("Too few problems for an interval.")
    if asked.at is not None:
        here_button("All positions", address(at=None), key="agreement-all", icon=":material/undo:")


def _position_words(at: int) -> str:
    return f"chunk {at} and later" if at == LAST_POSITION else f"chunk {at} of their solution"


def _positions(a: str, b: str, rows: Sequence[Rated]) -> None:
    by: dict[int, list[Rated]] = {}
    for row in rows:
        by.setdefault(_at(row), []).append(row)
    found = {at: between_two(_counted(by[at], a, b)) for at in sorted(by)}
    found = {at: one for at, one in found.items() if one.n}
    if len(found) < 2:
        return
    st.markdown("**By place in the solution**")
    line = Line("agree", list(found), [one.raw.value for one in found.values()])
    said = "; ".join(f"chunk {at}: {one.raw.value:.0%} of {one.n}" for at, one in found.items())
    figure = curves([line], height=180, share=True, at="chunk")
    figure.update_xaxes(title={"text": "chunk", "standoff": 16}, dtick=1)
    figure.update_yaxes(range=[0, 1.05])
    st.plotly_chart(figure, key="agreement-positions", config=CONFIG, alt=f"Share that agree: {said}")
    columns = (Column("Place", "link"), *PAIR_COLUMNS[1:])
    drawn = [
        Row(
            id=str(at),
            href=href(at=str(at), cell=None),
            label=f"Agreement on {_position_words(at)}",
            cells=(
                f"{at}+" if at == LAST_POSITION else str(at),
                f"{one.n:,}",
                figure_text(one.raw, share=True),
                figure_text(one.kappa),
            ),
        )
        for at, one in found.items()
    ]
    with st.container(width=WIDTH):
        row_table(columns, drawn, label="Agreement by place in the solution", key="agreement-places")
