"""Figures of the Overview: label shares over a threshold, a judge against labels by position, people against rules.

Each says in shapes and words what its colours say. Not: the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from app.widgets.charts import colours, frame, palette, plain


def negative_over(
    symbol: str, points: Sequence[tuple[float, float]], marks: Sequence[tuple[float, float]]
) -> go.Figure:
    """Share of - among the labels at every value of a rule's parameter (``symbol``: γ or α); steps, for they are exact.

    ``marks``: points that get a diamond, which the words beneath the figure explain.
    """
    own, tones = palette(), colours()
    figure = go.Figure(
        go.Scatter(
            x=[x for x, _ in points],
            y=[y for _, y in points],
            mode="lines",
            line={"color": tones["bad"], "width": 2, "shape": "hv"},
            fill="tozeroy",
            fillpattern={
                "shape": "/",
                "fgcolor": tones["bad"],
                "size": 8,
                "solidity": 0.12,
                "fillmode": "replace",
            },
            hovertemplate=f"{symbol} = %{{x:.2f}}: %{{y:.1%}} −<extra></extra>",
        )
    )
    figure.add_scatter(
        x=[x for x, _ in marks],
        y=[y for _, y in marks],
        mode="markers",
        marker={"size": 10, "color": own.line, "symbol": "diamond", "line": {"width": 1, "color": own.paper}},
        cliponaxis=False,
        hoverinfo="skip",
    )
    for x, _ in marks:
        figure.add_vline(x=x, line={"color": own.ink, "width": 1, "dash": "dot"})
    figure.update_layout(height=200, showlegend=False, **frame(own, top=10))
    figure.update_xaxes(title={"text": symbol, "standoff": 2}, showgrid=False, nticks=8, zeroline=False)
    top = min(1.02, 1.15 * max([0.2, *(y for _, y in points)]))
    figure.update_yaxes(
        range=[0, top], tickformat=".0%", gridcolor=own.grid, zerolinecolor=own.grid, nticks=5
    )
    return figure


@dataclass(frozen=True)
class Placed:
    """A share at a chunk index, with its interval; ``n``: of how many chunks."""

    position: str
    share: float
    low: float
    high: float
    n: int


def right_by_position(right: Mapping[str, Sequence[Placed]]) -> go.Figure:
    """Share of labels that a judge shares, by chunk index; on + as circles, on − as crosses."""
    own, tones = palette(), colours()
    figure = go.Figure()
    looks = {"+": ("good", "circle", "solid"), "−": ("bad", "x", "dash")}
    for sign, rows in right.items():
        tone, symbol, dash = looks[sign]
        figure.add_scatter(
            x=[row.position for row in rows],
            y=[row.share for row in rows],
            name=f"on label {sign}",
            mode="lines+markers",
            line={"color": tones[tone], "dash": dash, "width": 2},
            marker={"symbol": symbol, "size": 9},
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [row.high - row.share for row in rows],
                "arrayminus": [row.share - row.low for row in rows],
                "color": own.bar,
                "thickness": 2,
                "width": 4,
            },
            customdata=[row.n for row in rows],
            hovertemplate=f"chunk %{{x}}: %{{y:.0%}} on label {sign}, n = %{{customdata:,}}<extra></extra>",
        )
    figure.update_layout(height=250, **frame(own))
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0})
    places = {row.position for rows in right.values() for row in rows}
    figure.update_xaxes(
        title={"text": "chunk", "standoff": 4},
        type="category",
        categoryorder="array",  # else in the order in which the lines come to them
        categoryarray=sorted(places, key=lambda place: int(place.rstrip("+"))),
        showgrid=False,
    )
    figure.update_yaxes(range=[-0.03, 1.05], tickformat=".0%", gridcolor=own.grid, zeroline=False, nticks=5)
    return figure


@dataclass(frozen=True)
class Differs:
    """Share of chunks on which people and a rule differ, with its interval; ``sure``: on labels that are sure."""

    rule: str
    sure: bool
    share: float
    low: float
    high: float
    n: int


def people_against_rules(rows: Sequence[Differs]) -> go.Figure:
    """One line a rule and sureness: filled dots for sure labels, hollow ones for the others."""
    own = palette()
    figure = go.Figure()
    for sure in (True, False):
        some = [row for row in rows if row.sure == sure]
        figure.add_scatter(
            x=[row.share for row in some],
            y=[_line(row) for row in some],
            name="sure labels" if sure else "other labels",
            mode="markers+text",
            text=[f"{row.share:.0%} of {row.n:,}" for row in some],
            textposition="top center",
            marker={
                "size": 11,
                "symbol": "circle" if sure else "circle-open",
                "color": own.line,
                "line": {"width": 2, "color": own.line},
            },
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [row.high - row.share for row in some],
                "arrayminus": [row.share - row.low for row in some],
                "color": own.bar,
                "thickness": 3,
                "width": 6,
            },
            hovertemplate="%{y}: %{text}<extra></extra>",
        )
    figure.update_layout(height=70 + 46 * len(rows), showlegend=False, **frame(own, top=16))
    figure.update_xaxes(range=[-0.04, 1.04], tickformat=".0%", gridcolor=own.grid, zeroline=False)
    order = [_line(row) for row in rows]
    figure.update_yaxes(
        categoryorder="array",
        categoryarray=order,
        range=[len(order) - 0.5, -0.8],
        automargin=True,
        showgrid=False,
    )
    return figure


def _line(row: Differs) -> str:
    return plain(f"{row.rule}, {'sure' if row.sure else 'not sure'}")
