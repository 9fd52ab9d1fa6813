"""Chunks on which people disagree: who said what and why, and an owner's decision. Until then they have no label.

``/adjudication?chunk=…&queue=…`` restores the view. Not: the form (review_form), how a label follows (engine.labels).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from app.widgets.access import actor, get_store
from app.widgets.address import parameters
from app.widgets.card import action_id, fresh, say, show_message, used
from app.widgets.chips import label_chip, review_chip, verdict_chip
from app.widgets.chrome import reviewing_as
from app.widgets.empty import empty_state, no_such
from app.widgets.here import go_here, here_button
from app.widgets.keys import bindings, key_hint, press_keys
from app.widgets.review_card import in_force, said, show_history, show_reasons
from app.widgets.review_form import VERDICTS, Card, ask, focus_wanted, given, keep_draft
from app.widgets.rows import Chip, Column, Row, row_table
from app.widgets.safe_text import escape_line, raw_toggle, show_text, visible
from app.widgets.when import ago
from db.disputes import Dispute
from db.errors import NotFoundError, StoreError
from db.reads_trajectory import ChunkView, TrajectoryView
from db.reviews_store import HistoryRow
from engine.labels import Label

KNOWN = ("chunk", "queue")
COUNTED = 1000
LISTED = 20
BEFORE = 3
"""Chunks before the disputed one that are shown; the others are one press away."""
DECISIONS = VERDICTS[:3]
"""An adjudicator decides; "cannot tell" would leave the chunk as it is."""
COLUMNS = (
    Column("Chunk", "link"),
    Column("What it says", "text", "wide"),
    Column("Said", "chips"),
)


@dataclass(frozen=True)
class Opened:
    """The chunk on the page. ``history``: everything that people said of it, oldest first."""

    view: TrajectoryView
    chunk: ChunkView
    history: Sequence[HistoryRow]
    label: Label | None
    source: str
    disputed: bool

    @property
    def last(self) -> int:
        """The newest row of its history; 0: there is none."""
        return self.history[-1].review.id if self.history else 0


def page() -> None:
    """The page, from its address."""
    st.title("Adjudication", anchor=False)
    queue, chunk, wrong = _asked()
    if wrong:
        for one in wrong:
            st.error(one, icon=":material/link_off:")
        here_button("All disagreements", {}, key="all", icon=":material/undo:")
        return
    keys = bindings()
    _scope(queue)
    targets = _undo_bar(queue, keys)
    if chunk is None:
        first = get_store().disputes(queue_id=queue, limit=1)
        if not first:
            _nothing(queue)
            press_keys(targets, key="adjudication-keys", keys=keys)
            return
        chunk = first[0].chunk_id
    opened = _read(chunk)
    if opened is None:
        no_such("chunk", str(chunk))
        here_button("All disagreements", _here(queue), key="all", icon=":material/undo:")
        return
    _show(opened, queue, keys, targets)


def _asked() -> tuple[int | None, int | None, list[str]]:
    """(queue, chunk, what is wrong with the address)."""
    query, wrong, numbers = st.query_params, [], {}
    for name in query:
        if name not in KNOWN:
            wrong.append(f"{escape_line(name, limit=40)}=…: this page knows {' and '.join(KNOWN)}")
    for name in KNOWN:
        text = query.get(name)
        if text is None:
            continue
        if text.isascii() and text.isdigit() and len(text) <= 18:
            numbers[name] = int(text)
        else:
            wrong.append(f"{name}={escape_line(text, limit=60)}: a whole number was expected")
    if "queue" in numbers and numbers["queue"] not in {queue.id for queue in get_store().queues()}:
        wrong.append(f"queue={numbers['queue']}: there is no such queue in this store")
    return numbers.get("queue"), numbers.get("chunk"), wrong


def _here(queue: int | None, chunk: int | None = None) -> dict[str, str]:
    given = {"queue": queue, "chunk": chunk}
    return {name: str(value) for name, value in given.items() if value is not None}


def _scope(queue: int | None) -> None:
    """Whose disagreements, and how many there are."""
    store = get_store()
    names = {"": "all chunks"} | {str(one.id): one.name for one in store.queues()}
    count = store.count_disputes(queue_id=queue, stop=COUNTED)
    number = f"{COUNTED:,}+" if count > COUNTED else f"{count:,}"
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if len(names) > 1:
            st.session_state["adjudication-queue"] = "" if queue is None else str(queue)
            st.selectbox(
                "Queue",
                list(names),
                format_func=lambda key: visible(names[key]),
                key="adjudication-queue",
                on_change=lambda: go_here(_only("queue", st.session_state["adjudication-queue"])),
                width=260,
            )
        noun = "chunk" if count == 1 else "chunks"
        st.markdown(f"**{number}** {noun} on which people disagree and nobody has decided")


def _only(name: str, value: str) -> dict[str, str]:
    return {name: value} if value else {}


def _nothing(queue: int | None) -> None:
    where = " in this queue" if queue is not None else ""
    empty_state(
        f"People disagree on no chunk{where}",
        "Where two reviewers say + and − of one chunk, it comes here and has no label until an owner decides.",
        icon=":material/handshake:",
        page="views/judges.py",
        label="Agreement",
        query={"view": "agreement"},
    )


def _read(chunk_id: int) -> Opened | None:
    store = get_store()
    try:
        trajectory_id, idx = store.chunk_place(chunk_id)
    except NotFoundError:
        return None
    view = store.trajectory_view(trajectory_id)
    assert view is not None, "a chunk has a trajectory"
    (chunk,) = store.chunk_page(trajectory_id, idx, 1)
    history = store.history(chunk_id)
    rule = chunk.label.rel_ratio if chunk.label else None
    label, source = in_force(history, rule if rule in ("+", "-") else None)  # type: ignore[arg-type]
    verdicts = {row.verdict for row in said(history)}
    decided = any(row.kind == "adjudication" for row in said(history))
    return Opened(view, chunk, history, label, source, {1, -1} <= verdicts and not decided)


# ---- the chunk


def _show(opened: Opened, queue: int | None, keys: Mapping[str, str], targets: dict[str, str]) -> None:
    view, chunk = opened.view, opened.chunk
    left, right = st.columns([6, 5], gap="medium")
    with left:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**Chunk {chunk.idx}** of {view.n_chunks} of trajectory {view.id}")
            st.page_link(
                "views/trajectory.py",
                label="On its page",
                icon=":material/timeline:",
                query_params=parameters(view.id, chunk.idx),
            )
            raw = raw_toggle()
        _solution(opened, raw)
    with right:
        st.markdown(f"In force: {label_chip(opened.label)} :small[{opened.source}]")
        _who_said_what(opened)
        targets = targets | _decide(opened, queue, keys)
        if opened.history:
            with st.expander("History", expanded=not opened.disputed):
                show_history(opened.history, chunk.text)
        _others(opened)
        reviewing_as()
    targets |= _steps(chunk.id, queue, keys)
    press_keys(
        targets,
        key="adjudication-keys",
        card=action_id(_what(chunk.id)),
        keys=keys,
        focus=focus_wanted(),
    )
    _list(chunk.id, queue)


def _solution(opened: Opened, raw: bool) -> None:
    """The problem, the chunks before, the disputed one in a frame."""
    view, idx = opened.view, opened.chunk.idx
    with st.container(border=True, gap="xsmall"):
        st.caption("Problem")
        show_text(view.problem, raw=raw)
    first = max(0, idx - BEFORE)
    if first:
        with st.expander(f"Chunks 0 to {first - 1}"):
            for chunk in get_store().chunk_page(view.id, max(0, first - 50), min(first, 50)):
                show_text(f"{chunk.text}", raw=raw)
    for chunk in get_store().chunk_page(view.id, first, idx - first):
        with st.container(gap="xxsmall"):
            st.caption(f"Chunk {chunk.idx}")
            show_text(chunk.text, raw=raw)
    with st.container(border=True, gap="xsmall", key="disputed-chunk"):
        st.caption(f":material/arrow_right: Chunk {idx}: is there an error in it?")
        show_text(opened.chunk.text, raw=raw)


def _who_said_what(opened: Opened) -> None:
    rows = said(opened.history)
    if not rows:
        st.caption("Nobody's review of this chunk is in force, or it is not to be seen by you now.")
        return
    for row in rows:
        does = "decided" if row.kind == "adjudication" else "said"
        with st.container(border=True, gap="xxsmall"):
            st.markdown(
                f"**{escape_line(row.actor, limit=60)}** {does} {review_chip(row.verdict)} "
                f":small[:gray[{ago(row.created_at)}]]"
            )
            show_reasons(row, opened.chunk.text)
            if not (row.comment or row.correction or row.flag or row.span_start is not None):
                st.caption("without a reason")


def _others(opened: Opened) -> None:
    """What the rule and the judges say, folded away: a decision is a person's."""
    votes = get_store().votes_of(opened.view.id).get(opened.chunk.id, {})
    rule = opened.chunk.label.rel_ratio if opened.chunk.label else None
    with st.expander("What the rule and the judges say"):
        st.markdown(label_chip(rule, "rel-ratio"))
        for name, (positive, negative, none) in votes.items():
            verdict = "positive" if positive > negative else "negative" if negative > positive else None
            tally = f"{positive} + / {negative} −" + (f" / {none} none" if none else "")
            st.markdown(f"{escape_line(name, limit=60)} {verdict_chip(verdict, tally)}")
        if not votes:
            st.caption("No judge has read it.")


