"""Small Plotly figures of counts and metrics, in the colours of the theme. Not the Q curve (``value_curve``)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
import streamlit as st

from app.widgets.palette import DARK, LIGHT, Palette

CONFIG = {"displayModeBar": False}
MOST_POINTS = 400
"""Points of a line that go to the browser."""
SMOOTH_FROM = 20
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
LINE_COLOURS = {
    "light": ("#2f5d8c", "#c1440e", "#0b7a5c", "#6d54a3", "#8a6008", "#5d636b"),
    "dark": ("#7fb0e0", "#ef8354", "#3fb68f", "#ab93dc", "#d9a93b", "#a9b0b8"),
}
"""Colours of lines on one figure: the theme's, told apart in every common kind of colour blindness; dashes too."""
HATCHES = {"bad": "/", "warn": ".", "line": "\\"}
"""Hatching of a tone, so that it is told from the others without its colour."""
AMBER, QUIET = {"light": "#b07d12", "dark": "#d9a93b"}, {"light": "#c9c9c2", "dark": "#4a515a"}


def is_dark() -> bool:
    """Whether this browser shows the dark theme."""
    return st.context.theme.type == "dark"


def palette() -> Palette:
    return DARK if is_dark() else LIGHT


def colours() -> dict[str, str]:
    """good, bad, warn, quiet and line of the theme in force."""
    mode, own = "dark" if is_dark() else "light", palette()
    return {"good": own.good, "bad": own.bad, "warn": AMBER[mode], "quiet": QUIET[mode], "line": own.line}


def plain(text: str) -> str:
    """A name for a chart, where Plotly would read tags."""
    return re.sub(r"[<>&]", " ", text)[:80]


@dataclass(frozen=True)
class Slice:
    """One class of a bar: what it is called and the tone it has in every bar."""

    key: str
    name: str
    tone: str


def share_bars(bars: Mapping[str, Mapping[str, int]], slices: Sequence[Slice]) -> go.Figure:
    """One horizontal bar a name, cut into shares; n stands behind the name, counts in the hover."""
    own, tones = palette(), colours()
    names = [f"{plain(name)}  n = {sum(counts.values()):,}" for name, counts in bars.items()]
    figure = go.Figure()
    for part in slices:
        counts = [bar.get(part.key, 0) for bar in bars.values()]
        shares = [n / max(1, sum(bar.values())) for n, bar in zip(counts, bars.values(), strict=True)]
        figure.add_bar(
            y=names,
            x=shares,
            name=part.name,
            orientation="h",
            marker={
                "color": tones[part.tone],
                "line": {"width": 1, "color": own.paper},
                "pattern": {
                    "shape": HATCHES.get(part.tone, ""),
                    "fillmode": "overlay",
                    "fgcolor": own.paper,
                    "size": 7,
                    "solidity": 0.16,
                },
            },
            text=[f"{share:.0%}" if share >= 0.06 else "" for share in shares],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            insidetextfont={"color": own.ink if part.tone == "quiet" else own.paper},
            customdata=counts,
            hovertemplate=f"{part.name}: %{{customdata:,}} (%{{x:.1%}})<extra></extra>",
        )
    figure.update_layout(
        barmode="stack",
        height=70 + 46 * len(bars),
        bargap=0.35,
        legend={"traceorder": "normal"},
        **frame(own),
    )
    figure.update_layout(legend={"orientation": "h", "y": -0.05, "yanchor": "top", "x": 0})
    figure.update_layout(uniformtext={"minsize": 10, "mode": "hide"})
    figure.update_xaxes(visible=False, range=[0, 1])
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False)
    return figure


def lost_and_gained(rows: Sequence[tuple[str, float, float, int]]) -> go.Figure:
    """(position, mean Q lost, mean Q gained, n) as bars below and above zero."""
    own, tones = palette(), colours()
    positions, n = [row[0] for row in rows], [row[3] for row in rows]
    figure = go.Figure()
    for name, values, tone in (
        ("gained", [row[2] for row in rows], "good"),
        ("lost", [-row[1] for row in rows], "bad"),
    ):
        figure.add_bar(
            x=positions,
            y=values,
            name=name,
            marker={"color": tones[tone]},
            customdata=n,
            hovertemplate=f"chunk %{{x}}: %{{y:+.3f}} {name} a chunk, n = %{{customdata:,}}<extra></extra>",
        )
    figure.update_layout(barmode="relative", height=270, bargap=0.25, **frame(own))
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0})
    figure.update_xaxes(title={"text": "chunk", "standoff": 4}, type="category", showgrid=False)
    figure.update_yaxes(gridcolor=own.grid, zerolinecolor=own.ink, tickformat="+.2f", nticks=6)
    return figure


def curve(
    name: str, steps: Sequence[int], values: Sequence[float | None], *, small: bool = False
) -> go.Figure:
    """One metric over the steps of a run, its name above it."""
    figure = curves([Line(name, steps, values)], height=170 if small else 280, top=30)
    title = {"text": plain(name).replace("_", " "), "font": {"size": 13}, "x": 0, "xanchor": "left"}
    return figure.update_layout(title=title)


