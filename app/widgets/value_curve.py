"""The Q curve of a trajectory: value at prefix 0..H with intervals, biggest drop marked, one chunk selected.

Point k is the value after chunk k - 1 (point 0: the bare problem), so the chunk between points k and k + 1 is chunk
k, and a click on a point selects the chunk that led to it. Not here: where the values come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go

from engine.values import Value

BELOW = -0.13
"""Height at which a point without a value is drawn, hollow, so that it can still be clicked."""
_WIDEST_MARKED = 60
"""With more points than this, markers shrink and intervals lose their end caps."""


@dataclass(frozen=True)
class Palette:
    ink: str
    line: str
    bar: str
    good: str
    bad: str
    band: str
    grid: str
    paper: str


LIGHT = Palette(
    ink="#4a5058",
    line="#2f5d8c",
    bar="rgba(47,93,140,0.38)",
    good="#0b7a5c",
    bad="#c1440e",
    band="rgba(47,93,140,0.10)",
    grid="#e6e6e0",
    paper="#fcfcfa",
)
DARK = Palette(
    ink="#b7bdc5",
    line="#7fb0e0",
    bar="rgba(127,176,224,0.42)",
    good="#3fb68f",
    bad="#ef8354",
    band="rgba(127,176,224,0.15)",
    grid="#2b3037",
    paper="#15181c",
)


def biggest_drop(values: Sequence[Value]) -> tuple[int, float] | None:
    """(chunk, how much Q fell there) of the largest fall between two known neighbours; None where none falls."""
    falls = [
        (float(before.q - after.q), -chunk)
        for chunk, (before, after) in enumerate(pairwise(values))
        if before.q is not None and after.q is not None and after.q < before.q
    ]
    if not falls:
        return None
    fall, chunk = max(falls)
    return -chunk, fall


def describe(value: Value) -> str:
    """A value in words: "13 of 16 correct = 0.81, 95 % interval 0.58 to 0.94"."""
    if value.exact is not None:
        return f"graded {'correct' if value.exact else 'wrong'}: Q is exactly {int(value.exact)}"
    if value.q is None:
        failed = f" ({value.errors} of {value.n + value.errors} not graded)" if value.errors else ""
        return f"value unknown{failed}"
    low, high = value.interval()
    return f"{value.successes} of {value.n} correct = {float(value.q):.2f}, 95 % interval {low:.2f} to {high:.2f}"


def summary(values: Sequence[Value]) -> str:
    """The curve in one sentence, for screen readers."""
    known = sum(value.known for value in values)
    drop = biggest_drop(values)
    fall = f" The biggest drop is {drop[1]:.2f} at chunk {drop[0]}." if drop else ""
    return (
        f"Chance of success before the first and after each of {len(values) - 1} chunks, {known} known.{fall}"
    )


def value_figure(
    values: Sequence[Value], labels: Sequence[str | None], selected: int | None, *, dark: bool
) -> go.Figure:
    """The figure. ``values``: H + 1 of them; ``labels``: each chunk's ``+``, ``-`` or None; ``selected``: a chunk."""
    palette = DARK if dark else LIGHT
    figure = go.Figure()
    if selected is not None:
        wider = max(0.0, 0.003 * len(values) - 0.5)  # still to be seen among hundreds of chunks
        figure.add_vrect(
            selected - wider, selected + 1 + wider, fillcolor=palette.band, line_width=0, layer="below"
        )
    figure.add_trace(_line(values, palette))
    drop = biggest_drop(values)
    if drop:
        figure.add_trace(_drop_line(values, drop[0], palette))
        figure.add_annotation(_drop_note(values, drop, palette))
    for known in (False, True):
        where = [k for k, value in enumerate(values) if value.known is known]
        if where:
            figure.add_trace(_points(where, values, labels, selected, palette))
    figure.update_layout(_layout(len(values), palette))
    return figure


def _line(values: Sequence[Value], palette: Palette) -> go.Scatter:
    return go.Scatter(
        x=list(range(len(values))),
        y=[None if value.q is None else float(value.q) for value in values],
        mode="lines",
        line={"color": palette.line, "width": 2},
        hoverinfo="skip",
        connectgaps=False,
    )


def _drop_line(values: Sequence[Value], chunk: int, palette: Palette) -> go.Scatter:
    return go.Scatter(
        x=[chunk, chunk + 1],
        y=[_height(values[chunk]), _height(values[chunk + 1])],
        mode="lines",
        line={"color": palette.bad, "width": 4},
        hoverinfo="skip",
    )