# ---- the decision


def _what(chunk_id: int) -> object:
    return ("adjudication", chunk_id)


def _decide(opened: Opened, queue: int | None, keys: Mapping[str, str]) -> dict[str, str]:
    """The form, for an owner. Returns the keys' targets."""
    store, me, chunk = get_store(), actor(), opened.chunk
    if store.role(me) != "owner":
        st.info("An owner decides. Owners give roles on the People page.", icon=":material/lock:")
        return {}
    head = store.chain_head(chunk.id, me)
    supersedes, last, what = (head.id if head else None), opened.last, _what(chunk.id)

    def submit(card: Card, verdict: int | None) -> None:
        _submit(card, verdict, supersedes, last, queue)

    with st.container(border=True, gap="xsmall", key="decision"):
        st.markdown(
            "**Decide**" if opened.disputed else "**Decide**, though nobody disagrees or it was decided"
        )
        show_message()
        card = Card(what, action_id(what), chunk.id, chunk.text, None)
        return ask(card, DECISIONS, submit, keys, primary=opened.disputed)


def _submit(card: Card, verdict: int | None, supersedes: int | None, last: int, queue: int | None) -> None:
    """Callback: store the decision and go to the next disagreement; refused where somebody spoke since it was drawn."""
    if not fresh(card.what, card.action_id):
        return
    store, me = get_store(), actor()
    comment, details = given(card)
    try:
        now = store.history(card.chunk_id)
        if now and now[-1].review.id != last:
            keep_draft(card)
            say("Nothing was stored: somebody spoke about this chunk since you opened it. Look again.")
            used(card.action_id)
            return
        store.add_review(
            card.chunk_id,
            card.action_id,
            me,
            verdict,
            comment,
            supersedes=supersedes,
            kind="adjudication",
            details=details,
        )
        go_here(_here(queue, _next(card.chunk_id, queue)))
    except StoreError as error:
        keep_draft(card)
        say(f"Nothing was stored: {error}")
    used(card.action_id)


