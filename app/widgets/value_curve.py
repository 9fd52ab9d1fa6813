"""The Q curve of a trajectory: value at prefix 0..H with its interval band, biggest drop, one chunk selected.

Point k is the value after chunk k - 1 (point 0: the bare problem), so that chunk k lies between the points k and
k + 1 and is named there; a click on a point selects the chunk that led to it, one on a mark its chunk. Not here: where
the values come from, and the rows of marks beneath (``curve_marks.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

from app.widgets.curve_marks import ROW_PX, MarkRow, add_rows, tick_texts
from app.widgets.palette import DARK, LIGHT, Palette
from app.widgets.value_words import describe
from engine.values import Value

BELOW = -0.13
"""Height at which a point without a value is drawn, hollow, so that it can still be clicked."""
_WIDEST_MARKED = 60
"""With more points than this, markers shrink and intervals lose their end caps."""
_CURVE_PX, _TOP_PX, _GAP_PX, _BOTTOM_PX = 200, 8, 10, 38
_LONGEST_NAME = 13
_HOVER_WIDTH = 64


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


def summary(values: Sequence[Value]) -> str:
    """The curve in one sentence, for screen readers."""
    known, stopped = sum(value.known for value in values), sum(value.left > 0 for value in values)
    drop = biggest_drop(values)
    fall = f" The biggest drop is {drop[1]:.2f} at chunk {drop[0]}." if drop else ""
    said = f"{known} known" + (f", {stopped} stopped early and drawn hollow" if stopped else "")
    return f"Chance of success before the first and after each of {len(values) - 1} chunks, {said}.{fall}"


def chunk_at(x: float) -> int:
    """The chunk that a click at ``x`` selects: marks stand at k + ½ for chunk k, points at k + 1."""
    return max(0, int(x + 0.5) - 1)


def value_figure(
    values: Sequence[Value],
    labels: Sequence[str | None],
    selected: int | None,
    *,
    dark: bool,
    rows: Sequence[MarkRow] = (),
    rule: str = "rel-ratio",
) -> go.Figure:
    """The figure. ``values``: H + 1 of them; ``labels``: each chunk's ``+``, ``-`` or None under ``rule``;
    ``selected``: a chunk; ``rows``: marks beneath, H each."""
    palette = DARK if dark else LIGHT
    figure = go.Figure()
    if selected is not None:
        wider = max(0.0, 0.003 * len(values) - 0.5)  # still to be seen among hundreds of chunks
        figure.add_shape(
            xref="x",
            yref="paper",
            x0=selected - wider,
            x1=selected + 1 + wider,
            y0=0,
            y1=1,
            fillcolor=palette.chosen,
            line_width=0,
            layer="below",
        )
    for stretch in _known_stretches(values):
        figure.add_trace(_band(stretch, values, palette))
    figure.add_trace(_line(values, palette))
    drop = biggest_drop(values)
    if drop:
        figure.add_trace(_drop_line(values, drop[0], palette))
        figure.add_annotation(_drop_note(values, drop, palette))
    if any(_is_bounded(value) for value in values):
        figure.add_trace(_intervals(values, palette))
        figure.add_trace(_bounds(values, palette))
    for known in (False, True):
        where = [k for k, value in enumerate(values) if value.known is known]
        if where:
            figure.add_trace(_points(where, values, labels, selected, palette, rule))
    add_rows(figure, rows, palette)
    figure.update_layout(_layout(len(values), rows, palette))
    return figure


def _known_stretches(values: Sequence[Value]) -> list[list[int]]:
    """Runs of neighbouring prefixes of known value, as indices."""
    runs = groupby(range(len(values)), key=lambda k: values[k].known)
    return [list(run) for known, run in runs if known]


def _band(stretch: Sequence[int], values: Sequence[Value], palette: Palette) -> go.Scatter:
    """The 95 % intervals of neighbouring prefixes as one band."""
    ends = [values[k].interval() for k in stretch]
    return go.Scatter(
        x=[*stretch, *reversed(stretch)],
        y=[*(high for _, high in ends), *(low for low, _ in reversed(ends))],
        fill="toself",
        fillcolor=palette.band,
        mode="lines",
        line={"width": 0},
        hoverinfo="skip",
        name="band",
    )


def _line(values: Sequence[Value], palette: Palette) -> go.Scatter:
    return go.Scatter(
        x=list(range(len(values))),
        y=[None if value.q is None else float(value.q) for value in values],
        mode="lines",
        line={"color": palette.line, "width": 2},
        hoverinfo="skip",
        connectgaps=False,
        name="line",
    )


def _drop_line(values: Sequence[Value], chunk: int, palette: Palette) -> go.Scatter:
    return go.Scatter(
        x=[chunk, chunk + 1],
        y=[_height(values[chunk]), _height(values[chunk + 1])],
        mode="lines",
        line={"color": palette.bad, "width": 4},
        hoverinfo="skip",
        name="drop",
    )


def _drop_note(values: Sequence[Value], drop: tuple[int, float], palette: Palette) -> go.layout.Annotation:
    """On two lines and towards the middle: so narrow, it stays inside wherever half the plot holds it (73 px)."""
    chunk, fall = drop
    late = chunk + 0.5 > (len(values) - 1) / 2
    return go.layout.Annotation(
        x=chunk + 0.5,
        y=(_height(values[chunk]) + _height(values[chunk + 1])) / 2,
        text=f"<b>−{fall:.2f}</b><br>chunk {chunk}",
        align="right" if late else "left",
        showarrow=False,
        xanchor="right" if late else "left",
        xshift=-8 if late else 8,
        yshift=-14 if late else 14,  # beneath and above a falling line it is free
        font={"color": palette.bad, "size": 13},
        bgcolor=palette.paper,
        opacity=0.92,
        borderpad=2,
    )


def _is_bounded(value: Value) -> bool:
    """Whether it has bounds and no point value: stopped early, or too much of it not graded."""
    return not value.known and value.bounds is not None


def _bounds(values: Sequence[Value], palette: Palette) -> go.Scatter:
    """Dotted strokes from the least to the greatest that a value without a point can be, with open ends."""
    x: list[float | None] = []
    y: list[float | None] = []
    for k, value in enumerate(values):
        if value.bounds is not None and not value.known:
            x += [k, k, None]
            y += [float(value.bounds[0]), float(value.bounds[1]), None]
    return go.Scatter(
        x=x,
        y=y,
        mode="lines+markers",
        line={"color": palette.ink, "width": 1.5, "dash": "dot"},
        marker={"symbol": "line-ew", "size": 9, "line": {"width": 1.5, "color": palette.ink}},
        hoverinfo="skip",
        name="bounds",
    )


def _intervals(values: Sequence[Value], palette: Palette) -> go.Scatter:
    """A hollow box a stopped value: the 95 % interval of what was drawn, with no point in it."""
    half = 0.09 if len(values) <= _WIDEST_MARKED else 0.2
    x: list[float | None] = []
    y: list[float | None] = []
    for k, value in enumerate(values):
        if value.left and value.n:
            low, high = value.interval()
            x += [k - half, k + half, k + half, k - half, k - half, None]
            y += [low, low, high, high, low, None]
    return go.Scatter(
        x=x, y=y, mode="lines", line={"color": palette.line, "width": 1.3}, hoverinfo="skip", name="intervals"
    )


def _points(
    where: Sequence[int],
    values: Sequence[Value],
    labels: Sequence[str | None],
    selected: int | None,
    palette: Palette,
    rule: str,
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
        text=[_hover(k, value, sign, rule) for k, value, sign in zip(where, shown, signs, strict=True)],
        hovertemplate="%{text}<extra></extra>",
        name="points",
    )


def _bars(values: Sequence[Value], many: bool, palette: Palette) -> dict[str, Any]:
    ends = [value.interval() for value in values]
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - _height(value) for value, (_, high) in zip(values, ends, strict=True)],
        "arrayminus": [_height(value) - low for value, (low, _) in zip(values, ends, strict=True)],
        "color": palette.bar,
        "thickness": 0 if many else 1.3,
        "width": 0 if many else 4,
    }


def _height(value: Value) -> float:
    return BELOW if value.q is None else float(value.q)


def _symbol(value: Value, sign: str | None) -> str:
    """Shape says what colour says: a triangle down for ``-``, a diamond where exact, hollow where there is no value."""
    if not value.known:
        return "diamond-open" if _is_bounded(value) else "circle-open"
    if value.exact is not None:
        return "diamond"
    return "triangle-down" if sign == "-" else "circle"


def _colour(value: Value, sign: str | None, palette: Palette) -> str:
    if not value.known:
        return palette.ink
    return {"+": palette.good, "-": palette.bad}.get(sign or "", palette.line)


def _hover(k: int, value: Value, sign: str | None, rule: str) -> str:
    where = f"after chunk {k - 1}" if k else "before the first chunk"
    label = {"+": f"<br>label + ({rule})", "-": f"<br>label − ({rule})"}.get(sign or "", "")
    said = "<br>".join(wrap(describe(value), _HOVER_WIDTH))
    return f"<b>{where}</b><br>{said}{label}"


def _layout(n_points: int, rows: Sequence[MarkRow], palette: Palette) -> go.Layout:
    n_chunks = n_points - 1
    every = max(1, -(-n_chunks // 14))
    margin = max(0.35, 0.012 * n_points)
    rows_px = ROW_PX * len(rows)
    plot_px = _CURVE_PX + (_GAP_PX + rows_px if rows else 0)
    names = tick_texts(rows, _LONGEST_NAME)
    widest = max((min(len(row.name), _LONGEST_NAME) for row in rows), default=0)
    layout = go.Layout(
        height=_TOP_PX + plot_px + _BOTTOM_PX,
        margin={"l": max(30, 14 + 7 * widest), "r": 10, "t": _TOP_PX, "b": _BOTTOM_PX},
        showlegend=False,
        hovermode="closest",
        hoverdistance=-1,
        dragmode=False,
        clickmode="event+select",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": palette.ink, "size": 12},
        hoverlabel={"align": "left"},
        xaxis={
            "range": [-margin, n_chunks + margin],
            "tickvals": [k + 0.5 for k in range(0, n_chunks, every)],
            "ticktext": [str(k) for k in range(0, n_chunks, every)],
            "title": {"text": "chunk", "standoff": 4},
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
            "anchor": "free",
            "position": 0,
        },
        yaxis={
            "domain": [1 - _CURVE_PX / plot_px, 1],
            "range": [BELOW - 0.06, 1.1],
            "tickvals": [0, 0.25, 0.5, 0.75, 1],
            "ticktext": ["0", "", "½", "", "1"],
            "gridcolor": palette.grid,
            "zeroline": False,
            "fixedrange": True,
        },
    )
    if rows:
        layout.yaxis2 = {
            "domain": [0, rows_px / plot_px],
            "range": [-0.6, len(rows) - 0.4],
            "tickvals": list(range(len(rows))),
            "ticktext": names,
            "tickfont": {"size": 11},
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
        }
    return layout
