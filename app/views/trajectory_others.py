"""The other solutions of a trajectory's problem: where each leaves this one, its Q curve, and one beside this one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from urllib.parse import urlencode

import streamlit as st

from app.views.trajectory_shown import CHUNKS_A_PAGE, Shown
from app.widgets.access import get_store
from app.widgets.address import change, elsewhere, go
from app.widgets.chips import OUTCOMES, chip, outcome_chip
from app.widgets.compared import show_compared
from app.widgets.rows import Chip, Column, Row, Tone, row_table, spark_of
from app.widgets.safe_text import escape_line, visible
from app.widgets.value_words import fraction_words
from db.reads_trajectory import Sibling, TrajectoryView
from engine.parting import compare
from engine.pipeline.labelling import prefix_values
from engine.values import Value

MOST = 24
_MOST_TEXT = 1200
"""Chunks of siblings that are read to say where they leave this solution."""
_TONES: dict[str, Tone] = {"correct": "good", "wrong": "bad", "unparsed": "warn", "truncated": "warn"}
_COLUMNS = (
    Column("Solution", "link"),
    Column("Outcome", "chips"),
    Column("Answer", "small", help="What the solution answers"),
    Column("Leaves this one", "small", help="The first chunk that is not the same, word for word"),
    Column("Chunks", "number", narrow="hide"),
    Column("Q", "spark"),
    Column("Policy", "small", narrow="hide"),
)


def show_others(shown: Shown) -> None:
    """The table and, if the address names one, that solution beside this one."""
    view, store = shown.view, get_store()
    rows = [row for row in store.siblings(view.problem_id, MOST + 2) if row.id != view.id]
    found, more = rows[:MOST], len(rows) > MOST
    if not found:
        if shown.address.beside is not None:
            _no_other(shown.address.beside)
        return
    counts = Counter(row.outcome for row in found)
    told = " ".join(f"{outcome_chip(name)} {n}" for name, n in counts.most_common())
    if more:
        told += f" :small[:gray[of the first {MOST}; there are more]]"
    st.markdown(f"##### Other solutions of this problem &nbsp; {told}", anchors=False)
    leaves = _leaves(shown, found)
    inputs = store.label_inputs([row.id for row in found])
    values = {one.trajectory_id: prefix_values(one) for one in inputs}
    if shown.address.beside is not None:
        _beside(shown, shown.address.beside, found, values)
    ordered = sorted(found, key=lambda row: (-leaves.get(row.id, 0), row.id))
    cells = [_row(shown, row, leaves.get(row.id), values.get(row.id, [])) for row in ordered]
    row_table(_COLUMNS, cells, label="Other solutions of this problem", key="siblings")
    st.caption("Press one to see it beside this solution.")


def _leaves(shown: Shown, found: Sequence[Sibling]) -> dict[int, int]:
    """{solution: how many chunks it begins with that are the same as here}; of those whose texts are read."""
    ids, budget = [], _MOST_TEXT - shown.view.n_chunks
    for row in found:
        budget -= row.n_chunks
        if budget >= 0:
            ids.append(row.id)
    if not ids:
        return {}
    texts = {
        whole.id: [" ".join(chunk.text.split()) for chunk in whole.chunks]
        for whole in get_store().stage_trajectories([shown.view.id, *ids])
    }
    own = texts.pop(shown.view.id, [])
    return {i: _same(own, theirs) for i, theirs in texts.items()}


def _same(here: Sequence[str], there: Sequence[str]) -> int:
    return next(
        (k for k, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), min(len(here), len(there))
    )


def _row(shown: Shown, row: Sibling, same: int | None, values: Sequence[Value]) -> Row:
    words = OUTCOMES.get(row.outcome, ("", "", row.outcome))[2]
    left = None if same is None else f"at chunk {same}" if same < row.n_chunks else "nowhere"
    query = elsewhere(shown.view.id, shown.selected, beside=row.id)
    return Row(
        id=str(row.id),
        href=f"/trajectory?{urlencode(query)}",
        label=f"Trajectory {row.id}, {words}: see it beside this solution",
        cells=(
            str(row.id),
            [Chip(words, _TONES.get(row.outcome, "quiet"))],
            " ".join(visible(row.answer or "none").split())[:24],
            left,
            str(row.n_chunks),
            spark_of([None if value.q is None else float(value.q) for value in values]),
            visible(row.policy)[:40],
        ),
    )


def _beside(shown: Shown, beside: int, found: Sequence[Sibling], values: dict[int, list[Value]]) -> None:
    """The two solutions chunk by chunk from where they part, each with its values."""
    store, view = get_store(), shown.view
    other: Sibling | TrajectoryView | None = next((row for row in found if row.id == beside), None)
    if other is None and beside != view.id:  # behind the first of them, the address can still name it
        one = store.trajectory_view(beside)
        if one is not None and one.problem_id == view.problem_id:
            other = one
            values |= {i.trajectory_id: prefix_values(i) for i in store.label_inputs([one.id])}
    if other is None:
        _no_other(beside)
        return
    theirs = store.chunk_page(other.id, 0, CHUNKS_A_PAGE)
    ours = store.chunk_page(view.id, 0, CHUNKS_A_PAGE)
    q_theirs = values.get(other.id, [])
    with st.container(border=True, key="beside", gap="xsmall"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            answer = f" answers {escape_line(other.answer, limit=40)}" if other.answer else ""
            st.markdown(f"**{view.id} beside {other.id}** {outcome_chip(other.outcome)}{answer}")
            st.button(f"Open {other.id}", key="beside-open", type="tertiary", on_click=go, args=(other.id,))
            st.button(
                "Close",
                key="beside-close",
                icon=":material/close:",
                type="tertiary",
                on_click=lambda: change(beside=None),
            )
        show_compared(
            compare([chunk.text for chunk in ours], [chunk.text for chunk in theirs]),
            lambda i: f"{chip('gray', 'timeline', f'{view.id} · {i}')} {_after(shown.values, i)}",
            lambda i: f"{chip('blue', 'alt_route', f'{other.id} · {i}')} {_after(q_theirs, i)}",
            raw=shown.raw,
        )


def _no_other(beside: int) -> None:
    st.error(
        f"There is no solution {beside} of this problem to show beside this one.", icon=":material/link_off:"
    )


def _after(values: Sequence[Value], chunk: int) -> str:
    """The value after a chunk in a few signs."""
    if chunk + 1 >= len(values):
        return ""
    value = values[chunk + 1]
    if not value.known and not value.left:
        return ""
    return f":small[:gray[Q {fraction_words(value) if value.exact is None else int(value.exact)}]]"