def _drop_note(values: Sequence[Value], drop: tuple[int, float], palette: Palette) -> go.layout.Annotation:
    chunk, fall = drop
    return go.layout.Annotation(
        x=chunk + 0.5,
        y=(_height(values[chunk]) + _height(values[chunk + 1])) / 2,
        text=f"<b>−{fall:.2f}</b> at chunk {chunk}",
        showarrow=False,
        xanchor="right" if chunk > 0.7 * (len(values) - 1) else "left",
        xshift=-8 if chunk > 0.7 * (len(values) - 1) else 8,
        yshift=10,
        font={"color": palette.bad, "size": 13},
        bgcolor=palette.paper,
        opacity=0.92,
        borderpad=2,
    )


def _points(
    where: Sequence[int],
    values: Sequence[Value],
    labels: Sequence[str | None],
    selected: int | None,
    palette: Palette,
) -> go.Scatter:
    """The markers of the prefixes ``where``, all of known value or all unknown; only a known one has an interval."""
    chosen = None if selected is None else selected + 1
    size = 10 if len(values) <= _WIDEST_MARKED else 6 if len(values) <= 4 * _WIDEST_MARKED else 4
    signs = [labels[k - 1] if k else None for k in where]
    shown = [values[k] for k in where]
    return go.Scatter(
        x=list(where),
        y=[_height(value) for value in shown],
        mode="markers",
        marker={
            "symbol": [_symbol(value, sign) for value, sign in zip(shown, signs, strict=True)],
            "size": [size + 5 if k == chosen else size for k in where],
            "color": [_colour(value, sign, palette) for value, sign in zip(shown, signs, strict=True)],
            "line": {"width": [2.5 if k == chosen else 1 for k in where], "color": palette.paper},
            "opacity": 1,
        },
        selected={"marker": {"opacity": 1}},
        unselected={"marker": {"opacity": 1}},
        error_y=_bars(shown, len(values) > _WIDEST_MARKED, palette) if all(v.known for v in shown) else None,
        text=[_hover(k, value, sign) for k, value, sign in zip(where, shown, signs, strict=True)],
        hovertemplate="%{text}<extra></extra>",
    )


def _bars(values: Sequence[Value], many: bool, palette: Palette) -> dict[str, Any]:
    ends = [value.interval() for value in values]
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - _height(value) for value, (_, high) in zip(values, ends, strict=True)],
        "arrayminus": [_height(value) - low for value, (low, _) in zip(values, ends, strict=True)],
        "color": palette.bar,
        "thickness": 1.2 if many else 1.6,
        "width": 0 if many else 5,
    }


def _height(value: Value) -> float:
    return BELOW if value.q is None else float(value.q)


def _symbol(value: Value, sign: str | None) -> str:
    """Shape says what colour says: a triangle down for ``-``, a diamond where exact, hollow where unknown."""
    if not value.known:
        return "circle-open"
    if value.exact is not None:
        return "diamond"
    return "triangle-down" if sign == "-" else "circle"


def _colour(value: Value, sign: str | None, palette: Palette) -> str:
    if not value.known:
        return palette.ink
    return {"+": palette.good, "-": palette.bad}.get(sign or "", palette.line)


def _hover(k: int, value: Value, sign: str | None) -> str:
    where = f"after chunk {k - 1}" if k else "before the first chunk"
    label = {"+": "<br>label + (rel-ratio)", "-": "<br>label − (rel-ratio)"}.get(sign or "", "")
    return f"<b>{where}</b><br>{describe(value)}{label}"


def _layout(n_points: int, palette: Palette) -> go.Layout:
    every = max(1, (n_points - 1) // 12)
    ticks = [0, *range(every, n_points, every)]
    margin = max(0.35, 0.012 * n_points)
    return go.Layout(
        height=250,
        margin={"l": 34, "r": 10, "t": 8, "b": 38},
        showlegend=False,
        hovermode="x",
        hoverdistance=-1,
        dragmode=False,
        clickmode="event+select",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": palette.ink, "size": 12},
        hoverlabel={"align": "left"},
        xaxis={
            "range": [-margin, n_points - 1 + margin],
            "tickvals": ticks,
            "ticktext": ["start", *(str(k - 1) for k in ticks[1:])],
            "title": {"text": "after chunk", "standoff": 6},
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
        },
        yaxis={
            "range": [BELOW - 0.06, 1.1],
            "tickvals": [0, 0.25, 0.5, 0.75, 1],
            "ticktext": ["0", "", "½", "", "1"],
            "gridcolor": palette.grid,
            "zeroline": False,
            "fixedrange": True,
        },
    )
