"""Plotly figures of training sets: what is left out and why, + and − by position, label rules over their parameters.

Not: the numbers (``training.sets``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.widgets.charts import colours, palette
from app.widgets.palette import Palette
from training.sets.frozen import Balance
from training.sets.sweep import SweepRow

SHAPES = {0: "circle", 1: "diamond", 2: "square", 3: "triangle-up"}
DASHES = {0: "solid", 1: "dash", 2: "dot", 3: "dashdot"}


@dataclass(frozen=True)
class Step:
    """A bar of the waterfall: chunks that are there (``loss`` False) or that leave here, and why. Our words only."""

    name: str
    count: int
    loss: bool
    why: str = ""


def waterfall(steps: Sequence[Step]) -> go.Figure:
    """From all selected chunks down to what is trained on; losses are hatched, numbers stand beside the bars."""
    own, tones = palette(), colours()
    ends, left = [], 0
    for step in steps:
        left = left - step.count if step.loss else step.count
        ends.append(left)
    most = max((step.count for step in steps), default=1) or 1
    figure = go.Figure(
        go.Bar(
            y=[step.name for step in steps],
            x=[step.count for step in steps],
            base=[end if step.loss else 0 for step, end in zip(steps, ends, strict=True)],
            orientation="h",
            marker={
                "color": [tones["quiet"] if step.loss else tones["line"] for step in steps],
                "pattern": {
                    "shape": ["/" if step.loss else "" for step in steps],
                    "fgcolor": own.ink,
                    "size": 6,
                    "solidity": 0.15,
                },
            },
            text=[f"−{step.count:,}" if step.loss else f"{step.count:,}" for step in steps],
            textposition="outside",
            cliponaxis=False,
            textfont={"color": own.ink},
            customdata=[step.why for step in steps],
            hovertemplate="%{y}: %{text}<br>%{customdata}<extra></extra>",
        )
    )
    figure.update_layout(height=40 + 30 * len(steps), bargap=0.3, showlegend=False, **_frame())
    figure.update_xaxes(visible=False, range=[0, 1.18 * most])
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False, ticks="")
    return figure


def balance_by_position(parts: Mapping[str, Sequence[Balance]]) -> go.Figure:
    """+ above and − below the line at each place; with two parts the first is pale and the second stands in front."""
    own, tones = palette(), colours()
    figure = go.Figure()
    last = len(parts) - 1
    for place, (name, rows) in enumerate(parts.items()):
        positions = [_position(row) for row in rows]
        for sign, tone, values in (
            ("+", "good", [row.positive for row in rows]),
            ("−", "bad", [-row.negative for row in rows]),
        ):
            figure.add_bar(
                x=positions,
                y=values,
                name=f"{sign} {name}",
                width=0.82 if place < last else 0.5,
                opacity=0.35 if place < last else 1,
                marker={
                    "color": tones[tone],
                    "pattern": _hatched(sign, own),
                },
                customdata=[abs(value) for value in values],
                hovertemplate=f"chunk %{{x}}: %{{customdata:,}} {sign} {name}<extra></extra>",
            )
    figure.update_layout(barmode="overlay", height=260, **_frame())
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0})
    figure.update_xaxes(title={"text": "chunk", "standoff": 4}, type="category", showgrid=False)
    amounts = [amount for rows in parts.values() for row in rows for amount in (row.positive, row.negative)]
    figure.update_yaxes(gridcolor=own.grid, zerolinecolor=own.ink, **_both_ways(amounts))
    return figure


def _both_ways(amounts: Sequence[int]) -> dict[str, Any]:
    """Ticks of an axis whose bars count upwards and downwards: amounts without a sign."""
    most = max([1, *amounts])
    step = next(s for e in range(12) for s in (10**e, 2 * 10**e, 5 * 10**e) if 3 * s >= most)
    values = [k * step for k in range(-3, 4)]
    return {"tickvals": values, "ticktext": [f"{abs(value):,}" for value in values]}


def _hatched(sign: str, own: Palette) -> dict[str, Any]:
    """Hatching for −, so that it is told from + without its colour."""
    shape = "/" if sign == "−" else ""
    return {"shape": shape, "fillmode": "overlay", "fgcolor": own.paper, "solidity": 0.18, "size": 7}


def _position(row: Balance) -> str:
    return str(row.position if row.position is not None else 0)


@dataclass(frozen=True)
class Marked:
    """A value of the parameter that the picture marks, and what stands beside it."""

    value: float
    words: str


def rule_figure(
    lines: Mapping[str, Sequence[SweepRow]], shown: str, parameter: str, marks: Sequence[Marked]
) -> go.Figure:
    """One kind of rule over its ``parameter`` (``gamma`` or ``alpha``): labels, confidence, agreement with people.

    ``lines``: rows by line (one a value of n; a single one for γ); the bars are those of the line ``shown``. A point's
    customdata is its rule as text.
    """
    own, tones = palette(), colours()
    figure = make_subplots(
        rows=3, cols=1, shared_xaxes=True, vertical_spacing=0.06, row_heights=[0.4, 0.28, 0.32]
    )
    rows = lines[shown]
    x = [getattr(row, parameter) for row in rows]
    for sign, tone, values in (
        ("+", "good", [row.positive for row in rows]),
        ("−", "bad", [-row.negative for row in rows]),
    ):
        figure.add_bar(
            x=x,
            y=values,
            name=f"label {sign}",
            marker={
                "color": tones[tone],
                "pattern": _hatched(sign, own),
            },
            customdata=[[row.rule, abs(value)] for row, value in zip(rows, values, strict=True)],
            hovertemplate=f"%{{customdata[0]}}: %{{customdata[1]:,}} {sign}<extra></extra>",
            row=1,
            col=1,
        )
    for place, (name, line) in enumerate(lines.items()):
        _line(figure, 2, line, parameter, name, place, shown, [row.mean_confidence for row in line])
        _agreement(figure, line, parameter, name, place, shown)
    _mark(figure, marks)
    _axes(figure, rows, parameter)
    if not any(row.agreement for line in lines.values() for row in line):
        figure.add_annotation(
            x=0.5,
            xref="x3 domain",
            y=0.5,
            yref="y3 domain",
            text="no reviewed chunk has a label here",
            showarrow=False,
            bgcolor=palette().paper,
        )
    return figure


def _mark(figure: go.Figure, marks: Sequence[Marked]) -> None:
    own = palette()
    for mark in marks:
        for row in (1, 2, 3):
            figure.add_vline(mark.value, line={"color": own.ink, "width": 1.2, "dash": "dot"}, row=row, col=1)
        figure.add_annotation(
            x=mark.value,
            y=1,
            yref="paper",
            yanchor="bottom",
            text=mark.words,
            showarrow=False,
            font={"size": 11},
        )


def _axes(figure: go.Figure, rows: Sequence[SweepRow], parameter: str) -> None:
    own, x = palette(), [getattr(row, parameter) for row in rows]
    figure.update_layout(barmode="relative", height=470, bargap=0.35, hovermode="closest", **_frame(top=26))
    figure.update_layout(
        legend={"orientation": "h", "y": -0.1, "yanchor": "top", "x": 0}, clickmode="event+select"
    )
    figure.update_xaxes(showgrid=False, tickvals=x, fixedrange=True)
    figure.update_xaxes(title={"text": {"gamma": "γ", "alpha": "α"}[parameter], "standoff": 4}, row=3, col=1)
    figure.update_yaxes(gridcolor=own.grid, zerolinecolor=own.ink, nticks=5, fixedrange=True)
    amounts = [amount for row in rows for amount in (row.positive, row.negative)]
    figure.update_yaxes(title={"text": "labels"}, row=1, col=1, **_both_ways(amounts))
    figure.update_yaxes(title={"text": "confidence"}, tickformat=".0%", row=2, col=1)
    figure.update_yaxes(title={"text": "agreement"}, tickformat=".0%", range=[0, 1.05], row=3, col=1)


def _line(
    figure: go.Figure,
    row: int,
    line: Sequence[SweepRow],
    parameter: str,
    name: str,
    place: int,
    shown: str,
    values: Sequence[float | None],
    **more: Any,
) -> None:
    tones = colours()
    figure.add_scatter(
        x=[getattr(one, parameter) for one in line],
        y=values,
        name=name,
        legendgroup=name,
        showlegend=row == 2 and bool(name),
        mode="lines+markers",
        opacity=1 if name == shown else 0.55,
        line={"color": tones["line"], "width": 2, "dash": DASHES[place % len(DASHES)]},
        marker={"symbol": SHAPES[place % len(SHAPES)], "size": 9 if name == shown else 7},
        selected={"marker": {"opacity": 1}},
        unselected={"marker": {"opacity": 1}},
        row=row,
        col=1,
        **(
            {
                "customdata": [[one.rule] for one in line],
                "hovertemplate": "%{customdata[0]}: %{y:.1%}<extra></extra>",
            }
            | more
        ),
    )


def _agreement(
    figure: go.Figure, line: Sequence[SweepRow], parameter: str, name: str, place: int, shown: str
) -> None:
    known = [row for row in line if row.agreement]
    said = [row.agreement for row in known if row.agreement]
    _line(
        figure,
        3,
        known,
        parameter,
        name,
        place,
        shown,
        [one.share for one in said],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [one.high - one.share for one in said],
            "arrayminus": [one.share - one.low for one in said],
            "color": palette().bar,
            "thickness": 1.6,
            "width": 5,
        },
        customdata=[
            [row.rule, one.low, one.high, one.n, one.problems] for row, one in zip(known, said, strict=True)
        ],
        hovertemplate="%{customdata[0]}: %{y:.0%} agree, 95 % %{customdata[1]:.0%} to %{customdata[2]:.0%}<br>"
        "%{customdata[3]} reviewed chunks of %{customdata[4]} problems<extra></extra>",
    )


def _frame(top: int = 6) -> dict[str, Any]:
    return {
        "margin": {"l": 8, "r": 8, "t": top, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": palette().ink, "size": 12},
        "dragmode": False,
    }
