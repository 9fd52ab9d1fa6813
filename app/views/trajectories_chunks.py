"""The list of chunks: what fits the filters, with its values, label, votes and reviews, and where a search was found."""

from __future__ import annotations

from urllib.parse import urlencode

import streamlit as st

from app.views.trajectories_actions import chunk_actions
from app.views.trajectories_address import PLACE, Asked
from app.views.trajectories_filters import show_filters
from app.views.trajectories_parts import COUNTED, limits_words, marked, step
from app.widgets.access import get_store
from app.widgets.address import parameters
from app.widgets.chips import OUTCOMES
from app.widgets.empty import empty_state
from app.widgets.here import here_button
from app.widgets.rows import Chip, Column, Excerpt, Row, row_table
from app.widgets.run_words import TONES
from app.widgets.safe_text import escape_line, visible
from db.chunk_filter import ChunkFilter
from db.errors import CursorError
from db.find_rows import Drawn, FoundChunk
from db.find_store import LOOK, ChunkPage

PAGE = 50
EXCERPT = 220
COLUMNS = (
    Column("Chunk", "link", help="Trajectory, and the chunk's index from 0"),
    Column("What it says", "excerpts", "wide"),
    Column(
        "Q",
        "small",
        help="Chance of success before the chunk and after it; 1/5 of 16: stopped after 5 of 16 rollouts, 1 right; "
        "?: not known, or never rolled out",
    ),
    Column("Drop", "number", help="How far Q falls over the chunk"),
    Column("Label", "chips", help="By the rule chosen above, with its confidence"),
    Column("Judges", "chips", "wide", help="Each judge's positive votes of all"),
    Column("People", "chips", help="What people's reviews amount to"),
    Column("Solution", "chips", "wide"),
)


def show_chunks(asked: Asked) -> None:
    """Filters, count, rows, Previous and Next."""
    show_filters(asked, st.query_params.to_dict())
    if asked.problems:
        for problem in asked.problems:
            st.error(problem, icon=":material/link_off:")
        here_button("All chunks", {"show": "chunks"}, key="all", icon=":material/filter_list_off:")
        return
    _list(asked)


def _where(asked: Asked) -> ChunkFilter:
    assert isinstance(asked.where, ChunkFilter)
    return asked.where


def _list(asked: Asked) -> None:
    store, where = get_store(), _where(asked)
    try:
        found = store.find_chunks(
            where,
            sort=asked.sort,
            cursor=asked.after or asked.before,
            backwards=asked.before is not None,
            limit=PAGE,
            count=0 if asked.after or asked.before else COUNTED,
        )
    except CursorError as error:
        st.error(escape_line(str(error), limit=300), icon=":material/link_off:")
        here_button("First page", _here(), key="first", icon=":material/first_page:")
        return
    if not found.rows:
        _nothing(found)
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="list-bar"):
        st.caption(_counted(asked, found))
        chunk_actions(where, asked.sort)
    judges = {
        judge.id: visible(judge.name)[:30] + (" (prompted)" if judge.kind == "prompted" else "")
        for judge in store.judges()
    }
    rows = [_row(row, where, judges) for row in found.rows]
    row_table(COLUMNS, rows, label="Chunks", key="chunks")
    if not found.whole:
        st.caption(
            f"{LOOK:,} chunks of this order were looked at for this page; there may be more that fit further on."
        )
    with st.container(horizontal=True, horizontal_alignment="center"):
        step("Previous", ":material/chevron_left:", "before", _here(), found.previous)
        step(
            "Next" if found.whole else "Look further",
            ":material/chevron_right:",
            "after",
            _here(),
            found.next,
        )


def _counted(asked: Asked, found: ChunkPage) -> str:
    """How many fit: the first page counted them on its way."""
    here = len(found.rows)
    count = found.count or get_store().count_chunks(_where(asked), sort=asked.sort, stop=COUNTED)
    total = (
        f"{COUNTED:,}+" if count.n > COUNTED else f"{count.n:,}" if count.whole else f"at least {count.n:,}"
    )
    left_out = {"drop": " with a known drop", "certain": " with a known confidence"}.get(asked.sort, "")
    noun = "chunk" if count.n == 1 and count.whole else "chunks"
    return f"{total} {noun}{left_out} · {here} on this page{limits_words(count.n, 'chunks')}"


def _here() -> dict[str, str]:
    """The address's filters and order, without its place in the list."""
    return {n: v for n, v in st.query_params.items() if n not in PLACE}