def _next(chunk_id: int, queue: int | None) -> int | None:
    """The disagreement after this chunk, else the first; None: there is none."""
    store = get_store()
    rows = store.disputes(queue_id=queue, after=chunk_id, limit=1) or store.disputes(queue_id=queue, limit=1)
    return rows[0].chunk_id if rows else None


def _undo_bar(queue: int | None, keys: Mapping[str, str]) -> dict[str, str]:
    """One's last decision and the way to take it back, after a reload too. Returns the key's target."""
    store, me = get_store(), actor()
    last = store.last_review(me)
    if last is None or last.kind != "adjudication":
        return {}
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(
            f":small[You decided chunk {last.chunk_id}:] {review_chip(last.verdict)} :small[{ago(last.created_at)}]"
        )
        st.button(
            f"Undo {key_hint('undo', keys)}",
            key="adjudication-undo",
            icon=":material/undo:",
            type="tertiary",
            on_click=_undo,
            args=(last.id, last.chunk_id, queue),
        )
    return {"undo": "adjudication-undo"}


def _undo(review_id: int, chunk_id: int, queue: int | None) -> None:
    """Callback: take back the decision and open its chunk again. The id makes a second press the same action."""
    try:
        get_store().undo(f"undo-adjudication-{review_id}", actor(), chunk_id)
        go_here(_here(queue, chunk_id))
    except StoreError as error:
        say(f"Nothing was taken back: {error}")


# ---- from one to another


def _steps(chunk_id: int, queue: int | None, keys: Mapping[str, str]) -> dict[str, str]:
    store = get_store()
    before = store.disputes(queue_id=queue, before=chunk_id, limit=1)
    after = store.disputes(queue_id=queue, after=chunk_id, limit=1)
    with st.container(horizontal=True, horizontal_alignment="center"):
        for key, label, rows, icon in (
            ("previous", "Previous", before, "chevron_left"),
            ("next", "Next", after, "chevron_right"),
        ):
            here_button(
                f"{label} {key_hint(key, keys)}",
                _here(queue, rows[0].chunk_id) if rows else {},
                key=f"adjudication-{key}",
                icon=f":material/{icon}:",
                icon_position="left" if key == "previous" else "right",
                disabled=not rows,
            )
    return {key: f"adjudication-{key}" for key in ("previous", "next")}


def _list(chunk_id: int, queue: int | None) -> None:
    """The disagreements from this one on."""
    rows = get_store().disputes(queue_id=queue, after=chunk_id, limit=LISTED)
    if rows:
        st.markdown("**Next**")
        row_table(COLUMNS, [_row(row, queue) for row in rows], label="Disagreements", key="adjudication-list")


def _row(row: Dispute, queue: int | None) -> Row:
    address = "&".join(f"{name}={value}" for name, value in _here(queue, row.chunk_id).items())
    chips = [Chip(f"{row.plus} +", "good"), Chip(f"{row.minus} −", "bad")]
    if row.abstained:
        chips.append(Chip(f"{row.abstained} abstain"))
    return Row(
        id=str(row.chunk_id),
        href=f"/adjudication?{address}",
        label=f"Chunk {row.idx} of trajectory {row.trajectory_id}",
        cells=(f"#{row.trajectory_id} · chunk {row.idx}", " ".join(visible(row.text).split()), chips),
    )


if __name__ == "__main__":
    page()
