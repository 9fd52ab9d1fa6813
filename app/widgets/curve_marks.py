"""Rows of marks beneath the Q curve: what each rule, each judge and people say of each chunk.

A plus and a minus are drawn as such, so that no colour need be told apart; a ring is a label that the parameters
flipped. Not here: the curve above (``value_curve.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from app.widgets.palette import Palette
from app.widgets.safe_text import plot_text

ROW_PX = 19
MOST_JUDGES = 4
_MANY = 70
"""With more chunks than this a mark is a stroke: a short one for +, a long one for −."""
Mark = str | None
"""``+``, ``-``, ``x`` (people disagree), ``0`` (said, but neither), None (nothing said)."""
WORDS = {"+": "+", "-": "−", "x": "people disagree: no label", "0": "neither + nor −", None: "nothing"}


@dataclass(frozen=True)
class MarkRow:
    """``name`` may be a judge's: untrusted. ``marks``: one a chunk. ``shown``: the rule that colours the curve.

    ``flipped``: chunks whose mark is not what the usual parameters give.
    """

    name: str
    marks: Sequence[Mark]
    shown: bool = False
    flipped: frozenset[int] = frozenset()


def label_row(
    name: str, labels: Sequence[str | None], usual: Sequence[str | None], *, shown: bool
) -> MarkRow:
    """A rule's row; ``usual``: its labels at the usual parameters."""
    flipped = frozenset(i for i, (now, was) in enumerate(zip(labels, usual, strict=True)) if now != was)
    return MarkRow(name, labels, shown, flipped)


def judge_rows(
    votes: Mapping[int, Mapping[str, tuple[int, int, int]]], chunk_ids: Sequence[int]
) -> tuple[list[MarkRow], int]:
    """A row for each of the first judges, and how many more there are. ``votes``: {chunk id: {judge: counts}}."""
    names = list(dict.fromkeys(name for by_judge in votes.values() for name in by_judge))
    rows = []
    for name in names[:MOST_JUDGES]:
        counts = [votes.get(chunk_id, {}).get(name) for chunk_id in chunk_ids]
        rows.append(MarkRow(name, [None if c is None else majority_mark(*c) for c in counts]))
    return rows, max(0, len(names) - MOST_JUDGES)


def majority_mark(positive: int, negative: int, _none: int) -> Mark:
    return "+" if positive > negative else "-" if negative > positive else "0"


def people_mark(verdicts: Sequence[int | None], adjudication: int | None, decided: bool) -> Mark:
    """What people's reviews of a chunk come to; ``decided``: an owner's ``adjudication`` counts instead."""
    if decided:
        return "+" if adjudication == 1 else "-" if adjudication == -1 else "0"
    signs = {verdict for verdict in verdicts if verdict}
    if len(signs) > 1:
        return "x"
    return ("+" if signs == {1} else "-") if signs else "0" if verdicts else None


def add_rows(figure: go.Figure, rows: Sequence[MarkRow], palette: Palette) -> None:
    """Draw the rows on the figure's second y axis, the first one topmost; chunk k stands at k + ½."""
    for height, row in enumerate(reversed(rows)):
        places = [chunk for chunk, mark in enumerate(row.marks) if mark is not None]
        if not places:
            places = [0]
        marks = [row.marks[chunk] for chunk in places]
        figure.add_trace(_row(row, places, marks, height, len(row.marks), palette))
        if row.flipped:
            figure.add_trace(_rings(row, height, len(row.marks), palette))


def tick_texts(rows: Sequence[MarkRow], longest: int) -> list[str]:
    """Names for the second y axis, bottom to top, as Plotly text."""
    names = [plot_text(row.name, limit=longest) for row in reversed(rows)]
    return [f"<b>{name}</b>" if row.shown else name for name, row in zip(names, reversed(rows), strict=True)]


def _row(
    row: MarkRow, places: Sequence[int], marks: Sequence[Mark], height: int, n_chunks: int, palette: Palette
) -> go.Scatter:
    many = n_chunks > _MANY
    colours = {"+": palette.good, "-": palette.bad, "x": palette.warn}
    own = [colours.get(mark or "", palette.ink) for mark in marks]
    return go.Scatter(
        x=[chunk + 0.5 for chunk in places],
        y=[height] * len(places),
        yaxis="y2",
        mode="markers",
        marker={
            "symbol": [_symbol(mark, many) for mark in marks],
            "size": [_size(mark, many) for mark in marks],
            "color": own,
            "line": {"width": 1.4 if many else 2.4, "color": own},
            "opacity": [0 if mark is None else 1 for mark in marks],
        },
        selected={"marker": {"opacity": 1}},
        unselected={"marker": {"opacity": 1}},
        customdata=[f"chunk {chunk}: {WORDS[mark]}" for chunk, mark in zip(places, marks, strict=True)],
        hovertemplate=f"{plot_text(row.name)}<br>%{{customdata}}<extra></extra>",
    )


def _symbol(mark: Mark, many: bool) -> str:
    if many:
        return "line-ns"
    return {"+": "cross-thin", "-": "line-ew", "x": "x-thin"}.get(mark or "", "circle-open-dot")


def _size(mark: Mark, many: bool) -> float:
    if many:
        return {"+": 4, "-": 11, "x": 11}.get(mark or "", 2)
    return {"+": 9, "-": 9, "x": 8}.get(mark or "", 4)


def _rings(row: MarkRow, height: int, n_chunks: int, palette: Palette) -> go.Scatter:
    places = sorted(row.flipped)
    return go.Scatter(
        x=[chunk + 0.5 for chunk in places],
        y=[height] * len(places),
        yaxis="y2",
        mode="markers",
        marker={
            "symbol": "circle-open",
            "size": 17 if n_chunks <= _MANY else 9,
            "color": palette.warn,
            "line": {"width": 1.6},
        },
        hoverinfo="skip",
    )