def _nothing(found: ChunkPage) -> None:
    if found.next is not None and not found.whole:
        st.info(
            f"None of the {LOOK:,} chunks looked at so far fits; there may be some further on.",
            icon=":material/search:",
        )
        here_button(
            "Look further", {**_here(), "after": found.next}, key="further", icon=":material/chevron_right:"
        )
        return
    if any(name in st.query_params for name in PLACE):
        st.info("There is nothing further in this direction.", icon=":material/info:")
        here_button("First page", _here(), key="first", icon=":material/first_page:")
        return
    empty_state(
        "No chunk matches",
        "Take a filter away, or search for other words: all words must stand in one text. An order by drop or by "
        "confidence leaves out chunks where it is not known.",
        icon=":material/search_off:",
    )


def _row(row: FoundChunk, where: ChunkFilter, judges: dict[int, str]) -> Row:
    words = where.search or ""
    address = parameters(row.trajectory_id, row.idx) | ({"find": words[:200]} if words.strip() else {})
    rule = {"rule": where.rule} if where.rule != ChunkFilter().rule else {}
    return Row(
        id=str(row.id),
        href="/trajectory?" + urlencode(address | rule),
        label=f"Chunk {row.idx} of trajectory {row.trajectory_id}",
        cells=(
            f"#{row.trajectory_id} · {row.idx}",
            _texts(row, words, judges),
            _values(row),
            _drop(row.drop),
            _label(row),
            [_vote(judges.get(judge, f"judge {judge}"), *counts) for judge, counts in row.votes.items()]
            or None,
            _people(row) or None,
            _solution(row),
        ),
    )


def _texts(row: FoundChunk, words: str, judges: dict[int, str]) -> list[Excerpt]:
    """Where the words were found; without a search, or where only the problem has them, the chunk itself."""
    found = []
    if not any(hit.place == "chunk" for hit in row.hits):
        line = " ".join(visible(row.text[: 4 * EXCERPT]).split())
        found.append(Excerpt([(line if len(line) <= EXCERPT else line[: EXCERPT - 1] + "…", False)]))
    for hit in row.hits:
        by = (
            judges.get(int(hit.by), hit.by)
            if hit.place == "rationale"
            else visible(hit.by.partition(" @ ")[0])
        )
        place = {"rationale": f"{by} judged:", "comment": f"{by} commented:", "problem": "problem:"}
        found.append(marked(hit.text, words, place.get(hit.place, "")))
    return found


def _values(row: FoundChunk) -> str | None:
    sides = ((row.q_before, row.stopped_before), (row.q_after, row.stopped_after))
    if all(q is None and stopped is None for q, stopped in sides):
        return None
    return " → ".join(_value(q, stopped) for q, stopped in sides)


def _value(q: float | None, stopped: Drawn | None) -> str:
    """A stopped value has no point: successes, draws, and how many there would be in all."""
    if q is not None:
        return f"{q:.2f}"
    return "?" if stopped is None else "{}/{} of {}".format(*stopped)


def _drop(drop: float | None) -> str | None:
    if drop is None:
        return None
    return f"−{drop:.2f}" if drop > 0 else f"+{-drop:.2f}" if drop < 0 else "0"


def _label(row: FoundChunk) -> list[Chip] | None:
    if row.label is None:
        return None
    sure = "" if row.confidence is None else f" {row.confidence:.0%}"
    return [Chip(f"{'+' if row.label == '+' else '−'}{sure}", "good" if row.label == "+" else "bad")]


def _vote(name: str, positive: int, negative: int, total: int) -> Chip:
    tone = "good" if positive > negative else "bad" if negative > positive else "quiet"
    sign = {"good": "✓", "bad": "✗", "quiet": "="}[tone]
    return Chip(
        f"{sign} {positive}/{total} {name}",
        "good" if tone == "good" else "bad" if tone == "bad" else "quiet",
        f"{name}: {positive} positive, {negative} negative, {total - positive - negative} without a verdict",
    )


def _people(row: FoundChunk) -> list[Chip]:
    found = []
    if row.disputed:
        found.append(Chip("≠ disputed", "warn", f"{row.plus} say +, {row.minus} say −"))
    elif row.people:
        n = row.plus if row.people == "+" else row.minus
        how = "decided" if row.adjudicated else f"{n} said so"
        found.append(
            Chip("+ sound" if row.people == "+" else "− error", "good" if row.people == "+" else "bad", how)
        )
    elif row.abstained:
        found.append(Chip("0 abstained", "quiet"))
    if row.flag:
        found.append(Chip("⚑ bad problem" if row.flag == "bad-problem" else "⚑ flagged", "warn"))
    return found


def _solution(row: FoundChunk) -> list[Chip]:
    colour, _, said = OUTCOMES.get(row.outcome, ("gray", "", row.outcome))
    return [Chip(said, TONES[colour]), Chip(visible(row.policy)[:40], "quiet", visible(row.dataset))]
