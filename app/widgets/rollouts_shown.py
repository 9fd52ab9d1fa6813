"""The rollouts after a chunk, by outcome and answer; the open one beside what the solution itself went on with.

Only the one rollout that is open is sent to the browser. Not here: values and labels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import streamlit as st

from app.widgets.address import change
from app.widgets.chips import chip, outcome_chip
from app.widgets.compared import show_compared
from app.widgets.keys import key_hint
from app.widgets.safe_text import code, escape_line, show_text
from app.widgets.value_words import describe, stopped_words
from db.reads_trajectory import RolloutView, RolloutWhole
from engine.parting import compare, pieces
from engine.values import Value

MOST_GROUPS = 12
MOST_DRAWS = 48
NEXT = "rollout-next"
"""Key of the button that opens the next rollout."""
_ORDER = ("correct", "wrong", "unparsed", "truncated", "error")


def grouped(rollouts: Sequence[RolloutView]) -> list[tuple[tuple[str, str | None], list[RolloutView]]]:
    """By (outcome, answer): correct ones first, then the other outcomes, the most frequent answer of each first."""
    groups: dict[tuple[str, str | None], list[RolloutView]] = defaultdict(list)
    for rollout in rollouts:
        groups[rollout.outcome, rollout.answer].append(rollout)
    return sorted(groups.items(), key=lambda item: (_ORDER.index(item[0][0]), -len(item[1])))


def show_rollouts(
    rollouts: Sequence[RolloutView],
    value: Value,
    where: tuple[int, int],
    opened: int | None,
    read: Callable[[int], RolloutWhole | None],
    own: Callable[[], list[str]],
    cutter: str,
    *,
    raw: bool,
    ungraded: bool = False,
) -> None:
    """Rollouts of the prefix after a chunk. ``where``: (trajectory, chunk); ``opened``: an id; ``ungraded``: here a
    finished solution ends whose grading failed.

    ``read`` gives a rollout whole by its id, ``own`` the pieces that the solution itself went on with; both are
    called only where one is open.
    """
    if not rollouts and ungraded:
        st.caption(
            "The solution ends here, and grading its answer failed: it has no value. A finished solution is not rolled out."
        )
    elif not rollouts:
        _no_rollouts(value)
    groups = grouped(rollouts)
    for place, ((outcome, answer), drawn) in enumerate(groups[:MOST_GROUPS]):
        _show_group(place, outcome, answer, drawn, where, opened)
    rest = sum(len(drawn) for _, drawn in groups[MOST_GROUPS:])
    if rest:
        st.caption(f"… and {rest} more with {len(groups) - MOST_GROUPS} other answers.")
    if rollouts and len(rollouts) < value.n + value.errors:
        st.caption(f"The first {len(rollouts)} of {value.n + value.errors} rollouts are listed.")
    if rollouts and value.left:
        words = stopped_words(value)
        st.caption(f":material/hourglass_disabled: {words[:1].upper()}{words[1:]}.")
    if opened is None:
        return
    row = next((r for r in rollouts if r.id == opened), None)
    whole = read(row.id) if row else None
    if whole is None:
        st.error(f"There is no rollout {opened} after chunk {where[1]} of trajectory {where[0]}.")
        return
    with st.container(border=True, gap="xsmall", key="open-rollout"):
        _show_open(whole, where, own, cutter, raw=raw)


def next_rollout(rollouts: Sequence[RolloutView], opened: int | None, where: tuple[int, int]) -> None:
    """The button that opens the rollouts one after another, in the order in which they are listed."""
    ids = [rollout.id for _, drawn in grouped(rollouts) for rollout in drawn]
    after = ids[(ids.index(opened) + 1) % len(ids)] if opened in ids else ids[0]
    st.button(
        f"Next rollout {key_hint('rollout-next')}",
        key=NEXT,
        type="tertiary",
        on_click=lambda: change(chunk=str(where[1]), rollout=str(after)),
    )


def _show_open(
    whole: RolloutWhole, where: tuple[int, int], own: Callable[[], list[str]], cutter: str, *, raw: bool
) -> None:
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(
            f"**Rollout {whole.id}** {outcome_chip(whole.outcome)} :small[:gray[draw {whole.draw}, "
            f"{whole.n_tokens} tokens, seed {whole.seed}, ended by {escape_line(whole.finish_reason)}]]"
        )
        st.button(
            "Close",
            key="rollout-close",
            icon=":material/close:",
            type="tertiary",
            on_click=lambda: change(rollout=None),
        )
    if whole.note:
        st.caption(escape_line(whole.note, limit=400))
    if raw:
        show_text(whole.text, raw=True)
        return
    first = where[1] + 1
    show_compared(
        compare(own(), pieces(whole.text, cutter)),
        lambda i: chip("gray", "timeline", f"solution {first + i}"),
        lambda i: chip("blue", "alt_route", f"rollout {first + i}"),
        raw=raw,
    )


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
        picked = st.session_state[key]
        change(chunk=str(where[1]), rollout=None if picked is None else str(picked))

    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        said = code(answer) if answer is not None else ""
        st.markdown(f"{outcome_chip(outcome)} **{len(drawn)} ×** {said}")
        st.pills(
            "Read a rollout",
            list(draws)[:MOST_DRAWS],
            format_func=lambda rollout_id: f"{draws.get(rollout_id, '?')}",
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
        st.caption(
            "None: this prefix was never rolled out, so it has no value (that is not a value of 0). A rollout run shows "
            "how often the policy still reaches the answer from here."
        )