@dataclass(frozen=True)
class Line:
    """One line of a figure. ``steps`` ascend; a value of None (not a number when it was measured) is a gap."""

    name: str
    steps: Sequence[int]
    values: Sequence[float | None]


def thinned(line: Line, most: int = MOST_POINTS) -> Line:
    """The line with evenly spread points left out, its last one kept, so that a page stays light."""
    if len(line.steps) <= most:
        return line
    every = -(-len(line.steps) // most)
    kept = range((len(line.steps) - 1) % every, len(line.steps), every)
    return Line(line.name, [line.steps[i] for i in kept], [line.values[i] for i in kept])


def running_mean(values: Sequence[float | None], window: int) -> list[float | None]:
    """Mean of the last ``window`` known values at every place; None before the first known one."""
    out: list[float | None] = []
    for end in range(1, len(values) + 1):
        known = [v for v in values[max(0, end - window) : end] if v is not None]
        out.append(sum(known) / len(known) if known else None)
    return out


def curves(
    lines: Sequence[Line],
    *,
    height: int = 190,
    share: bool = False,
    smooth: bool = False,
    top: int = 6,
    at: str = "step",
) -> go.Figure:
    """Lines over the steps, told apart by colour and by dash, with a legend where there is more than one.

    ``share``: values in [0, 1], written as per cent. ``smooth``: a running mean over the points, which are drawn faint.
    ``at``: what a step is, in our words.
    """
    own, tones = palette(), LINE_COLOURS["dark" if is_dark() else "light"]
    figure = go.Figure()
    number = ".0%" if share else ".4g"
    for place, line in enumerate(thinned(line) for line in lines):
        look = {"color": tones[place % len(tones)], "dash": DASHES[place % len(DASHES)], "width": 2}
        window = max(3, len(line.steps) // 12) if smooth and len(line.steps) >= SMOOTH_FROM else 0
        if window:
            faint = look | {"width": 1, "dash": "solid"}
            figure.add_scatter(
                x=line.steps,
                y=line.values,
                mode="lines",
                line=faint,
                opacity=0.35,
                showlegend=False,
                hoverinfo="skip",
            )
        said = f"mean of {window} points" if window else "%{y}"
        figure.add_scatter(
            x=line.steps,
            y=running_mean(line.values, window) if window else line.values,
            name=plain(line.name),
            mode="lines+markers" if len(line.steps) < 40 else "lines",
            marker={"size": 5},
            cliponaxis=len(line.steps) >= 40,  # whole markers at 0 and at the first step
            line=look,
            hovertemplate=f"{at} %{{x}}: %{{y:{number}}}"
            + (f" ({said})" if window else "")
            + "<extra>%{fullData.name}</extra>",
        )
    figure.update_layout(height=height, showlegend=len(lines) > 1, **frame(own, top=top))
    figure.update_layout(
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "font": {"size": 11}}
    )
    figure.update_xaxes(rangemode="tozero", showgrid=False, nticks=6)
    figure.update_yaxes(gridcolor=own.grid, zeroline=False, nticks=5, tickformat=".0%" if share else None)
    return figure


@dataclass(frozen=True)
class Measure:
    """A share with its interval, None where there is none."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None


def measures(rows: Sequence[Measure]) -> go.Figure:
    """A dot a measure on one axis of shares, with its interval as a line; n in the hover."""
    own = palette()
    names = [plain(row.name) for row in rows]
    figure = go.Figure(
        go.Scatter(
            x=[row.value for row in rows],
            y=names,
            mode="markers+text",
            text=[f"{row.value:.1%}" for row in rows],
            textposition="top center",
            marker={"size": 10, "color": own.line},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [0 if row.high is None else max(0.0, row.high - row.value) for row in rows],
                "arrayminus": [0 if row.low is None else max(0.0, row.value - row.low) for row in rows],
                "color": own.bar,
                "thickness": 3,
                "width": 6,
            },
            customdata=["" if row.n is None else f", n = {row.n:,}" for row in rows],
            hovertemplate="%{y}: %{x:.1%}%{customdata}<extra></extra>",
        )
    )
    figure.update_layout(height=60 + 52 * len(rows), showlegend=False, **frame(own, top=16))
    low = min([0.4, *(row.low if row.low is not None else row.value for row in rows)])
    figure.update_xaxes(
        range=[max(0.0, low - 0.1), 1.02], tickformat=".0%", gridcolor=own.grid, zeroline=False
    )
    figure.update_yaxes(range=[len(rows) - 0.5, -0.8], automargin=True, showgrid=False)
    return figure


def frame(own: Palette, top: int = 6) -> dict[str, object]:
    """Layout that every figure has: no paper of its own, narrow margins, no dragging."""
    return {
        "margin": {"l": 8, "r": 8, "t": top, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": own.ink, "size": 12},
        "dragmode": False,
    }
